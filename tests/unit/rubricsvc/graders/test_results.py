"""The flags of a grader run: every failure has its own, and none is a reward."""

from typing import Any

import pytest
from openai.types.fine_tuning.alpha.grader_run_response import GraderRunResponse, Metadata, MetadataErrors

from rubricsvc.core.verdict import Reason, Usage, Verdict
from rubricsvc.formats.openai_grader import parse
from rubricsvc.graders.model import GraderErrors, GraderMetadata, GraderRun, parts_of, rubric_of, run_of

STRING = {"type": "string_check", "name": "s", "input": "a", "reference": "a", "operation": "eq"}
PYTHON = {"type": "python", "name": "p", "source": "def grade(sample, item): return 1"}
SCORE = {"type": "score_model", "name": "m", "model": "x", "input": [{"role": "user", "content": "?"}]}
MULTI = {
    "type": "multi",
    "name": "all",
    "graders": {"s": STRING, "p": PYTHON, "m": SCORE},
    "calculate_output": "s / p + m",
}


def ran(grader: dict[str, Any], *verdicts: Verdict, **more: Any) -> GraderRun:
    parsed = parse(grader)
    return run_of(parsed, rubric_of(parsed), verdicts, models={"m": "x"}, seconds=0.1, **more)


def flags(run: GraderRun) -> set[str]:
    return {name for name, value in run.metadata.errors if value is True}


def test_run_of_has_openai_s_fields_and_details() -> None:
    def fields(model: Any) -> set[str]:
        return {field.alias or name for name, field in model.model_fields.items()}

    assert fields(GraderRun) == fields(GraderRunResponse) and fields(GraderErrors) == fields(MetadataErrors)
    assert fields(GraderMetadata) == fields(Metadata) | {"details"}


def test_run_of_flags_each_failure() -> None:
    for grader, reason, detail, expected in [
        (STRING, Reason.NO_VARIABLE, "", "invalid_variable_error"),
        (STRING, Reason.NOT_JSON, "", "sample_parse_error"),
        (STRING, Reason.CHECK_ERROR, "a package is missing", "other_error"),
        (PYTHON, Reason.CHECK_ERROR, "python: GradeError: it broke", "python_grader_runtime_error"),
        (PYTHON, Reason.CHECK_ERROR, "python: GradeError: UnavailableError", "python_grader_runtime_error"),
        (PYTHON, Reason.NO_SANDBOX, "python: no bwrap; install it", "python_grader_server_error"),
        (SCORE, Reason.NO_VARIABLE, "", "invalid_variable_error"),
        (SCORE, Reason.TOO_LONG, "", "truncated_observation_error"),
        (SCORE, Reason.DECLINED, "I cannot help.", "model_grader_refusal_error"),
        *((SCORE, reason, "", "model_grader_parse_error") for reason in (Reason.UNPARSEABLE, Reason.OUT_OF_RANGE)),
        *((SCORE, reason, "", "model_grader_parse_error") for reason in (Reason.TRUNCATED, Reason.NO_ANSWER)),
        *((SCORE, reason, "", "model_grader_server_error") for reason in (Reason.TIMEOUT, Reason.REFUSED)),
        *((SCORE, reason, "", "model_grader_server_error") for reason in (Reason.UNAVAILABLE, Reason.BUDGET)),
    ]:
        run = ran(grader, Verdict.failed(grader["name"], reason, detail=detail or None))
        assert (run.reward, flags(run)) == (None, {expected})
        assert run.metadata.details[grader["name"]].startswith(str(reason))


@pytest.mark.parametrize("grader", [STRING, PYTHON, SCORE], ids=lambda grader: grader["type"])
def test_run_of_sets_a_flag_for_every_reason(grader: dict[str, Any]) -> None:
    for reason in Reason:
        run = ran(grader, Verdict.failed(grader["name"], reason))
        assert run.reward is None and len(flags(run)) == 1, reason


def test_run_of_an_abstention_has_no_reward() -> None:
    run = ran(SCORE, Verdict.abstained("m"))
    assert (run.reward, flags(run)) == (None, {"model_grader_parse_error"})


def test_run_of_missing_verdicts_gives_the_reason() -> None:
    run = ran(SCORE, unanswered="worker_lost")
    assert (run.reward, flags(run), run.metadata.details) == (None, {"unresponsive_reward_error"}, {"m": "worker_lost"})


def test_run_of_a_multi_grader_has_sub_rewards() -> None:
    verdicts = [Verdict.scored("s", 1.0), Verdict.scored("p", 0.5), Verdict.scored("m", 0.25, usage=Usage(prompt=9))]
    run = ran(MULTI, *verdicts)
    assert (run.reward, flags(run)) == (2.25, set())
    assert run.sub_rewards == run.metadata.scores == {"s": 1.0, "p": 0.5, "m": 0.25}
    assert list(parts_of(parse(MULTI))) == list(run.sub_rewards)
    assert run.model_grader_token_usage_per_model["x"]["prompt_tokens"] == run.metadata.token_usage == 9
    none = ran(MULTI, verdicts[0], Verdict.scored("p", 0.0), verdicts[2])
    assert (none.reward, flags(none)) == (None, {"formula_parse_error"})
    assert "zero" in none.metadata.details["calculate_output"]
    several = ran(MULTI, verdicts[0], Verdict.failed("p", "check_error"), Verdict.failed("m", "timeout"))
    assert flags(several) == {"python_grader_runtime_error", "model_grader_server_error"}
    assert several.sub_rewards == {"s": 1.0, "p": None, "m": None}
