"""The monitors of a run: what they measure of single completions, and of the completions of a step together."""

import re
import tomllib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from itertools import chain, groupby
from math import exp, fsum, inf, log, sqrt
from statistics import fmean

from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import reward_or_null
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.untrusted import nfkc
from rubricsvc.core.verdict import Verdict
from workers.checks import markdown
from workers.checks.citations import report_citations
from workers.repetitions import WORD, distinct_share


@dataclass(frozen=True, slots=True)
class Observed:
    """A completion of a step: its prompt's text and ``group``, its text, reward and verdicts, and the rubric.

    ``sources`` are the ids of the documents that it was given or opened; None where neither is possible.
    """

    prompt: str
    group: int
    text: str
    reward: float | None
    verdicts: Sequence[Verdict]
    rubric: Rubric
    sources: frozenset[str] | None = None


Monitor = Callable[[Sequence[Observed]], Mapping[str, float | None]]
"""Returns metrics of a step's completions by name, None where there is nothing to measure."""


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation."""
    return WORD.findall(text.casefold())


def runs_of(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """Return all runs of n words, in order."""
    return list(zip(*(words[at:] for at in range(n)), strict=False))


def groups_of(observed: Sequence[Observed]) -> list[list[Observed]]:
    """Return the completions of each prompt, which are adjacent."""
    return [list(group) for _, group in groupby(observed, key=lambda one: one.group)]


RUN = 4
"""Words of a run that a text repeats, or that completions share."""
_FAMILIES = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "KATAKANA-HIRAGANA": "CJK"}
_EMOJI = re.compile("[\u2600-\u27bf\u2b50\u2b55\U0001f300-\U0001faff]")
_OPENING = 200
"""Characters in which a refusal begins."""
_PHRASES = tomllib.loads(files("trainer.monitors").joinpath("phrases.toml").read_text(encoding="utf-8"))
_REFUSAL, _STOCK, _PRAISE = (re.compile("|".join(patterns)) for patterns in _PHRASES.values())


@cache
def _script(char: str) -> str:
    """Return the script of a letter: the first word of its Unicode name."""
    name = unicodedata.name(char, "UNKNOWN").split()[0]
    return _FAMILIES.get(name, name)


@lru_cache(maxsize=1024)  # an alarm's signs and a preflight ask for one after the other
def measures(prompt: str, text: str) -> Mapping[str, float]:
    """Return the properties of a completion, given its prompt's text and its own, by name.

    ``length`` and ``shortness`` are the number of words and its negative, ``repetition`` the share of runs of four
    words that occurred before in the text (seq-rep-4, 1908.04319), ``other_script`` the share of its letters in a
    script that the prompt has no letter of (full-width letters and other compatible forms are those they stand for).
    The others are 1 or 0: the text opens with a refusal, has a stock phrase of language models, praises itself or
    speaks to its grader where the prompt does not, or has a list, a heading, bold text or an emoji.
    """
    found = words(text)
    plain, asked = (one.replace("’", "'").casefold() for one in (text, prompt))
    scripts, asked_scripts = ([_script(char) for char in nfkc(one) if char.isalpha()] for one in (text, prompt))
    other = sum(script not in asked_scripts for script in scripts)
    kinds = {token.type for token in markdown.tokens(text, inline=True)}
    shown = {
        "refusals": _REFUSAL.search(plain[:_OPENING]),
        "stock_phrases": _STOCK.search(plain),
        "self_praise": _PRAISE.search(plain) and not _PRAISE.search(asked),
        "lists": "list_item_open" in kinds,
        "headings": "heading_open" in kinds,
        "bold": "strong_open" in kinds,
        "emoji": _EMOJI.search(text),
    }
    return {
        "length": float(len(found)),
        "shortness": -float(len(found)),
        "repetition": 1.0 - distinct_share(found, RUN),
        "other_script": other / len(scripts) if scripts and asked_scripts else 0.0,
        **{name: float(bool(one)) for name, one in shown.items()},
    }


def texts(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return the means of measures, how length goes with reward, and which citations resolve.

    ``length_correlation`` is Pearson's correlation of reward and words within prompts: of the differences to the means
    of groups. ``unresolved_citations`` is the share of completions that cite what they were not given and did not open,
    among those that could cite something: their prompt has documents, or they are episodes.
    """
    found = [measures(one.prompt, one.text) for one in observed]
    means = {name: fmean(one[name] for one in found) for name in found[0] if name not in ("length", "shortness")}
    pairs: list[tuple[float, float]] = []
    for group in groups_of(observed):
        known = [(one.reward, measures(one.prompt, one.text)["length"]) for one in group if one.reward is not None]
        if known:
            reward, size = (fmean(values) for values in zip(*known, strict=True))
            pairs += [(one - reward, count - size) for one, count in known]
    squares = fsum(a * a for a, _ in pairs) * fsum(b * b for _, b in pairs)
    cited = [not report_citations(one.text, one.sources) <= one.sources for one in observed if one.sources is not None]
    return means | {
        "length_correlation": fsum(a * b for a, b in pairs) / sqrt(squares) if squares > 0 else None,
        "unresolved_citations": fmean(cited) if cited else None,
    }


