"""What a grader run comes to, in the shape of OpenAI's ``fine_tuning.alpha.graders.run``.

One thing differs. OpenAI's type says that ``reward`` is a number; here it is null where the grader gave none, with the
flags of ``metadata.errors`` set and a word for each failed part in ``metadata.details``: a failure is never a score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import Field

from rubricsvc.core.base import Value
from rubricsvc.core.reward import fold
from rubricsvc.core.rubric import Rubric, on_scale
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.graders.model import Grader, Multi, Python, parts_of


class GraderErrors(Value):
    """OpenAI's flags."""

    formula_parse_error: bool = False
    sample_parse_error: bool = False
    truncated_observation_error: bool = False
    unresponsive_reward_error: bool = False
    invalid_variable_error: bool = False
    other_error: bool = False
    python_grader_server_error: bool = False
    python_grader_server_error_type: str | None = None
    python_grader_runtime_error: bool = False
    python_grader_runtime_error_details: str | None = None
    model_grader_server_error: bool = False
    model_grader_refusal_error: bool = False
    model_grader_parse_error: bool = False
    model_grader_server_error_details: str | None = None


class GraderMetadata(Value):
    """``scores`` are the parts' numbers, each on its own scale; ``details`` says why a part has none."""

    name: str
    type: str
    errors: GraderErrors
    execution_time: float = Field(description="seconds")
    scores: dict[str, float]
    token_usage: int | None
    sampled_model_name: str | None
    details: dict[str, str]


class Tokens(Value):
    """What a model read and wrote."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0


class GraderRun(Value):
    """The answer. ``sub_rewards`` are those of a multi grader's parts."""

    reward: float | None
    metadata: GraderMetadata
    sub_rewards: dict[str, float | None]
    model_grader_token_usage_per_model: dict[str, Tokens]


def run_of(
    grader: Grader,
    rubric: Rubric,
    verdicts: Iterable[Verdict],
    *,
    models: Mapping[str, str],
    seconds: float,
    unanswered: str = "",
) -> GraderRun:
    """What ``grader``, whose rubric is ``rubric``, comes to by these verdicts.

    Args:
        models: by criterion, the model that was asked.
        unanswered: why verdicts are missing, if any are.
    """
    found = {verdict.criterion: verdict for verdict in verdicts}
    folded = fold(rubric, found.values())
    details = {key: _said(verdict) for key, verdict in found.items() if verdict.value is None}
    missing = dict.fromkeys(rubric.by_key.keys() - found.keys(), unanswered or "no answer")
    flags: dict[str, bool | str] = {"unresponsive_reward_error": True} if missing else {}
    for key, part in parts_of(grader).items():
        if key in found and found[key].value is None:
            flags |= _flags(found[key], isinstance(part, Python), checked=rubric.by_key[key].kind == "checked")
    if folded.value is None and not flags:  # every part has its number, and their formula has none
        flags["formula_parse_error"] = True
        details["calculate_output"] = folded.null_reason or ""
    scores = {
        key: on_scale(rubric.by_key[key].scale, verdict.value)
        for key, verdict in found.items()
        if verdict.value is not None
    }
    spent = _tokens(found.values(), models)
    asked = sorted({models[key] for key in found if key in models})
    return GraderRun(
        reward=folded.value,
        metadata=GraderMetadata(
            name=grader.label,
            type=grader.type,
            errors=GraderErrors.model_validate(flags),
            execution_time=seconds,
            scores=scores,
            token_usage=sum(tokens.total_tokens for tokens in spent.values()) if spent else None,
            sampled_model_name=", ".join(asked) or None,
            details=details | missing,
        ),
        sub_rewards={key: scores.get(key) for key in rubric.by_key} if isinstance(grader, Multi) else {},
        model_grader_token_usage_per_model=spent,
    )


def _said(verdict: Verdict) -> str:
    return ": ".join(filter(None, (str(verdict.reason or verdict.outcome), verdict.detail)))


_PARSE = {Reason.TRUNCATED, Reason.UNPARSEABLE, Reason.WRONG_CRITERIA, Reason.OUT_OF_RANGE, Reason.NO_ANSWER}
_ALWAYS: dict[Reason | None, str] = {
    Reason.NO_VARIABLE: "invalid_variable_error",
    Reason.NOT_JSON: "sample_parse_error",
    Reason.TOO_LONG: "truncated_observation_error",
    Reason.DECLINED: "model_grader_refusal_error",
}


def _flags(verdict: Verdict, python: bool, *, checked: bool) -> dict[str, bool | str]:
    """The flags of a part that has no number."""
    detail = verdict.detail or ""
    if verdict.reason in _ALWAYS:
        return {_ALWAYS[verdict.reason]: True}
    if python and verdict.reason is Reason.NO_SANDBOX:
        return {"python_grader_server_error": True, "python_grader_server_error_type": "no_sandbox"}
    if python:
        return {"python_grader_runtime_error": True, "python_grader_runtime_error_details": detail}
    if checked:
        return {"other_error": True}
    if verdict.reason is None or verdict.reason in _PARSE:
        return {"model_grader_parse_error": True}
    return {"model_grader_server_error": True, "model_grader_server_error_details": _said(verdict)}


def _tokens(verdicts: Iterable[Verdict], models: Mapping[str, str]) -> dict[str, Tokens]:
    spent: dict[str, Tokens] = {}
    for verdict in verdicts:
        if verdict.usage is None or verdict.criterion not in models:
            continue
        model, usage = models[verdict.criterion], verdict.usage
        before, prompt, completion = spent.get(model, Tokens()), round(usage.prompt), round(usage.completion)
        spent[model] = Tokens(
            prompt_tokens=before.prompt_tokens + prompt,
            completion_tokens=before.completion_tokens + completion,
            total_tokens=before.total_tokens + prompt + completion,
            cached_tokens=before.cached_tokens + round(usage.cached),
        )
    return spent
