"""What monitors measure of single completions, and how texts are split into words."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import chain, groupby
from math import fsum, sqrt
from statistics import fmean

from rubricsvc.core.prompt import Completion
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.trajectory import distinct_share
from rubricsvc.core.verdict import Verdict
from rubricsvc.services.runs import Sign
from workers.checks import markdown
from workers.checks.markdown import report_citations

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")
"""A word, or one character of a script that is written without spaces (kana and Han)."""


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
Measure = Callable[[str, str], float]
"""Returns a property of one completion, given its prompt and its text."""


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation."""
    return _WORD.findall(text.casefold())


def runs_of(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """Return all runs of n words, in order."""
    return list(zip(*(words[at:] for at in range(n)), strict=False))


def groups_of(observed: Sequence[Observed]) -> list[list[Observed]]:
    """Return the completions of each prompt, which are adjacent."""
    return [list(group) for _, group in groupby(observed, key=lambda one: one.group)]


def mean_of(name: str, measure: Measure) -> Monitor:
    """Return the monitor of the mean of a measure over a step's completions."""
    return lambda observed: {name: fmean(measure(one.prompt, one.text) for one in observed)}


def length(prompt: str, text: str) -> float:
    """Return the number of words."""
    return float(len(words(text)))


def shortness(prompt: str, text: str) -> float:
    """Return the number of words, negated."""
    return -length(prompt, text)


def length_correlation(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return Pearson's correlation of reward and words within prompts: of the differences to the means of groups."""
    pairs: list[tuple[float, float]] = []
    for group in groups_of(observed):
        known = [(one.reward, length(one.prompt, one.text)) for one in group if one.reward is not None]
        if known:
            reward, size = (fmean(values) for values in zip(*known, strict=True))
            pairs += [(one - reward, count - size) for one, count in known]
    squares = fsum(a * a for a, _ in pairs) * fsum(b * b for _, b in pairs)
    return {"length_correlation": fsum(a * b for a, b in pairs) / sqrt(squares) if squares > 0 else None}


RUN = 4
"""Words of a run."""


def repetition(prompt: str, text: str) -> float:
    """Return the share of runs of four words that occurred before in the text (seq-rep-4, 1908.04319)."""
    return 1.0 - distinct_share(words(text), RUN)


_FAMILIES = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "KATAKANA-HIRAGANA": "CJK"}


def other_script(prompt: str, text: str) -> float:
    """Return the share of a text's letters in a script that its prompt has no letter of; 0 without letters."""
    scripts = set(_scripts(prompt))
    letters = _scripts(text)
    return sum(script not in scripts for script in letters) / len(letters) if letters and scripts else 0.0


def _scripts(text: str) -> list[str]:
    """Return the script of each letter; full-width letters and other compatible forms are those they stand for."""
    return [_script(char) for char in unicodedata.normalize("NFKC", text) if char.isalpha()]


@cache
def _script(char: str) -> str:
    """Return the script of a letter: the first word of its Unicode name."""
    name = unicodedata.name(char, "UNKNOWN").split()[0]
    return _FAMILIES.get(name, name)


_EMOJI = re.compile("[\u2600-\u27bf\u2b50\u2b55\U0001f300-\U0001faff]")


def emoji(prompt: str, text: str) -> float:
    """Return whether a text has an emoji."""
    return float(_EMOJI.search(text) is not None)


def _has(kind: str, prompt: str, text: str) -> float:
    return float(kind in _kinds(text))


@lru_cache(maxsize=1024)  # three measures read the same completions
def _kinds(text: str) -> frozenset[str]:
    """Return the types of a text's Markdown tokens."""
    inline = (token.type for token in markdown.inline_tokens(text))
    return frozenset((*(token.type for token in markdown.tokens(text)), *inline))


lists: Measure = partial(_has, "list_item_open")
headings: Measure = partial(_has, "heading_open")
bold: Measure = partial(_has, "strong_open")


COMMON_RUN = 4
"""Words of a run that completions share."""
_OPENING = 200
"""Characters in which a refusal begins."""
_REFUSAL = re.compile(
    r"\bas an? (?:ai|artificial intelligence|(?:large )?language model)\b"
    r"|\b(?:i|we)(?: cannot| can not| can't| could not| couldn't| won't| will not| must decline to"
    r"|(?: am|'m| are|'re) (?:unable|not able) to) (?:\w+ )?"
    r"(?:help|assist|comply|fulfil|fulfill|provide|answer|discuss|support|engage|do that|create|generate|write)\b"
)
_STOCK = re.compile(
    r"\bi hope (?:this|that) helps\b|\blet me know if\b|\bfeel free to\b|\bin conclusion\b|\bgreat question\b"
    r"|\bit(?:'s| is) (?:important|worth) (?:to note|noting)\b|\bin today's (?:\w+ )?world\b|\b(?:rich )?tapestry\b"
    r"|\bdelv(?:e|es|ing)\b|\bunlock(?:s|ing)?\b|\bempower|^\s*(?:certainly|absolutely|of course|sure)[!,]"
)
_PRAISE = re.compile(
    r"\b(?:this|my|the above) (?:answer|response|report|essay|explanation|summary|reply|solution)\b[^.!?\n]{0,60}"
    r"\b(?:comprehensive|thorough|excellent|perfect|complete|accurate|correct|high[- ]quality|outstanding|exceptional"
    r"|well[- ](?:written|structured|researched)|meets|satisfy|satisfies|fulfils|fulfills|best)\b"
    r"|\bfull (?:marks|score|points|credit)\b|\b(?:all|every) (?:of )?(?:the )?criteri(?:a|on)\b"
    r"|\b(?:grader|evaluator)\b"
)


def refusals(prompt: str, text: str) -> float:
    """Return whether a text opens with a refusal."""
    return float(_REFUSAL.search(_plain(text[:_OPENING])) is not None)


def stock_phrases(prompt: str, text: str) -> float:
    """Return whether a text has a stock phrase of language models."""
    return float(_STOCK.search(_plain(text)) is not None)


def self_praise(prompt: str, text: str) -> float:
    """Return whether a text praises itself or speaks to its grader, where the prompt does not."""
    return float(_PRAISE.search(_plain(text)) is not None and _PRAISE.search(_plain(prompt)) is None)


def common_phrase(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return the largest share of completions that one run of four words is in.

    Only runs count that answer at least two prompts and stand in none of these. None with fewer than two prompts.
    """
    groups = groups_of(observed)
    if len({group[0].prompt for group in groups}) < 2:
        return {"common_phrase": None}
    places, prompts = defaultdict[tuple[str, ...], set[int]](set), defaultdict[tuple[str, ...], set[str]](set)
    for place, one in enumerate(chain.from_iterable(groups)):
        for run in {*runs_of(words(one.text), COMMON_RUN)} - {*runs_of(words(one.prompt), COMMON_RUN)}:
            places[run].add(place)
            prompts[run].add(one.prompt)
    most = max((len(found) for run, found in places.items() if len(prompts[run]) > 1), default=0)
    return {"common_phrase": most / len(observed)}


def _plain(text: str) -> str:
    return text.replace("’", "'").casefold()


MEANS: Mapping[str, Measure] = {
    "repetition": repetition,
    "other_script": other_script,
    "refusals": refusals,
    "stock_phrases": stock_phrases,
    "self_praise": self_praise,
    "lists": lists,
    "headings": headings,
    "bold": bold,
    "emoji": emoji,
}
"""Their means are metrics of a step."""
MEASURES: Mapping[str, Measure] = {**MEANS, "length": length, "shortness": shortness}
"""What the examples of an alarm have most of, by the alarm's sign."""


def _counts(one: Completion) -> Mapping[str, object]:
    counts = one.sampling.get("tools")
    return counts if isinstance(counts, dict) else {}


def _sign(found: bool) -> float | None:
    return 1.0 if found else None


def _measured(measure: Measure, prompt: str, one: Completion) -> float:
    return measure(prompt, one.text)


SIGNS: Mapping[str, Sign] = {
    "no_call": lambda _, one: _sign(not any(name.startswith("calls/") for name in _counts(one))),
    "malformed": lambda _, one: _sign(bool(_counts(one).get("malformed") or _counts(one).get("refused"))),
    "no_report": lambda _, one: _sign(not one.text),
    "citations": lambda _, one: _sign(bool(report_citations(one.text, ()))),
    **{name: partial(_measured, measure) for name, measure in MEASURES.items()},
}
"""No tool was called, a call was malformed or refused, an episode ended without a report, the text cites something; or
the measure that the examples have most of.
"""
