"""Ask a judge the same questions again, in other batches and orders; or two test questions, whose answers are plain."""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import numpy as np

from rubricsvc.core.audit import DEFAULT_REPEATS, Deviation, Repeatability
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import reward_or_null
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from rubricsvc.stats import OnProgress
from rubricsvc.stats.intervals import bootstrap
from workers.audit.runner import asking_fingerprint
from workers.engines.base import Engine
from workers.scoring.completions import score_group

_Scored = tuple[int, Rubric, list[Verdict]]  # a completion's number, and the verdicts on it in one of the repeats
_Values = dict[tuple[int, str], list[float]]  # over all repeats, by completion and criterion


async def measure(
    engine: Engine,
    judge: Judge,
    rows: Iterable[tuple[Rubric, Prompt, Completion]],
    *,
    source: str,
    repeats: int = DEFAULT_REPEATS,
    seed: int = 0,
    on_progress: OnProgress = lambda done, total, note: None,
) -> Repeatability:
    """Score the completions ``repeats`` times and return the standard deviations of verdict values and rewards.

    Each repeat asks in a random order of completions and of criteria, and a judge that samples draws with other seeds.
    A comparative judge is shown the completions of one prompt under one rubric together, in another order, and a single
    one is left out; any other judge is asked about one completion at a time. Verdicts of checks count for rewards only,
    and completions that are vetoed in every repeat do not count for rewards.

    ``source`` says where the completions come from, ``seed`` is that of the orders and of the bootstrap, and
    ``on_progress`` gets the completions done, the completions in all, and an empty note.
    """
    groups: dict[tuple[str, str], tuple[Rubric, Prompt, list[Completion]]] = {}
    for rubric, prompt, completion in rows:
        groups.setdefault((rubric.digest, prompt.digest), (rubric, prompt, []))[2].append(completion)
    if judge.mode == "comparative":
        wanted = "two completions of one prompt"
        asked = [group for group in groups.values() if len(group[2]) > 1]
    else:
        wanted = "completion"
        asked = [(rubric, prompt, [one]) for rubric, prompt, together in groups.values() for one in together]
    if not asked:
        raise InvalidError(f"no {wanted} to judge", hint="choose a job with completions (--job)")
    starts = list(accumulate((len(completions) for *_, completions in asked), initial=0))
    scored: list[_Scored] = []
    for repeat in range(repeats):
        shuffler = random.Random(f"{seed}/{repeat}")
        order = shuffler.sample(range(len(asked)), len(asked))

        def reseeded(leaf: Judge, repeat: int = repeat) -> Judge:  # the same seeds would draw the same replies
            sampling, samples = leaf.sampling, leaf.voting.samples if leaf.voting else 1
            seed = None if sampling.seed is None else sampling.seed + repeat * samples
            return leaf.model_copy(update={"sampling": sampling.model_copy(update={"seed": seed})})

        variant = judge.map_leaves(reseeded)

        async def ask(number: int, variant: Judge = variant, shuffler: random.Random = shuffler) -> None:
            """Score the completions of a group in another order, by its criteria in another order."""
            rubric, prompt, completions = asked[number]
            places = shuffler.sample(range(len(completions)), len(completions))
            criteria = tuple(shuffler.sample(rubric.criteria, len(rubric.criteria)))
            reordered = rubric.model_copy(update={"criteria": criteria})
            shown = [completions[place] for place in places]
            by_place = await score_group(engine, variant, reordered, prompt, shown)
            for place, verdicts in zip(places, by_place, strict=True):
                scored.append((starts[number] + place, rubric, verdicts))
                on_progress(len(scored), starts[-1] * repeats, "")

        await asyncio.gather(*map(ask, order))
    return Repeatability(
        fingerprint=asking_fingerprint(judge),
        source=source,
        measured_at=datetime.now(UTC),
        repeats=repeats,
        completions=starts[-1],
        **_deviations(scored, seed),
    )


def _deviations(scored: Iterable[_Scored], seed: int) -> dict[str, Any]:
    """Return the deviations of values by kind of scale and of rewards, and what had no value."""
    rewards: _Values = defaultdict(list)
    unvetoed = set[tuple[int, str]]()
    by_kind = defaultdict[str, _Values](lambda: defaultdict(list))
    unscored = Counter[str]()
    for completion, rubric, verdicts in scored:
        reward = reward_or_null(rubric, verdicts)
        if reward.value is not None:
            rewards[completion, ""].append(reward.value)
            if reward.vetoed_by is None:
                unvetoed.add((completion, ""))
        for verdict in verdicts:
            criterion = rubric.by_key[verdict.criterion]
            if criterion.check is not None:
                continue
            if verdict.value is None:
                unscored[str(verdict.reason or verdict.outcome)] += 1
            else:
                by_kind[criterion.scale.kind][completion, criterion.key].append(verdict.value)
    deviations = {}
    for name, values in [*sorted(by_kind.items()), ("", {key: rewards[key] for key in unvetoed})]:
        keys = sorted(values)
        places = [completion for completion, _ in keys]
        deviations[name] = pooled_deviation([values[key] for key in keys], places, seed=seed)
    counts = {"unscored": dict(unscored.most_common()), "vetoed": len(rewards) - len(unvetoed)}
    return {"reward": deviations.pop(""), "criteria": deviations, **counts}


PROMPT = Prompt.of("Say hello.")
COMPLETION = Completion(text="Hello! Nice to meet you.")
OTHER = Completion(text="Boil the eggs for six minutes.")
"""What a comparative judge is shown beside it; each criterion fits one of the two."""

RUBRIC = Rubric(
    criteria=(
        Criterion(key="met", text="The answer greets the user."),
        Criterion(key="not_met", text="The answer says how long to boil eggs."),
    )
)

MIN_DIFFERENCE = 0.5  # difference of the two values, each from 0 to 1, from which a judge distinguishes the criteria


def pooled_deviation(values: Sequence[Sequence[float]], clusters: Sequence[int], *, seed: int = 0) -> Deviation:
    """Return the pooled standard deviation within questions: √(Σ (x - mean of its question)² / Σ (repeats - 1)).

    ``values`` has one value of each question for each repeat that was scored; questions with fewer than two are left
    out. ``clusters`` is the completion of each question; the bootstrap draws whole completions.
    """
    repeated = [(np.asarray(x, float), cluster) for x, cluster in zip(values, clusters, strict=True) if len(x) > 1]
    if not repeated:
        return Deviation(n=0)
    squares = np.array([np.square(x - x.mean()).sum() for x, _ in repeated])
    freedom = np.array([len(x) - 1 for x, _ in repeated])
    found = bootstrap(
        lambda rows: {"value": float(np.sqrt(squares[rows].sum() / freedom[rows].sum()))},
        np.array([cluster for _, cluster in repeated]),
        resamples=1000,
        seed=seed,
    )["value"]
    return Deviation(n=len(repeated), value=found.value, low=found.low, high=found.high)
