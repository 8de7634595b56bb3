"""``/v1/runs``, and the client's methods on it."""

import pytest

from rubricsvc import Client
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError
from rubricsvc.schemas.runs import RunHeartbeat
from rubricsvc.services.runs import Runs
from rubricsvc.store.session import Database
from tests.recorded_run import evaluation_line, new_run, run_evaluation, run_step
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


def test_client_reads_the_report_that_the_service_makes(serve: Serve, db: Database) -> None:
    with Client("http://localhost", transport=serve()._transport) as client:
        run = client.runs.create(new_run())
        client.runs.record(run.id, run_step(1))
        client.runs.record_evaluation(run.id, run_evaluation(0))
        report = client.runs.report(run.id)
        assert report == Runs(db).report(run.id)
        assert (report.columns, len(report.steps), len(report.highest)) == (("step 0",), 1, 2)
        with pytest.raises(NotFoundError):
            client.runs.report(99)


def test_client_records_and_reads_evaluations(serve: Serve) -> None:
    with Client("http://localhost", transport=serve()._transport) as client:
        run = client.runs.create(new_run())
        for evaluation in (run_evaluation(0), run_evaluation(2), run_evaluation(2), run_evaluation(0, "start")):
            assert client.runs.record_evaluation(run.id, evaluation).id == run.id
        found = list(client.iterate(client.runs.evaluations, run.id, limit=2))
        expected = [("step", 0, evaluation_line(0)), ("step", 2, evaluation_line(2)), ("start", 0, evaluation_line(0))]
        assert [(one.name, one.step, one.line) for one in found] == expected
        assert [one.id for one in client.runs.evaluations(run.id, name="start")] == [found[2].id]
        completions = list(client.iterate(client.runs.evaluation_completions, run.id, limit=5))
        assert [one.evaluation_id for one in completions] == [one.id for one in found for _ in range(4)]
        (second, *_) = client.runs.evaluation_completions(run.id, evaluation_id=found[1].id)
        expected = [("reward", 0.75, 1), ("gold", 0.25, 0)]
        assert [(each.score, each.reward, len(each.verdicts)) for each in second.rewards] == expected
        assert [one.id for one in client.runs.page(key="first-1")] == [run.id]
        assert not client.runs.page(key="other").data
        for method in (client.runs.evaluations, client.runs.evaluation_completions):
            with pytest.raises(NotFoundError):
                method(99)
        with pytest.raises(NotFoundError):
            client.runs.record_evaluation(99, run_evaluation(0))


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
    unknown = Rubric(criteria=(Criterion(key="right", text="Is right.", check=Check(name="horoscope")),))
    with Client("http://localhost", transport=serve(require_approval="all")._transport) as client:
        run = client.runs.create(new_run())
        client.runs.record_evaluation(run.id, run_evaluation(0))
        client.runs.record(run.id, run_step(1))
        assert [one.state for one in client.rubrics.page()] == ["draft"]
        for report in (run_step(2), run_evaluation(2)):
            groups = tuple(one.model_copy(update={"rubric": unknown}) for one in report.groups)
            with pytest.raises(InvalidError):
                client.runs.record(run.id, report.model_copy(update={"groups": groups}))
        assert (client.runs.get(run.id).steps, len(client.runs.evaluations(run.id).data)) == (1, 1)


@pytest.mark.parametrize("value", ["high", [1], {"mean": 1}, 1e200])
def test_record_refuses_metrics_that_no_reader_can_compute_with(serve: Serve, value: object) -> None:
    client = serve()
    assert client.post("/v1/runs", json=new_run().model_dump(mode="json")).status_code == 201
    body = {"step": 1, "metrics": {"reward": value, "scored_by": "celery"}}
    response = client.post("/v1/runs/1/steps", json=body)
    assert (response.status_code, response.json()["error"]["path"]) == (422, "body.metrics")
    assert client.post("/v1/runs/1/steps", json=body | {"metrics": {"reward": None}}).status_code == 201
    (step,) = client.get("/v1/runs/1/steps").json()["data"]
    assert step["metrics"] == {"reward": None, "step": 1}
