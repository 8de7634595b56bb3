"""What the completions of an evaluation do, beside their scores: tools and citations, and the value of each criterion.

Each is a mean over prompts, with a t interval. Citations are measured where the prompt names the pages that answer it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.stats.policy_scores import over_prompts, prompt_values
from trainer.data.tasks import Task
from workers import checks

TOOL_USE = "tool_use"
"""Share of completions that call a tool."""


def _measured(key: str, name: str, **args: str) -> Criterion:
    return Criterion(key=key, text=key, check=Check(name=name, args={**args}))


_CALLS = Rubric(criteria=(_measured("valid_calls", "valid_calls"),))
_CITATIONS = Rubric(
    criteria=tuple(
        _measured(f"citation_{measure}", "cites_pages", measure=measure) for measure in ("recall", "precision")
    )
)


class Judged(NamedTuple):
    """A completion of the prompt at a place, with the verdicts of the training reward."""

    place: int
    completion: Completion
    verdicts: Sequence[Verdict]


def behaviour(tasks: Sequence[Task], judged: Iterable[Judged]) -> dict[str, Estimate]:
    """Return the use of tools, the share of valid calls, and recall and precision of the pages that are cited.

    A completion without a call has no valid calls: its value is 0. Empty without a prompt that names its pages and
    without a completion that calls a tool.
    """
    values = ((one.place, _behaviour(tasks[one.place].prompt, one.completion)) for one in judged)
    found = _over_prompts(len(tasks), ((place, key, value) for place, each in values for key, value in each))
    return found if len(found) > 2 or (found and found[TOOL_USE].value) else {}


def criteria(tasks: Sequence[Task], judged: Iterable[Judged]) -> dict[str, Estimate]:
    """Return the mean value of each criterion, over the prompts whose rubrics have one of this key."""
    values = ((one.place, verdict) for one in judged for verdict in one.verdicts if verdict.value is not None)
    found = _over_prompts(len(tasks), ((place, verdict.criterion, verdict.value) for place, verdict in values))
    return dict(sorted(found.items()))


def _behaviour(prompt: Prompt, completion: Completion) -> Iterator[tuple[str, float | None]]:
    yield TOOL_USE, float(any(message.tool_calls for message in completion.messages))
    for rubric in (_CALLS, *([_CITATIONS] if "pages" in (prompt.item or {}) else [])):
        for verdict in checks.run(rubric, prompt, completion):
            yield verdict.criterion, verdict.value


def _over_prompts(prompts: int, values: Iterable[tuple[int, str, float | None]]) -> dict[str, Estimate]:
    """Return the estimate of each key, from its values at the places of prompts."""
    found: dict[str, list[list[float | None]]] = defaultdict(lambda: [[] for _ in range(prompts)])
    for place, key, value in values:
        found[key][place].append(value)
    return {key: over_prompts(prompt_values(samples, None).mean) for key, samples in found.items()}
