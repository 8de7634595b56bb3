"""Reasoning between marks, before an answer: that of judges in their replies, and that of policies in completions.

A completion is stored whole; judges and checks see the answer after its reasoning.
"""

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

from rubricsvc.core.prompt import Completion
from rubricsvc.core.untrusted import INVISIBLE

REASONING_MARKS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel>thought", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)
"""Marks around the reasoning of Qwen, DeepSeek, GLM and others, of Mistral, of Gemma, and of Harmony (gpt-oss)."""
_HEADER = re.compile(r"<\|channel\|>final\s+(?:<\|constrain\|>)?\w+<\|message\|>")  # of Harmony, with a format
_END = re.compile(r"<\|(?:return|end)\|>\s*\Z")
_CODE = re.compile(  # fenced, in line, or indented after a blank line; a fence that never closes ends the search
    r"(?ms)^ {0,3}(?P<fence>`{3,8}+(?=[^`\n]*$)|~{3,8}+)(?:.*?^ {0,3}(?P=fence)[`~]*(?!\S)|(?P<open>.*))"
    r"|(?<!`)(?P<ticks>`{1,3})(?!`)[^\n]*?(?<!`)(?P=ticks)(?!`)"
    r"|(?:\A|(?<=\n\n)|(?<=\n\r\n))(?:(?: {4}|\t)[^\n]*\n?)+",
)


def marks_of(text: str, marks: Sequence[tuple[str, str]] = REASONING_MARKS) -> tuple[str, str]:
    """Return the pair of marks of which the first begins a text, else the first pair."""
    return next((pair for pair in marks if text.lstrip().startswith(pair[0])), marks[0])


def split_reasoning(text: str, opens: str, closes: str, *, in_code: bool = False) -> tuple[str, str]:
    """Return the reasoning in a text, marks included, and the answer: what follows it.

    Reasoning that begins the text ends at the last closing mark; without one there is no answer. The opening mark may
    be missing, since many chat templates write it themselves: then closing marks in code count only with ``in_code``.
    The format in Harmony's header, and the token that ends its message, belong to the marks.
    """
    text = _HEADER.sub("<|channel|>final<|message|>", text)
    begins = re.compile(rf"(?:\s|{INVISIBLE.pattern})*+{re.escape(opens)}").match
    plain = text
    if not in_code and not begins(text):
        plain = _CODE.sub(lambda span: span[0] if span["open"] else " " * len(span[0]), text)
    start = 0 if (end := plain.rfind(closes)) < 0 else end + len(closes)
    start = len(text) if begins(text[start:]) else start
    return text[:start], _END.sub("", text[start:]) if start else text


def as_judged(completion: Completion, given: Sequence[tuple[str, str]] | None = None) -> Completion:
    """Return a completion as judges and checks see it: without reasoning between marks, by default `REASONING_MARKS`.

    Where no marks are ``given``, as an empty sequence, nothing is hidden: reasoning that came apart from the content of
    a message is shown before it. A completion that is shown as it is stored is returned itself.
    """
    marks = REASONING_MARKS if given is None else given

    def shown(text: str, reasoning: str | None) -> str:
        for opens, closes in marks:
            if opens in text or closes in text or _HEADER.search(text):
                thoughts, rest = split_reasoning(text, opens, closes)
                text = rest.lstrip() if thoughts else text
        return text if marks or not reasoning else f"<think>\n{reasoning}\n</think>\n\n{text}"

    own = [one for one in completion.messages if one.role == "assistant"]
    text = shown(completion.text, own[-1].reasoning if own else None)
    messages = tuple(
        one.model_copy(update={"content": shown(one.content, one.reasoning)}) if one.role == "assistant" else one
        for one in completion.messages
    )
    if (text, messages) == (completion.text, completion.messages):
        return completion
    return completion.model_copy(update={"text": text, "messages": messages})


def reply_texts(tokenizer: Any, rows: Sequence[Sequence[int]]) -> list[str]:
    """Return the texts of tokens without special ones, except for those of marks around reasoning."""
    marks = re.findall(r"<[^<>]*>|\[[^\]]*\]", " ".join(chain(*REASONING_MARKS)))
    special = {id_: one.content for id_, one in tokenizer.added_tokens_decoder.items() if one.special}
    special |= dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    hidden = {id_ for id_, token in special.items() if token not in marks}
    texts: list[str] = tokenizer.batch_decode([[id_ for id_ in row if id_ not in hidden] for row in rows])
    return texts
