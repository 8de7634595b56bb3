"""Two training runs compared: what differs, which prompts are paired, and what is refused."""

from collections.abc import Sequence
from typing import Any

import pytest

from rubricsvc.schemas.runs import RunReport
from rubricsvc.stats.estimates import over_prompts
from trainer.comparing import VariantScore, compare

JUDGE = {"name": "j", "engine": "http", "model": "m", "mode": "written"}
SAMPLING = {"max_new_tokens": 8, "temperature": 0.7, "top_p": 1.0}
CONFIG = {"steps": 4, "judge": JUDGE, "sampling": SAMPLING, "eval": {"judges": [{**JUDGE, "name": "strong"}]}}
START = [0.1, 0.4, 0.2, 0.5, 0.3, 0.6]


def line(values: dict[str, Sequence[float | None]], *, setup: str = "same", rubrics: str = "RRRRRR") -> dict[str, Any]:
    return {
        "step": 4, "gold": "reward", "setup": setup, "prompts": 6, "prompt_digests": list("abcdef"),
        "rubric_digests": list(rubrics),
        "scores": {name: {"mean": {"value": over_prompts(each).value}} for name, each in values.items()},
        "values": {name: {"mean": list(each), "greedy": None} for name, each in values.items()},
    }  # fmt: skip


def report(*lines: dict[str, Any], config: dict[str, Any] = CONFIG) -> RunReport:
    return RunReport(name="1", config=config, steps=[], evaluations=list(lines))


def rows(a: RunReport, b: RunReport) -> dict[str, VariantScore]:
    return {row.score: row for row in compare(a, b).scores if row.variant == "B"}


def test_compare_ranks_only_where_the_interval_is_on_one_side_of_0() -> None:
    for changes, result in [
        ([0.1, 0.12, 0.09, 0.11, 0.1, 0.08], "higher"),
        ([-0.1, -0.12, -0.09, -0.11, -0.1, -0.08], "lower"),
        ([0.1, -0.12, 0.09, -0.11, 0.1, -0.04], "not_distinguishable"),
        ([0.0] * 6, "not_distinguishable"),
    ]:
        moved = [value + change for value, change in zip(START, changes, strict=True)]
        row = rows(report(line({"reward": START})), report(line({"reward": moved})))["reward"]
        assert (row.result, row.prompts) == (result, 6)
        assert row.difference is not None and row.difference.value == pytest.approx(sum(changes) / 6)


def test_compare_leaves_out_prompts_with_other_rubric_versions() -> None:
    b = line({"reward": START}, setup="other", rubrics="RRRRRS")
    a = report(line({"reward": START}))
    assert rows(a, report(b))["reward"].prompts == 5
    (note,) = compare(a, report(b)).notes
    assert "1 with another rubric version" in note
    none = rows(a, report(line({"reward": START}, setup="other", rubrics="SSSSSS")))["reward"]
    assert (none.result, none.difference, "rubric" in none.reason) == ("not_comparable", None, True)


def test_compare_refuses_the_scores_of_other_judges_only() -> None:
    values = {"reward": START, "strong": START, "checks": START}
    other = {**CONFIG, "judge": {**JUDGE, "model": "n"}}
    found = compare(report(line(values)), report(line(values), config=other))
    by_score = {row.score: row.result for row in found.scores if row.variant == "B"}
    assert by_score == {"reward": "not_comparable", "strong": "not_distinguishable", "checks": "not_distinguishable"}
    assert "one scale" in found.notes[0] and list(found.config) == ["judge.model"]
    strong = {**CONFIG, "eval": {"judges": [{**JUDGE, "name": "strong", "template": "other"}]}}
    assert rows(report(line(values)), report(line(values), config=strong))["strong"].result == "not_comparable"


def test_compare_refuses_other_sampling() -> None:
    lines = [line({"reward": START}, setup=setup) for setup in ("same", "other")]
    hot = {**CONFIG, "sampling": {**SAMPLING, "temperature": 1.0}}
    found = rows(report(lines[0]), report(lines[1], config=hot))["reward"]
    assert (found.result, "temperature" in found.reason) == ("not_comparable", True)
