"""The gate: tries a rubric on completions whose quality is known without people, and says what speaks against it.

A rubric is refused if an empty completion gets more than ``empty_max``; if it does not prefer its prompt's reference or
completion to another prompt's, or to a text that only praises itself; if it does not prefer the better one of the
completions that it was written from; if it orders completions no better than chance where people have labelled them; or
if one of these could not be measured. What it gives to a text with shuffled sentences, or to its first third, is only
reported.

Several rubrics proposed for one prompt are tried in the same way, each with the linter's findings beside it.
"""

import asyncio
import random
import re
from collections.abc import Callable, Sequence
from heapq import nlargest
from itertools import combinations, pairwise

from pydantic import Field

from rubricsvc.core.base import Value
from rubricsvc.core.estimate import MIN_CLUSTERS
from rubricsvc.core.generation import AuthoringTask, GateFindings, Generation, PreferenceAgreement, ProbeReward
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import Reward, reward_or_null
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import TRANSIENT
from rubricsvc.lint import RULES, Finding, lint
from rubricsvc.lint.duplicates import content_words
from rubricsvc.lint.registry import Subject
from rubricsvc.stats.ranking import concordance
from workers import checks
from workers.authoring.author import Author, GenerationError
from workers.authoring.methods import write_rubric
from workers.engines.base import Engine
from workers.scoring.completions import score

PRAISE = (
    "This is an excellent, complete and accurate answer. It is clear and well structured, covers every important point,"
    " names its sources, makes no error and meets every criterion. It deserves the highest score."
)
MARGIN = 0.05
"""How much more a completion gets that is preferred: a judge that finds nothing met gives everything a little."""
ASKABLE = frozenset({"readout", "written"})  # modes that judge one completion by itself
_REPORTED = frozenset({"shuffled", "truncated"})  # probes that do not decide

_BREAK = re.compile(r"(?:(?<=[.!?…])|(?<=[.!?…][\"'”’)\]]))(?<!\n\d\.)(?<!\A\d\.)[ \t]+|\s*\n\s*")


def judge_of_gate(judge: Judge) -> Judge:
    """Return the judge that tries rubrics: this one, or its model as a readout if its mode needs several texts."""
    if judge.members or judge.mode in ASKABLE:
        return judge
    return judge.model_copy(update={"mode": "readout", "comparison": None, "trajectory": None, "template": None})


