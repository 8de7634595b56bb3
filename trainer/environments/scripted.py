"""A scripted policy of `research`: it makes the demonstrations that a small policy learns its tools from.

It searches, opens what it found, and quotes a sentence of each document with its citation; where notes may be taken,
each is one. Where a prompt names the pages that answer it (`rubricsvc prompts synthesize`), it searches for their
titles, with the version that is asked for, and opens them.
"""

import re
from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.strict_json import json_of
from trainer.environments.episodes import EpisodeLimits, begin
from trainer.environments.tool_calls import NOTE, call_text
from trainer.environments.tools import Research

NAME = "script"
"""Policy of the completions."""
MAX_WORDS = 25
"""Words of a sentence of the report."""
MAX_PAGES = 3
MIN_CHARS = 3
_HIT = re.compile(r"^\[(.+?)\] ", re.MULTILINE)
_HEADING = re.compile(r"^.*\n([*=~^#-])\1{2,}[ \t]*$", re.MULTILINE)
_NAMED = re.compile("“(.+?)”")
_VERSION = re.compile(r"\b[Vv]ersion \d[\d.]*\d")
_WORD = re.compile(r"\w+(?:\.\w+)*")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*“])")


def demonstrate(
    environment: Research, prompt: Prompt, limits: EpisodeLimits, *, informed: bool = True, brief: bool = False
) -> Completion | None:
    """Return a trajectory for a prompt; None where the script does not reach a report.

    Without ``informed`` the script does not know the pages that answer the prompt: it opens the search's first. A
    ``brief`` report only names the query, without quote or citation.
    """
    episode = begin(environment, prompt, limits)
    cited: list[str] = []
    reference = (prompt.reference or "") if informed else ""
    for query, wanted in _plan(environment, prompt, informed=informed):
        text = "\n".join(one.text for one in episode.turn(call_text("search", query=query)))
        opened = json_of(text) if environment.opens else None
        hits = _HIT.findall(text) if not opened else [opened.get("id")]
        found = next((id_ for id_ in hits if id_ and (not wanted or id_ in wanted)), None)
        if found is None or episode.done:
            return None
        text = opened["text"] if opened else "\n".join(one.text for one in episode.turn(call_text("open", id=found)))
        if episode.done:
            return None
        quoted = f"“{_sentence(text, query, reference)}” [{found}]."
        cited.append(f"See the documentation of {query}." if brief else quoted)
        if limits.notes:
            episode.turn(call_text(NOTE.name, text=cited[-1]))
            if episode.done:
                return None
    episode.turn(" ".join(cited) if environment.opens else call_text("finish", report=" ".join(cited)))
    if not episode.report:
        return None
    sampling: dict[str, JsonValue] = {"tools": dict(episode.counts)}
    if episode.leaks:
        sampling["leaks"] = [dict(leak) for leak in episode.leaks]
    return Completion(text=episode.report, messages=tuple(episode.messages), policy=NAME, sampling=sampling)


def _plan(environment: Research, prompt: Prompt, *, informed: bool) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield queries, each with the documents of which one must be found; none where any will do.

    They are the titles of the pages that answer, if these are known, with the versions that the prompt asks for:
    `open` shows the part of a document that the search found best. Otherwise they are what the prompt names in
    quotation marks, or else its longer words.
    """
    text, pages = prompt.text, (prompt.item or {}).get("pages")
    if not informed or not isinstance(pages, list):
        longer = " ".join(dict.fromkeys(word for word in re.findall(r"[\w.]+", text) if len(word) > MIN_CHARS))[:200]
        for query in _NAMED.findall(text)[:MAX_PAGES] or [longer]:
            yield query, ()
        return
    versions = " ".join(dict.fromkeys(_VERSION.findall(text)))
    for alternatives in pages[:MAX_PAGES]:
        assert isinstance(alternatives, list)  # noqa: S101 - of `collections.tasks`
        ids = [str(one) for one in alternatives]
        yield f"{environment.collection.open(ids[0]).title} {versions}".strip(), ids


def _sentence(text: str, query: str, reference: str) -> str:
    """Return the sentence that shares most words with the query; cut, no full stop.

    The longest one that stands in the reference comes first, then one with the version of the query.
    """
    words, prose = {*_WORD.findall(query.casefold())}, _HEADING.sub("", text)
    versions = " ".join(dict.fromkeys(_VERSION.findall(query)))
    sentences = [" ".join(one.split()) for one in _SENTENCE.split(prose) if len(one.split()) >= 4] or [text]
    ranks = [
        (len(one) * (one in reference), versions in one, len(words & {*_WORD.findall(one.casefold())}))
        for one in sentences
    ]
    return " ".join(sentences[ranks.index(max(ranks))].split()[:MAX_WORDS]).rstrip(".:;,")
