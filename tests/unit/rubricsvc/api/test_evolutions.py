"""``/v1/evolutions``, and the client's methods on it."""

from __future__ import annotations

from rubricsvc import Client
from rubricsvc.services.evolutions import Evolutions
from rubricsvc.store.session import Database
from tests.unit.rubricsvc.api.conftest import Serve
from tests.unit.rubricsvc.services.test_evolutions import evolved, labelled


def test_evolutions_are_listed_and_read(db: Database, serve: Serve) -> None:
    labelled(db)
    found, listed = evolved(db), Evolutions(db).page()
    service = serve()
    assert service.get("/v1/evolutions").json() == listed.model_dump(mode="json")
    assert service.get("/v1/evolutions/1").json() == found.model_dump(mode="json")
    assert service.get("/v1/evolutions?run=first").json()["data"] == []
    assert [service.get(f"/v1/evolutions/{one}").status_code for one in ("2", "x")] == [404, 404]
    with Client("http://localhost", transport=service._transport) as client:
        assert client.evolutions.get(1) == found
        assert client.evolutions.page() == listed
