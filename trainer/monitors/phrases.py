"""Phrases: refusals, stock phrases, praise of itself, and runs of words that answers to different prompts share.

The lists are English. A phrase in no list shows in `common_phrase`, in any language.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain

from trainer.monitors.monitor import Observed, groups_of, runs_of, words

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
