"""``/v1/evolutions``, and the client's methods on it."""

from __future__ import annotations

from rubricsvc import Client
from rubricsvc.store.session import Database
from tests.unit.rubricsvc.api.conftest import Serve
from tests.unit.rubricsvc.services.test_evolving import evolved, labelled


def test_evolutions_are_listed_and_read(db: Database, serve: Serve) -> None:
    labelled(db)
    found = evolved(db)
    service = serve()
    (one,) = service.get("/v1/evolutions").json()["data"]
    assert one == found.summary.model_dump(mode="json")
    assert service.get("/v1/evolutions/1").json() == found.model_dump(mode="json")
    assert service.get("/v1/evolutions/2").status_code == 404
    assert service.get("/v1/evolutions/x").status_code == 422


def test_client_reads_evolutions(db: Database, serve: Serve) -> None:
    labelled(db)
    found = evolved(db)
    service = serve()
    with Client("http://localhost", transport=service._transport) as client:
        assert client.evolutions.get(1) == found
        assert [one.id for one in client.iterate(client.evolutions.page)] == [1]
