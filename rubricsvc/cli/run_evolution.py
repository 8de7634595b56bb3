"""The evolution of rubrics in `rubricsvc runs start`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rubricsvc.cli.db import database
from rubricsvc.cli.models import fetch_if_embedded
from rubricsvc.cli.output import counted, echo
from rubricsvc.core.judge import Judge
from rubricsvc.errors import InvalidError
from rubricsvc.settings import get_settings
from rubricsvc.store import judges

if TYPE_CHECKING:
    from trainer.config import EvolveConfig, RunConfig
    from trainer.evolution import OnlineEvolution
    from trainer.rewards.source import RewardSource


def with_judges(config: RunConfig) -> RunConfig:
    """Return the run with the judges of its evolution in place of their names: the record has all of them."""
    evolve = config.evolve
    if evolve is None:
        return config
    given = {name: getattr(evolve, name) for name in ("proposer", "trusted")}
    names = [judge for judge in given.values() if isinstance(judge, str)]
    stored: dict[str, Judge] = {}
    if names:
        with database() as db, db.read() as session:
            stored = {name: judges.get(session, name).value for name in names}
    found = {name: stored[judge] if isinstance(judge, str) else judge for name, judge in given.items()}
    if not found["proposer"].model:
        message = f"judge {found['proposer'].name!r} ({found['proposer'].mode}) has no model of its own"
        raise InvalidError(message, hint="name one of its members", path="evolve.proposer")
    return config.model_copy(update={"evolve": evolve.model_copy(update=found)})


def print_evolution_plan(evolve: EvolveConfig) -> None:
    """Print how rubrics evolve, and fetch the embedded model where a judge of the evolution is it."""
    names = {name: judge.name for name in ("proposer", "trusted") if isinstance(judge := getattr(evolve, name), Judge)}
    described = ", ".join(f"{name} {judge}" for name, judge in names.items())
    by = "approved by people" if evolve.approve == "human" else "approved automatically"
    echo(f"rubrics evolve every {counted(evolve.every, 'step')}: {described}; versions are {by}")
    for judge in (evolve.proposer, evolve.trusted):
        if isinstance(judge, Judge):
            fetch_if_embedded(judge)


@contextmanager
def evolution_of(config: RunConfig, name: str, rewards: RewardSource) -> Iterator[OnlineEvolution | None]:
    """Open the evolution of a run; None if its rubrics stay as they are. At the end say which versions wait."""
    evolve: EvolveConfig | None = config.evolve
    if evolve is None:
        yield None
        return
    from rubricsvc.services.evolutions import RunEvolutions
    from trainer.evolution import OnlineEvolution

    with database() as db:
        versions = RunEvolutions(db, name, evolve.approve, get_settings().require_approval)
        with OnlineEvolution(evolve, versions, rewards) as evolution:
            yield evolution
        if waiting := versions.waiting():
            newest = waiting[-1]
            echo(f"{counted(len(waiting), 'rubric version')} of this run not approved; the newest is {newest}")
            echo(f"hint: `rubricsvc rubrics submit {newest}`, then `rubricsvc rubrics approve {newest}`")
