"""Reasoning between marks, before an answer: that of judges in their replies, and that of policies in completions.

A completion is stored whole; judges and checks see the answer after its reasoning.
"""

import re
from collections.abc import Sequence

from rubricsvc.core.prompt import Completion
from rubricsvc.core.untrusted import INVISIBLE

REASONING_MARKS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel>thought", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)
"""Marks around the reasoning of Qwen, DeepSeek, GLM and others, of Mistral, of Gemma, and of Harmony (gpt-oss)."""
_CODE = re.compile(  # fenced, in line, or indented after a blank line; a fence that never closes ends the search
    r"(?ms)^ {0,3}(?P<fence>`{3,8}+(?=[^`\n]*$)|~{3,8}+)(?:.*?^ {0,3}(?P=fence)[`~]*(?!\S)|(?P<open>.*))"
    r"|(?<!`)(?P<ticks>`{1,3})(?!`)[^\n]*?(?<!`)(?P=ticks)(?!`)"
    r"|(?:\A|(?<=\n\n)|(?<=\n\r\n))(?:(?: {4}|\t)[^\n]*\n?)+",
)


def split_reasoning(text: str, opens: str, closes: str, *, in_code: bool = False) -> tuple[str, str]:
    """Return the reasoning in a text, marks included, and the answer: what follows it.

    Reasoning that begins the text ends at the last closing mark; without one there is no answer. The opening mark may
    be missing, since many chat templates write it themselves: then closing marks in code count only with ``in_code``.
    """
    begins = re.compile(rf"(?:\s|{INVISIBLE.pattern})*{re.escape(opens)}").match
    plain = text
    if not in_code and not begins(text):
        plain = _CODE.sub(lambda span: span[0] if span["open"] else " " * len(span[0]), text)
    end = plain.rfind(closes)
    answer = text if end < 0 else text[end + len(closes) :]
    if begins(answer):
        answer = ""
    return text[: len(text) - len(answer)], answer


def as_judged(completion: Completion, given: Sequence[tuple[str, str]] | None = None) -> Completion:
    """Return a completion as judges and checks see it: without reasoning between marks, by default `REASONING_MARKS`.

    Where no marks are ``given``, as an empty sequence, nothing is hidden: reasoning that came apart from the content of
    a message is shown before it. A completion that is shown as it is stored is returned itself.
    """
    marks = REASONING_MARKS if given is None else given

    def shown(text: str, reasoning: str | None) -> str:
        for opens, closes in marks:
            if opens in text or closes in text:
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