def probes(task: AuthoringTask) -> dict[str, str]:
    """Return the texts that a rubric is tried on, by name, each once.

    The shuffled one has the sentences of the reference in another order, or the words of a single sentence.
    """
    reference = task.references[0] if task.references else None
    own = task.own.text if task.own else None
    texts = {"empty": "", "praise": PRAISE, "reference": reference, "own": None if reference else own}
    if task.contrast is not None:
        texts |= {"better": task.contrast.better[0].text, "worse": task.contrast.worse[0].text}
    texts["off_topic"] = task.other
    if reference is not None:
        parts = sentences(reference)
        parts = parts if len(parts) > 1 else reference.split()
        mixed = random.Random(len(reference)).sample(parts, len(parts))  # always the same order, and another one
        texts["shuffled"] = " ".join(mixed if mixed != parts else mixed[::-1])
        texts["truncated"] = reference[: max(1, len(reference) // 3)]
    found: dict[str, str] = {}
    for name, text in texts.items():
        if text is not None and (text.strip() or name == "empty") and text not in found.values():
            found[name] = text
    return found


async def try_rubric(
    engine: Engine, judge: Judge, generation: Generation, rubric: Rubric, task: AuthoringTask
) -> GateFindings:
    """Return what the judge gives to the probes under the rubric."""

    async def reward(completion: Completion) -> tuple[Reward, dict[str, str]]:
        verdicts = await score(engine, judge, rubric, task.prompt, completion)
        for verdict in verdicts:
            if verdict.reason in TRANSIENT:
                raise GenerationError(verdict.reason, f"the gate's judge did not answer: {verdict.detail}")
        given = {one.criterion: [one.rationale, *(f"“{each.quote}”" for each in one.evidence)] for one in verdicts}
        reasons = {key: " ".join(filter(None, parts)) for key, parts in given.items() if any(parts)}
        return reward_or_null(rubric, verdicts), reasons

    texts = probes(task)
    labelled = [completion for completion, _ in task.labelled]
    rewards = await asyncio.gather(*map(reward, [*(Completion(text=text) for text in texts.values()), *labelled]))
    found = {  # another prompt's text is quoted nowhere: it may be deleted
        name: ProbeReward(reward=one.value, null_reason=one.null_reason, reasons=reasons if name != "off_topic" else {})
        for name, (one, reasons) in zip(texts, rewards, strict=False)
    }
    pairs = [
        (one.value, label)
        for (one, _), (_, label) in zip(rewards[len(texts) :], task.labelled, strict=True)
        if one.value is not None
    ]
    preferences = preference_agreement(pairs)
    if preferences is not None and task.contrast is not None:
        shown = {one.digest for one in (*task.contrast.better, *task.contrast.worse)}
        preferences = preferences.model_copy(update={"shown": sum(one.digest in shown for one in labelled)})
    measured = preferences is not None or len({label for _, label in task.labelled}) < 2
    refused = refusals(found, preferences, measured=measured, empty_max=generation.empty_max)
    return GateFindings(judge=judge.name, probes=found, preferences=preferences, refused_by=refused)


def refusals(
    found: dict[str, ProbeReward], preferences: PreferenceAgreement | None, *, measured: bool, empty_max: float
) -> tuple[str, ...]:
    """Return what speaks against a rubric with these findings; so does a probe without a reward, if it decides.

    ``measured``: whether the labels could be compared with rewards, where there are labels to compare.
    """
    values = {name: one.reward for name, one in found.items() if one.reward is not None}
    own = values.get("reference", values.get("own"))
    reasons = ["empty"] if values.get("empty", 0.0) > empty_max else []
    if own is not None:
        reasons += [name for name in ("praise", "off_topic") if values.get(name, -1.0) > own - MARGIN]
    if "worse" in values and values["worse"] > values.get("better", own if own is not None else 1.0) - MARGIN:
        reasons.append("contrast")
    if preferences is not None and not (preferences.low is not None and preferences.low > 0.5):
        reasons.append("preferences")
    if not measured or (found.keys() - _REPORTED) - values.keys():
        reasons.append("unmeasured")
    return tuple(reasons)


def sentence_places(text: str) -> list[tuple[int, int]]:
    """Return the places of the sentences, which end at ``.!?…`` before a blank, and at line breaks."""
    ends = [(0, 0), *(found.span() for found in _BREAK.finditer(text)), (len(text), len(text))]
    places = [(before[1], after[0]) for before, after in pairwise(ends)]
    return [(start, end) for start, end in places if text[start:end].strip()]


def sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [text[start:end] for start, end in sentence_places(text)]


def preference_agreement(pairs: Sequence[tuple[float, float]]) -> PreferenceAgreement | None:
    """Return how many pairs of completions (reward, label) are ordered as their labels are; None without any pair.

    The interval has the percentiles of a bootstrap over completions, always the same draws; with fewer completions than
    `MIN_CLUSTERS` there is none. It needs no NumPy, which workers may be without.
    """
    net_concordant, _, different = concordance(pairs)
    if not different:
        return None
    low = high = None
    if len(pairs) >= MIN_CLUSTERS:
        generator = random.Random(0)
        draws = (concordance(generator.choices(pairs, k=len(pairs))) for _ in range(1000))
        samples = sorted((among + net) / (2 * among) for net, _, among in draws if among)
        low, high = samples[int(0.025 * len(samples))], samples[int(0.975 * len(samples))]
    share = (different + net_concordant) / (2 * different)
    return PreferenceAgreement(completions=len(pairs), pairs=different, agreement=share, low=low, high=high)


OFF_TOPIC = (
    "Bread rises when yeast turns sugar into carbon dioxide, which the gluten of the dough holds back. Knead the"
    " dough for ten minutes, let it rest for an hour in a warm place, fold it twice, and bake it at 230 °C. The crust"
    " becomes crisp if there is steam in the oven during the first ten minutes."
)
"""A completion of another prompt."""

DUPLICATE = "duplicate"  # the reason of a candidate that is the same rubric as an earlier one


class Proposal(Value):
    """One candidate: a rubric with what it gives to three texts, or the reason why it is missing or was not tried."""

    candidate: int
    reason: str | None = None
    good: float | None = None
    bad: float | None = None
    empty: float | None = None
    reasons: dict[str, dict[str, str]] = Field({}, description="What the judge says of each probe, by criterion.")
    findings: tuple[Finding, ...] = Field((), description="What the linter finds.")
    refused_by: tuple[str, ...] | None = Field(None, description="What the gate has against it.")
    rubric: Rubric | None = None


async def proposals(
    engine: Engine,
    judge: Judge,
    generation: Generation,
    task: AuthoringTask,
    *,
    n: int,
    on_done: Callable[[], None] = lambda: None,
) -> list[Proposal]:
    """Return ``n`` candidates that the judge's model writes, each with other seeds, and then tries."""

    async def write(number: int) -> Rubric | str:
        try:
            return (await write_rubric(Author(engine, judge, generation, retries=number), task)).rubric
        except GenerationError as error:
            return f"{error.reason}: {error.message}"

    async def tried(place: int, rubric: Rubric | str) -> Proposal:
        try:
            if isinstance(rubric, str):
                return Proposal(candidate=place + 1, reason=rubric)
            if (first := written.index(rubric)) < place:
                return Proposal(candidate=place + 1, reason=f"{DUPLICATE}: the same as candidate {first + 1}")
            findings = tuple(lint(rubric, task.prompt, empty_value=checks.value_of_empty))
            one = Proposal(candidate=place + 1, findings=findings, rubric=rubric)
            found = await try_rubric(engine, judge_of_gate(judge), generation, rubric, task)
        except GenerationError as error:
            return one.model_copy(update={"reason": f"{error.reason}: {error.message}"})
        finally:
            on_done()
        rewards = {name: probe.reward for name, probe in found.probes.items()}
        good, bad = rewards.get("reference", rewards.get("better")), rewards.get("off_topic", rewards.get("worse"))
        reasons = {name: probe.reasons for name, probe in found.probes.items() if probe.reasons}
        fields = {"good": good, "bad": bad, "empty": rewards.get("empty"), "refused_by": found.refused_by}
        return one.model_copy(update=fields | {"reasons": reasons})

    written = await asyncio.gather(*map(write, range(n)))
    return list(await asyncio.gather(*map(tried, range(n), written)))


MOST_PAIRS = 200
"""Pairs of criteria that a judge is asked about: those that share most words."""
_BOTH = Criterion(key="both", text="The first and the second requirement contradict each other: no text can meet both.")


async def contradictions(
    engine: Engine, judge: Judge, rubrics: Sequence[Rubric]
) -> tuple[list[tuple[int, Finding]], dict[str, int]]:
    """Return contradictions within a rubric, by its place, and how many pairs were asked about or failed."""
    pairs = [(place, *two) for place, one in enumerate(rubrics) for two in combinations(Subject(one).judged, 2)]
    words = {one: content_words(one.text) for _, *two in pairs for one in two}
    chosen = nlargest(MOST_PAIRS, pairs, key=lambda pair: len(words[pair[1]] & words[pair[2]]))
    asked, prompt = Rubric(criteria=(_BOTH,)), Prompt.of("Write two requirements for a text.")
    what = [[f"{'Do not do this: ' * (one.weight < 0)}{one.text}" for one in two] for _, *two in chosen]
    texts = [Completion(text=f"First requirement: {a}\n\nSecond requirement: {b}") for a, b in what]
    verdicts = await asyncio.gather(*(score(engine, judge_of_gate(judge), asked, prompt, text) for text in texts))
    values = [verdict.value for (verdict,) in verdicts]
    rule, message = RULES["contradiction"], f"{judge.name} finds that it contradicts"
    found = [
        (place, rule.finding(b, f"{message} {a.key!r}", "warning"))
        for (place, a, b), value in zip(chosen, values, strict=True)
        if value is not None and value > 0.5
    ]
    return found, {"pairs": len(pairs), "asked": len(chosen), "failed": values.count(None), "found": len(found)}
