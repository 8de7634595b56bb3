"""``/v1/runs``, and the client's methods on it."""

from __future__ import annotations

import pytest

from rubricsvc import Client
from rubricsvc.api.request import Validators
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.run import RunHeartbeat
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError
from rubricsvc.store.session import Database
from tests.recorded_run import new_run, run_step
from tests.unit.rubricsvc.api.conftest import Serve


def test_client_records_and_reads_a_run(serve: Serve) -> None:
    with Client("http://localhost", transport=serve()._transport) as client:
        run = client.runs.create(new_run())
        for step in (1, 2, 3, 3):
            run = client.runs.record(run.id, run_step(step))
        assert (run.status, run.steps, run.rollouts) == ("running", 3, None)
        assert client.runs.heartbeat(run.id, RunHeartbeat(state="paused", reason="why")).reason == "why"
        found = client.runs.get(run.id)
        assert (found.status, found.steps, found.rollouts, found.unscored) == ("paused", 3, 12, 6)
        assert [one.id for one in client.iterate(client.runs.page)] == [run.id]
        assert [one.step for one in client.iterate(client.runs.steps, run.id, limit=2)] == [1, 2, 3]
        rollouts = list(client.iterate(client.runs.rollouts, run.id, limit=5))
        assert [(one.step, one.place) for one in rollouts] == [(s, p) for s in (1, 2, 3) for p in range(4)]
        assert [len(one.verdicts) for one in client.runs.rollouts(run.id, step=2)] == [1, 0, 1, 0]
        assert not client.runs.rollouts(run.id, step=2, verdicts=False).data[0].verdicts
        assert client.runs.create(new_run(done=1)).steps == 1


def test_client_stops_and_deletes_a_run(serve: Serve) -> None:
    with Client("http://localhost", transport=serve()._transport) as client:
        run = client.runs.create(new_run())
        assert client.runs.stop(run.id).stop_requested
        assert client.runs.record(run.id, run_step(1)).stop_requested
        with pytest.raises(ConflictError):
            client.runs.delete(run.id)
        client.runs.heartbeat(run.id, RunHeartbeat(state="stopped"))
        with pytest.raises(ConflictError):
            client.runs.stop(run.id)
        client.runs.delete(run.id)
        for method in (client.runs.get, client.runs.delete, client.runs.steps, client.runs.rollouts, client.runs.stop):
            with pytest.raises(NotFoundError):
                method(run.id)
        with pytest.raises(NotFoundError):
            client.runs.record(run.id, run_step(1))


def test_record_validates_rubrics_and_approval(db: Database, serve: Serve) -> None:
    def reject(rubric: Rubric) -> None:
        raise InvalidError("unknown check", path=rubric.criteria[0].key)

    with Client("http://localhost", transport=serve(require_approval="all")._transport) as client:
        run = client.runs.create(new_run())
        client.runs.record(run.id, run_step(1))
        assert [one.state for one in client.rubrics.page()] == ["draft"]
    with Client("http://localhost", transport=serve(validators=Validators(rubric=reject))._transport) as client:
        with pytest.raises(InvalidError):
            client.runs.record(run.id, run_step(2))
        assert client.runs.get(run.id).steps == 1


@pytest.mark.parametrize("field", ["key", "name", "steps_total"])
def test_create_refuses_an_incomplete_run(serve: Serve, field: str) -> None:
    body = new_run().model_dump(mode="json")
    del body[field]
    response = serve().post("/v1/runs", json=body)
    assert (response.status_code, response.json()["error"]["path"]) == (422, f"body.{field}")
