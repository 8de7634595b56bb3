"""A scripted model that writes rubrics and judges by them, for tests of generation."""

import json
from typing import Any

from tests.scripted_server import ScriptedReply, labels, text_reply

RUBRIC: dict[str, Any] = {
    "criteria": [
        {"text": "Names the first cause of what is asked.", "weight": 5, "kind": "principle"},
        {"text": "Has at most two hundred words in all.", "weight": 1, "kind": "hard rule", "check": {"name": "words"}},
        {"text": "Says that it has no cause whatever.", "weight": -4},
    ]
}
RUBRIC["criteria"][1]["check"]["args"] = {"min": 5, "max": 200}


def rubric_about(number: int) -> str:
    """A rubric that differs from the others by the number."""
    first = {**RUBRIC["criteria"][0], "text": f"Names cause number {number} of what is asked."}
    return json.dumps({"criteria": [first, *RUBRIC["criteria"][1:]]})


def is_question(request: dict[str, Any]) -> bool:
    """Whether a request asks for a verdict, not for a rubric."""
    return bool(request.get("logprobs"))


def completion_in(request: dict[str, Any]) -> str:
    """The completion that a verdict is asked on."""
    text: str = request["messages"][-1]["content"]
    return text.rpartition("<completion-")[2].partition(">")[2].partition("</completion-")[0].strip()


def verdict(request: dict[str, Any], *, on: str) -> ScriptedReply:
    """Met if the completion has the text ``on`` and no fault is asked about; else not met."""
    faulty = "no cause whatever" in request["messages"][-1]["content"]
    return labels(Yes=0.98, No=0.01) if on in completion_in(request) and not faulty else labels(No=0.98, Yes=0.01)


def writer(_number: int, request: dict[str, Any]) -> ScriptedReply:
    """Write the same rubric for every prompt, and find its cause in completions with the word ``because``."""
    return verdict(request, on="because") if is_question(request) else text_reply(json.dumps(RUBRIC))
