"""The record of a run that `rubricsvc runs start` trains: in the database, or at the service that has its judge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

from rubricsvc.cli.db import database
from rubricsvc.cli.output import echo
from rubricsvc.cli.run_folders import is_run, read_record, stored_name
from rubricsvc.settings import get_settings

if TYPE_CHECKING:
    from trainer.config import RunConfig
    from trainer.evaluation.baselines import BaselineRecorder
    from trainer.recording.recorder import RunRecorder, RunStore
    from trainer.trackers.tracking import Tracking

REQUEST_SECONDS = 30.0


@contextmanager
def run_store(run: RunConfig) -> Iterator[RunStore]:
    """Open where a run is recorded."""
    from trainer.config import ServiceJudge

    if isinstance(run.judge, ServiceJudge):
        from rubricsvc.client import Client

        with Client(run.judge.service, timeout=REQUEST_SECONDS, outage_seconds=0.0) as client:
            yield client.runs
        return
    from rubricsvc.services.recording import DatabaseRuns

    with database() as db:
        yield DatabaseRuns(db, get_settings().require_approval)


@contextmanager
def recorder_of(run: RunConfig, name: str, stop: Event) -> Iterator[RunRecorder]:
    """Open the recorder of a run; ``stop`` is set when somebody asks the run to stop."""
    from trainer.recording.recorder import RunRecorder

    with run_store(run) as store, RunRecorder(store, name, run.out, stop) as recorder:
        yield recorder


def tracking_of(run: RunConfig, name: str) -> Tracking:
    """Return the trackers of a run."""
    from trainer.trackers.tracking import Tracking

    return Tracking(run.trackers, run.out, name)


@contextmanager
def baseline_recorder(run: RunConfig) -> Iterator[BaselineRecorder | None]:
    """Open the recorder of the baselines of a run that this process does not train; None if it has no record."""
    from trainer.evaluation.baselines import BaselineRecorder

    name = stored_name(run.out) if is_run(run.out) else None
    if name is None:
        echo(f"the baselines are not recorded: the run in {run.out} has no record; start it to make one")
        yield None
        return
    with run_store(run) as store:
        yield BaselineRecorder(store, name)


def complete_record(run: RunConfig) -> None:
    """Record that a finished run is finished, with the steps that its process could not deliver."""
    name = stored_name(run.out)
    if name is None:
        return
    from trainer import checkpoint
    from trainer.history import read
    from trainer.rewards.source import JudgeInfo

    config = read_record(run.out)
    with checkpoint.locked(run.out), recorder_of(run, name, Event()) as recorder:
        recorder.begin(config, JudgeInfo(config["judge"]["name"]), read(run.out))
        recorder.set_state("finished")
