"""Measure the repeatability of a judge: ask the same questions again, in other batches and orders."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.repeatability import Repeatability
from rubricsvc.core.reward import reward_or_null
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from rubricsvc.stats.intervals import pooled_deviation
from workers.audit.cases import AuditCase
from workers.audit.runner import asking_fingerprint
from workers.engines.base import Engine
from workers.scoring.completions import score_group

DEFAULT_REPEATS = 5
OnProgress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class CompletionGroup:
    """Completions of one prompt under one rubric. A comparative judge is shown them together."""

    rubric: Rubric
    prompt: Prompt
    completions: tuple[Completion, ...]


def group_completions(rows: Iterable[tuple[Rubric, Prompt, Completion]]) -> list[CompletionGroup]:
    """Return the completions grouped by rubric and prompt, in order of first appearance."""
    groups: dict[tuple[str, str], CompletionGroup] = {}
    for rubric, prompt, completion in rows:
        key = rubric.digest, prompt.digest
        group = groups.get(key, CompletionGroup(rubric, prompt, ()))
        groups[key] = replace(group, completions=(*group.completions, completion))
    return list(groups.values())


def groups_of_cases(cases: Sequence[AuditCase]) -> list[CompletionGroup]:
    """Return the completions of audit cases as groups."""
    return group_completions((case.rubric, case.prompt, Completion(text=case.text)) for case in cases)


async def measure(
    engine: Engine,
    judge: Judge,
    groups: Sequence[CompletionGroup],
    *,
    source: str,
    repeats: int = DEFAULT_REPEATS,
    seed: int = 0,
    on_progress: OnProgress = lambda done, total, note: None,
) -> Repeatability:
    """Score the completions ``repeats`` times and return the standard deviations of verdict values and rewards.

    Each repeat asks in a random order of completions and of criteria, and a judge that samples draws with other seeds.
    A comparative judge is shown the members of a group in another order; any other judge is asked about one completion
    at a time. Verdicts of checks count for rewards only.

    Args:
        engine: The judge's engine.
        judge: The judge.
        groups: The completions. A comparative judge needs groups of two or more; others are left out.
        source: Where the completions come from, for the record.
        repeats: How often each question is asked, at least 2.
        seed: The seed of the orders and of the bootstrap.
        on_progress: Called with the completions done, the completions in all, and an empty note.

    Raises:
        InvalidError: There is no completion to judge.
    """
    if judge.mode == "comparative":
        asked = [group for group in groups if len(group.completions) > 1]
    else:
        asked = [replace(group, completions=(one,)) for group in groups for one in group.completions]
    if not asked:
        wanted = "two completions of one prompt" if judge.mode == "comparative" else "completion"
        raise InvalidError(f"no {wanted} to judge", hint="choose a job with completions (--job)")
    total = sum(len(group.completions) for group in asked)
    results = _Results()
    for repeat in range(repeats):
        shuffler = random.Random(f"{seed}/{repeat}")
        order = shuffler.sample(range(len(asked)), len(asked))
        variant = _with_other_seeds(judge, repeat)

        async def ask(number: int, variant: Judge = variant, shuffler: random.Random = shuffler) -> None:
            group = asked[number]
            places = shuffler.sample(range(len(group.completions)), len(group.completions))
            criteria = tuple(shuffler.sample(group.rubric.criteria, len(group.rubric.criteria)))
            rubric = group.rubric.model_copy(update={"criteria": criteria})
            shown = [group.completions[place] for place in places]
            scored = await score_group(engine, variant, rubric, group.prompt, shown)
            for place, verdicts in zip(places, scored, strict=True):
                results.add((number, place), group.rubric, verdicts)
                on_progress(results.count, total * repeats, "")

        await asyncio.gather(*map(ask, order))
    return results.repeatability(asking_fingerprint(judge), source, repeats, seed)


class _Results:
    """The values of each question and the rewards of each completion, over all repeats."""

    def __init__(self) -> None:
        self.count = 0
        self._values: dict[tuple[tuple[int, int], str, str], list[float]] = defaultdict(list)
        self._rewards: dict[tuple[int, int], list[float]] = defaultdict(list)
        self._unscored: Counter[str] = Counter()

    def add(self, completion: tuple[int, int], rubric: Rubric, verdicts: Sequence[Verdict]) -> None:
        self.count += 1
        for verdict in verdicts:
            criterion = rubric.by_key[verdict.criterion]
            if criterion.check is not None:
                continue
            if verdict.value is None:
                self._unscored[str(verdict.reason or verdict.outcome)] += 1
            else:
                self._values[completion, criterion.scale.kind, criterion.key].append(verdict.value)
        rewards = self._rewards[completion]
        if (reward := reward_or_null(rubric, verdicts).value) is not None:
            rewards.append(reward)

    def repeatability(self, fingerprint: str, source: str, repeats: int, seed: int) -> Repeatability:
        numbers = {completion: number for number, completion in enumerate(sorted(self._rewards))}
        by_kind: dict[str, list[tuple[list[float], int]]] = defaultdict(list)
        for (completion, kind, _), values in sorted(self._values.items()):
            by_kind[kind].append((values, numbers[completion]))
        rewards = sorted(self._rewards.items())
        return Repeatability(
            fingerprint=fingerprint,
            source=source,
            measured_at=datetime.now(UTC),
            repeats=repeats,
            completions=len(numbers),
            criteria={
                kind: pooled_deviation([v for v, _ in rows], [n for _, n in rows], seed=seed)
                for kind, rows in sorted(by_kind.items())
            },
            reward=pooled_deviation([v for _, v in rewards], [numbers[c] for c, _ in rewards], seed=seed),
            unscored=dict(self._unscored.most_common()),
        )


def _with_other_seeds(judge: Judge, repeat: int) -> Judge:
    """Return the judge, and its members, with other sampling seeds: the same seeds would draw the same replies."""
    members = tuple(_with_other_seeds(member, repeat) for member in judge.members) if judge.members else None
    samples = judge.voting.samples if judge.voting else 1
    sampling = judge.sampling
    if sampling.seed is not None:
        sampling = sampling.model_copy(update={"seed": sampling.seed + repeat * samples})
    return judge.model_copy(update={"members": members, "sampling": sampling})
