"""A scripted model for tests of evolution: it judges by readout, and proposes criteria.

Completions with the word ``because`` are the good ones. It finds them if it is asked for a cause, or by the template
``readout_short``; to other criteria it answers by a digest of the question.
"""

import json
from hashlib import sha256
from typing import Any

from tests.scripted_server import ScriptedReply, labels, text_reply

PROMPTS, EACH = 24, 4
PROPOSAL = [
    {"text": "The answer names a cause of what is asked.", "weight": 5},
    {"text": "The answer says what the cause is.", "weight": 5},
]


def model(_number: int, request: dict[str, Any]) -> ScriptedReply:
    """Judge, or propose `PROPOSAL`."""
    text: str = request["messages"][-1]["content"]
    if not request.get("logprobs"):
        return text_reply(json.dumps({"criteria": PROPOSAL}))
    shown, _, criterion = text.rpartition("Criterion:")
    good = "because" in shown
    short = request["messages"][0]["content"].startswith("Does the quoted")
    if not short and "cause" not in criterion:
        good = sha256(text.encode()).digest()[0] % 2 == 0
    return labels(Yes=0.9, No=0.05) if good else labels(No=0.9, Yes=0.05)


def is_good(number: int) -> bool:
    """Whether completion ``number`` (from 0) is one that people prefer."""
    return number % EACH in (1, 2)


def completions() -> str:
    """A file of completions."""
    rows = (
        {"prompt": f"Why is thing {n // EACH} so?", "text": f"Text {n}{', because it is' * is_good(n)}."}
        for n in range(PROMPTS * EACH)
    )
    return "\n".join(map(json.dumps, rows))


def overall(rubric: str) -> str:
    """A file of people's overall scores."""
    rows = (
        {
            "completion_id": n + 1, "rubric": rubric, "criterion": "overall", "annotator": "ann",
            "value": 0.9 if is_good(n) else 0.1,
        }
        for n in range(PROMPTS * EACH)
    )  # fmt: skip
    return "\n".join(map(json.dumps, rows))


RUBRIC = (
    "- {name: r, criteria: [{key: good, text: Is good overall., weight: 2}, {key: nice, text: Is nice., weight: 1}]}\n"
)