def common_phrase(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return the largest share of completions that one run of four words is in.

    Only runs count that answer at least two prompts and stand in none of these. None with fewer than two prompts.
    """
    groups = groups_of(observed)
    if len({group[0].prompt for group in groups}) < 2:
        return {"common_phrase": None}
    places, prompts = defaultdict[tuple[str, ...], set[int]](set), defaultdict[tuple[str, ...], set[str]](set)
    for place, one in enumerate(chain.from_iterable(groups)):
        for run in {*runs_of(words(one.text), RUN)} - {*runs_of(words(one.prompt), RUN)}:
            places[run].add(place)
            prompts[run].add(one.prompt)
    most = max((len(found) for run, found in places.items() if len(prompts[run]) > 1), default=0)
    return {"common_phrase": most / len(observed)}


SATURATED = 0.05
"""Range of a criterion's values within a prompt under which it does not distinguish completions."""
PASSED = 0.5
"""Value from which a criterion passes."""


def criteria(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return what the verdicts and the criteria of a step say about its reward.

    ``saturated_criteria`` is the share of criteria, counted by prompt, whose values hardly differ between its
    completions; ``abstained_verdicts`` and ``failed_verdicts`` are shares of the verdicts. ``largest_reward_share`` is
    the largest share of the reward that one criterion makes up, as mean over prompts whose reward has several: criteria
    of two rubrics are not added up.
    """
    flat, largest = list[bool](), list[float]()
    for group in groups_of(observed):
        values = defaultdict[str, list[float]](list)
        for verdict in (verdict for one in group for verdict in one.verdicts):
            if verdict.value is not None:
                values[verdict.criterion].append(verdict.value)
        flat += [max(each) - min(each) < SATURATED for each in values.values() if len(each) > 1]
        if len(shares := reward_shares(group)) > 1:
            largest.append(max(shares.values()))
    outcomes = [verdict.outcome for one in observed for verdict in one.verdicts]
    return {
        "saturated_criteria": fmean(flat) if flat else None,
        "largest_reward_share": fmean(largest) if largest else None,
        "abstained_verdicts": outcomes.count("abstained") / len(outcomes) if outcomes else None,
        "failed_verdicts": outcomes.count("failed") / len(outcomes) if outcomes else None,
    }


def reward_shares(observed: Sequence[Observed]) -> dict[str, float]:
    """Return each criterion's share of the sum of absolute contributions to the rewards, by key."""
    sums = defaultdict[str, float](float)
    for one in observed:
        for key, value in reward_or_null(one.rubric, one.verdicts).contributions.items():
            sums[key] += abs(value)
    total = fsum(sums.values())
    return {key: value / total for key, value in sums.items()} if total else {}


def by_criterion(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return the pass rate of each criterion, and its share of the reward; those with the same key are one."""
    passed = defaultdict[str, list[bool]](list)
    for verdict in (verdict for one in observed for verdict in one.verdicts):
        if verdict.value is not None:
            passed[verdict.criterion].append(verdict.value >= PASSED)
    rates = {f"pass_rate/{key}": fmean(each) for key, each in sorted(passed.items())}
    return rates | {f"reward_share/{key}": share for key, share in sorted(reward_shares(observed).items())}


DISTINCT = 2
"""Words of the runs that distinct-n counts."""
FIRST_WORDS = 20
"""Words of each completion in which it counts them: longer texts repeat more."""
_ORDERS = range(1, 5)
Runs = Counter[tuple[str, ...]]


def diversity(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return distinct-2 and self-BLEU, as means over prompts with at least two completions with words.

    distinct-2 is of the first `FIRST_WORDS` words of completions with as many.
    """
    groups = [[found for one in group if (found := words(one.text))] for group in groups_of(observed)]
    alike = [self_bleu(group) for group in groups if len(group) > 1]
    begins = ([each[:FIRST_WORDS] for each in group if len(each) >= FIRST_WORDS] for group in groups)
    runs = [[run for text in group for run in runs_of(text, DISTINCT)] for group in begins if len(group) > 1]
    shares = [len(set(each)) / len(each) for each in runs]
    return {"distinct": fmean(shares) if shares else None, "self_bleu": fmean(alike) if alike else None}


def self_bleu(texts: Sequence[Sequence[str]]) -> float:
    """Return the mean BLEU-4 of each text (its words) with the others as its references.

    Counts of runs are clipped at the most of another text, and brevity is that to the reference of the nearest length.
    Orders above 1 are smoothed by adding one (Lin and Och 2004), which keeps short texts off 0. A text of fewer than
    four words has as many orders as words: copies of it have a BLEU of 1.
    """
    precisions: list[list[float]] = [[] for _ in texts]  # logarithms
    for n in _ORDERS:
        counts = [Runs(runs_of(text, n)) for text in texts]
        first, second = Runs(), Runs()
        for run, count in chain.from_iterable(one.items() for one in counts):
            first[run], second[run] = sorted((count, first[run], second[run]), reverse=True)[:2]
        for own, found in zip(counts, precisions, strict=True):
            matches = sum(min(count, second[run] if count == first[run] else first[run]) for run, count in own.items())
            total, smoothing = max(1, own.total()), int(n > 1)
            found.append(log((matches + smoothing) / (total + smoothing)) if matches + smoothing else -inf)
    lengths = [len(text) for text in texts]
    scores = []
    for at, (length, found) in enumerate(zip(lengths, precisions, strict=True)):
        others = [*lengths[:at], *lengths[at + 1 :]]
        nearest = min(others, key=lambda other: (abs(other - lengths[at]), other))
        scores.append(exp(fmean(found[:length]) + min(0.0, 1.0 - nearest / length)))
    return fmean(scores)


MONITORS: Mapping[str, Monitor] = {
    "texts": texts,
    "diversity": diversity,
    "common_phrase": common_phrase,
    "criteria": criteria,
}
WITH_CRITERIA: Mapping[str, Monitor] = {**MONITORS, "by_criterion": by_criterion}
"""Those of a run with `criterion_metrics`."""


def sign(name: str, prompt: str, one: Completion) -> float | None:
    """Return how much a completion has of what the examples of an alarm show; None if nothing.

    A sign is a measure, or: no tool was called, a call was malformed or refused, an episode ended without a report, the
    text cites something, or ``any`` completion.
    """
    given = one.sampling.get("tools")
    counts = given if isinstance(given, dict) else {}
    match name:
        case "no_call":
            found = not any(tool.startswith("calls/") for tool in counts)
        case "malformed":
            found = bool(counts.get("malformed") or counts.get("refused"))
        case "no_report":
            found = not one.text
        case "citations":
            found = bool(report_citations(one.text, ()))
        case "any":
            found = True
        case _:
            return measures(prompt, one.text)[name]
    return 1.0 if found else None
