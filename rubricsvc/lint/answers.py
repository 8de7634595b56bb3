"""Answers that the prompt gives away."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rubricsvc.core.rubric import Criterion
from rubricsvc.lint.registry import LintHit, Subject, rule

RUN = 12
"""Words in a row of a reference that are no chance in a prompt, if they are half of it."""
SHORTEST = 3
"""Characters of a whole reference that is looked for as it is."""
_WORD = re.compile(r"\w+(?:[.,]\d+)*")
_ANSWER = re.compile(
    r"\b(?:(?:final|correct|right) answer(?: is| should be|:)|answer is|concludes that (?:the answer is|it is)"
    r"|arrives at(?: the answer)?|"
    r"gives the (?:result|answer)|result is|equals)\s*:?\s*[\"“']?([^\"”'\n]{1,80}?)[\"”']?\s*(?:\.|$|\()",
    re.I,
)
_COPYING = re.compile(
    r"\b(?:summar|translat|paraphras|rewrit|rephras|proofread|correct the|edit|extract|quote|revise|repeat"
    r"|classif|choose|"
    r"which of|options?|select|following (?:text|passage|code|article)|given (?:text|passage|code))",
    re.I,
)


@rule(
    "leaked-answer",
    "error",
    why="A policy that copies the prompt gets the reward, and the judge cannot tell a completion from an echo.",
    fix="Take the answer out of the prompt, or ask for something that the prompt does not say.",
    bad="Prompt: “What is 17 · 23? (It is 391.)”  Criterion: The final answer is 391.",
    good="Prompt: “What is 17 · 23?”  Criterion: The final answer is 391.",
)
def leaked_answer(subject: Subject) -> Iterator[LintHit]:
    """Find references and answers that the prompt contains."""
    if subject.prompt is None:
        return
    shown = " ".join(one.content for one in subject.prompt.messages if one.role in ("user", "system", "developer"))
    prompt = _normal(shown)
    copying = bool(_COPYING.search(shown))
    reference = subject.prompt.reference
    if reference and (part := _shared(reference, prompt, copying)):
        yield LintHit(None, f"the prompt contains its own reference answer: “{part}”")
    for criterion in subject.rubric.criteria:
        if criterion.reference and (part := _shared(criterion.reference, prompt, copying)):
            yield LintHit(criterion, f"the prompt contains the criterion's reference: “{part}”")
        elif not copying and (answer := _stated_answer(criterion)) and _contains(prompt, _normal(answer)):
            yield LintHit(criterion, f"the prompt contains the answer: “{answer}”")


def _stated_answer(criterion: Criterion) -> str:
    found = _ANSWER.search(criterion.text) if criterion.weight > 0 and criterion.check is None else None
    answer = found[1].strip() if found else ""
    return answer if any(one.isdigit() for one in answer) or len(answer.split()) > 1 or answer.istitle() else ""


def _normal(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def _contains(prompt: str, part: str) -> bool:
    return len(part.strip()) >= 1 and part in prompt


def _shared(reference: str, prompt: str, copying: bool) -> str:
    """Return words of the reference that are in the prompt too: all of them, or a long run."""
    normal = _normal(reference)
    words = normal.split()
    if len(normal.strip()) >= SHORTEST and len(words) < RUN:
        whole = normal in prompt and not copying
        return " ".join(words) if whole else ""
    if copying and normal not in prompt:
        return ""
    length = max(RUN, len(words) // 2)
    for start in range(0, len(words) - length + 1):
        run = f" {' '.join(words[start : start + length])} "
        if run in prompt:
            return run.strip()[:80]
    return ""
