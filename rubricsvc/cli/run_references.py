"""The judges and rubrics that the configuration of a run names: all that are not stored are reported at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rubricsvc.cli.db import database
from rubricsvc.errors import InvalidError, NotFoundError, RubricsvcError
from rubricsvc.store import judges, rubrics

if TYPE_CHECKING:
    from trainer.config import RunConfig
    from trainer.data.config import DataSource

Lookup = Callable[[Any, str], object]


def check_references(config: RunConfig) -> None:
    """Check that every judge and every rubric that a configuration names is stored; nothing is loaded.

    Raises:
        NotFoundError: Names all that are not, each with its field.
        InvalidError: The same, where one of them is not missing but may not be used.
    """
    references = [*_judges(config), *_rubrics(config)]
    if not references:
        return
    problems: list[tuple[str, RubricsvcError]] = []
    with database() as db, db.read() as session:
        for path, name, lookup in references:
            try:
                lookup(session, name)
            except RubricsvcError as error:
                problems.append((path, error))
    if not problems:
        return
    kind = NotFoundError if all(isinstance(error, NotFoundError) for _, error in problems) else InvalidError
    hints = dict.fromkeys(error.hint for _, error in problems)
    message = "\n".join(f"{path}: {error}" for path, error in problems)
    raise kind(message, hint="; ".join(filter(None, hints)), path=problems[0][0])


def _judges(config: RunConfig) -> Iterator[tuple[str, str, Lookup]]:
    named: list[tuple[str, Any]] = [("judge", config.judge)]
    if config.evolve is not None:
        named += [("evolve.proposer", config.evolve.proposer), ("evolve.trusted", config.evolve.trusted)]
    if config.eval is not None:
        named += [(f"eval.judges.{number}", judge) for number, judge in enumerate(config.eval.judges)]
    yield from ((path, judge, judges.get) for path, judge in named if isinstance(judge, str))


def _rubrics(config: RunConfig) -> Iterator[tuple[str, str, Lookup]]:
    sources: dict[str, DataSource] = {"data": config.data}
    sources |= {f"data.domains.{name}": domain for name, domain in config.data.domains.items()}
    if config.eval is not None:
        sources["eval"] = config.eval
    for path, source in sources.items():
        yield from ((f"{path}.store.{number}", ref, rubrics.get) for number, ref in enumerate(source.store))
