"""A scripted policy of `research`: it makes the demonstrations that a small policy learns its tools from.

It searches, opens what it found, and reports a sentence of each document with its citation. Where a prompt names the
pages that answer it (`rubricsvc prompts synthesize`), it searches for their titles and opens them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rubricsvc.core.prompt import Completion, Prompt
from trainer.environments.episodes import EpisodeLimits, begin
from trainer.environments.research import Research
from trainer.environments.tool_calls import call_text

NAME = "script"
"""Policy of the completions."""
MAX_WORDS = 25
"""Words of a sentence of the report."""
MAX_PAGES = 3
MIN_CHARS = 3
_HIT = re.compile(r"^\[(.+?)\] ", re.MULTILINE)
_HEADING = re.compile(r"^.*\n([*=~^#-])\1{2,}[ \t]*$", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*“])")


def demonstrate(environment: Research, prompt: Prompt, limits: EpisodeLimits) -> Completion | None:
    """Return a trajectory for a prompt; None where the script does not reach a report."""
    episode = begin(environment, prompt, limits)
    cited: list[str] = []
    for query, wanted in _plan(environment, prompt):
        hits = _HIT.findall(_answer(episode.turn(call_text("search", query=query))))
        found = next((id_ for id_ in hits if not wanted or id_ in wanted), None)
        if found is None or episode.done:
            return None
        text = _answer(episode.turn(call_text("open", id=found)))
        if episode.done:
            return None
        cited.append(f"{_sentence(text, query)} [{found}].")
    episode.turn(call_text("finish", report=" ".join(cited)))
    if not episode.report:
        return None
    return Completion(
        text=episode.report, messages=tuple(episode.messages), policy=NAME, sampling={"tools": dict(episode.counts)}
    )


def _plan(environment: Research, prompt: Prompt) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield queries, each with the documents of which one must be found; none where any will do."""
    pages = (prompt.item or {}).get("pages")
    if not isinstance(pages, list):
        yield _keywords(prompt.text), ()
        return
    for alternatives in pages[:MAX_PAGES]:
        assert isinstance(alternatives, list)  # noqa: S101 - of `collections.tasks`
        ids = [str(one) for one in alternatives]
        yield environment.collection.open(ids[0]).title, ids


def _answer(messages: Sequence[object]) -> str:
    return "\n".join(str(getattr(message, "content", "")) for message in messages)


def _keywords(text: str) -> str:
    """Return the longer words of a text."""
    return " ".join(dict.fromkeys(word for word in re.findall(r"[\w.]+", text) if len(word) > MIN_CHARS))[:200]


def _sentence(text: str, query: str) -> str:
    """Return the sentence that shares most words with the query, cut, without its full stop."""
    words, prose = set(query.casefold().split()), _HEADING.sub("", text)
    sentences = [" ".join(one.split()) for one in _SENTENCE.split(prose) if len(one.split()) >= 4] or [text]
    best = max(sentences, key=lambda one: len(words & set(one.casefold().split())))
    return " ".join(best.split()[:MAX_WORDS]).rstrip(".:;,")
