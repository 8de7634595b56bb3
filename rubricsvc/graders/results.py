"""The result of a grader run, in the shape of OpenAI's ``fine_tuning.alpha.graders.run``.

One thing differs: ``reward`` is null where a part failed, with the flags of ``metadata.errors`` set and the reason of
each failed part in ``metadata.details``. A failure is never a score.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from pydantic import Field

from rubricsvc.core.base import Value
from rubricsvc.core.reward import reward_or_null
from rubricsvc.core.rubric import Rubric, on_scale
from rubricsvc.core.verdict import OF_REPLY, Reason, Verdict
from rubricsvc.graders.model import Grader, Multi, Python, StringCheck, TextSimilarity, parts_of


class GraderErrors(Value):
    """OpenAI's error flags."""

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
    """Details of a run: ``scores`` of the parts, each on its own scale, and ``details`` of the failed ones."""

    name: str
    type: str
    errors: GraderErrors
    execution_time: float = Field(description="seconds")
    scores: dict[str, float]
    token_usage: int | None
    sampled_model_name: str | None
    details: dict[str, str]


class Tokens(Value):
    """Tokens of one model."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0


class GraderRun(Value):
    """The result of a run; ``sub_rewards`` are those of a multi grader's parts."""

    reward: float | None
    metadata: GraderMetadata
    sub_rewards: dict[str, float | None]
    model_grader_token_usage_per_model: dict[str, Tokens]


_FLAGS: dict[Reason | None, str] = {
    **dict.fromkeys(OF_REPLY | {Reason.NO_ANSWER}, "model_grader_parse_error"),
    Reason.DECLINED: "model_grader_refusal_error",
    Reason.NO_VARIABLE: "invalid_variable_error",
    Reason.NOT_JSON: "sample_parse_error",
    Reason.TOO_LONG: "truncated_observation_error",
}


def run_of(
    grader: Grader,
    rubric: Rubric,
    verdicts: Iterable[Verdict],
    *,
    models: Mapping[str, str],
    seconds: float,
    unanswered: str = "",
) -> GraderRun:
    """Return the result of a run of ``seconds``.

    ``models`` are the models that were asked, by criterion; ``unanswered`` is why verdicts are missing, if any are.
    """
    by_key = {verdict.criterion: verdict for verdict in verdicts}
    reward = reward_or_null(rubric, by_key.values())
    failures = {
        key: ": ".join(filter(None, (str(one.reason or one.outcome), one.detail)))
        for key, one in by_key.items()
        if one.value is None
    }
    missing = dict.fromkeys(rubric.by_key.keys() - by_key.keys(), unanswered or "no answer")
    flags: dict[str, bool | str] = {"unresponsive_reward_error": True} if missing else {}
    for key, part in parts_of(grader).items():
        if key not in failures:
            continue
        verdict = by_key[key]
        match part:
            case _ if verdict.reason in _FLAGS:
                flags[_FLAGS[verdict.reason]] = True
            case Python() if verdict.reason is Reason.NO_SANDBOX:
                flags |= {"python_grader_server_error": True, "python_grader_server_error_type": "no_sandbox"}
            case Python():
                flags["python_grader_runtime_error"] = True
                flags["python_grader_runtime_error_details"] = verdict.detail or ""
            case StringCheck() | TextSimilarity():
                flags["other_error"] = True
            case _ if verdict.reason is None:
                flags["model_grader_parse_error"] = True
            case _:
                flags |= {"model_grader_server_error": True, "model_grader_server_error_details": failures[key]}
    details = failures | missing
    if reward.value is None and not flags:  # every part has a number, but their formula has no value
        flags["formula_parse_error"] = True
        details["calculate_output"] = reward.null_reason or ""
    scored = {key: verdict.value for key, verdict in by_key.items() if verdict.value is not None}
    scores = {key: on_scale(rubric.by_key[key].scale, value) for key, value in scored.items()}
    spent: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for key, verdict in by_key.items():
        if verdict.usage is not None and key in models:
            prompt, completion, cached = verdict.usage.prompt, verdict.usage.completion, verdict.usage.cached or 0
            counts = {"prompt_tokens": prompt, "completion_tokens": completion, "cached_tokens": cached}
            spent[models[key]].update(counts, total_tokens=prompt + completion)
    asked = sorted({models[key] for key in by_key if key in models})
    return GraderRun(
        reward=reward.value,
        metadata=GraderMetadata(
            name=grader.label,
            type=grader.type,
            errors=GraderErrors.model_validate(flags),
            execution_time=seconds,
            scores=scores,
            token_usage=sum(tokens["total_tokens"] for tokens in spent.values()) if spent else None,
            sampled_model_name=", ".join(asked) or None,
            details=details,
        ),
        sub_rewards={key: scores.get(key) for key in rubric.by_key} if isinstance(grader, Multi) else {},
        model_grader_token_usage_per_model={model: Tokens(**counts) for model, counts in spent.items()},
    )
