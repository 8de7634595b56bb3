"""Reasoning between marks, before an answer: that of judges in their replies, and that of policies in completions.

A completion is stored whole; judges and checks see the answer after its reasoning.
"""

from __future__ import annotations

import re

from rubricsvc.core.prompt import Completion
from rubricsvc.core.rubric import Rubric

REASONING_MARKS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel>thought", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)
"""Marks around the reasoning of Qwen, DeepSeek, GLM and others, of Mistral, of Gemma, and of Harmony (gpt-oss)."""
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def split_reasoning(text: str, opens: str, closes: str, *, in_code: bool = False) -> tuple[str, str]:
    """Return the reasoning in a text, marks included, and the answer: what follows it.

    Reasoning that begins the text ends at the last closing mark; without one there is no answer. The opening mark may
    be missing, since many chat templates write it themselves: then closing marks in code count only with ``in_code``.
    """
    begun = text.lstrip().startswith(opens)
    plain = text if begun or in_code else _CODE.sub(lambda span: " " * len(span[0]), text)
    end = plain.rfind(closes)
    answer = text if end < 0 else text[end + len(closes) :]
    if answer.lstrip().startswith(opens):
        answer = ""
    return text[: len(text) - len(answer)], answer


def without_reasoning(rubric: Rubric, completion: Completion) -> Completion:
    """Return the completion as judges and checks see it: itself where it has no reasoning between marks."""
    marks = REASONING_MARKS if rubric.reasoning_marks is None else rubric.reasoning_marks

    def answer(text: str) -> str:
        for opens, closes in marks:
            if opens in text or closes in text:
                reasoning, rest = split_reasoning(text, opens, closes)
                text = rest.lstrip() if reasoning else text
        return text

    text = answer(completion.text)
    messages = tuple(
        one
        if one.role != "assistant" or (own := answer(one.content)) == one.content
        else one.model_copy(update={"content": own})
        for one in completion.messages
    )
    if (text, messages) == (completion.text, completion.messages):
        return completion
    return completion.model_copy(update={"text": text, "messages": messages})
