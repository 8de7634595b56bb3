"""Two training runs compared: what differs, which prompts are paired, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rubricsvc.schemas.runs import RunReport, ScoreComparison
from rubricsvc.services.run_comparing import best_line, compare
from rubricsvc.stats.policy_scores import over_prompts

JUDGE = {"name": "j", "engine": "http", "model": "m", "mode": "written"}
SAMPLING = {"max_new_tokens": 8, "temperature": 0.7, "top_p": 1.0}
CONFIG = {"steps": 4, "judge": JUDGE, "sampling": SAMPLING, "eval": {"judges": [{**JUDGE, "name": "strong"}]}}
START = [0.1, 0.4, 0.2, 0.5, 0.3, 0.6]


def line(
    values: dict[str, Sequence[float | None]],
    *,
    step: int = 4,
    gold: str = "reward",
    setup: str = "same",
    prompts: str = "abcdef",
    rubrics: str = "RRRRRR",
) -> dict[str, Any]:
    return {
        "step": step,
        "gold": gold,
        "setup": setup,
        "prompts": len(prompts),
        "prompt_digests": list(prompts),
        "rubric_digests": list(rubrics),
        "scores": {name: {"mean": {"value": over_prompts(each).value}} for name, each in values.items()},
        "values": {name: {"mean": list(each), "greedy": None} for name, each in values.items()},
    }


def report(*lines: dict[str, Any], config: dict[str, Any] = CONFIG, rewards: Sequence[float] = ()) -> RunReport:
    return RunReport(
        name="1",
        config=config,
        steps=[{"step": at, "reward": one} for at, one in enumerate(rewards, 1)],
        evaluations=list(lines),
    )


def moved(by: Sequence[float]) -> list[float]:
    return [value + change for value, change in zip(START, by, strict=True)]


def rows(a: RunReport, b: RunReport, evaluation: str = "last") -> dict[str, ScoreComparison]:
    return {row.score: row for row in compare(a, b).scores if row.evaluation == evaluation}


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ([0.1, 0.12, 0.09, 0.11, 0.1, 0.08], "higher"),
        ([-0.1, -0.12, -0.09, -0.11, -0.1, -0.08], "lower"),
        ([0.1, -0.12, 0.09, -0.11, 0.1, -0.04], "not_distinguishable"),
        ([0.0] * 6, "not_distinguishable"),
    ],
)
def test_compare_ranks_only_where_the_interval_is_on_one_side_of_0(changes: list[float], result: str) -> None:
    row = rows(report(line({"reward": START})), report(line({"reward": moved(changes)})))["reward"]
    assert (row.result, row.prompts) == (result, 6)
    assert row.difference is not None and row.difference.value == pytest.approx(sum(changes) / 6)
    assert row.a is not None and row.b is not None and row.b - row.a == pytest.approx(row.difference.value)


def test_compare_is_antisymmetric() -> None:
    a, b = report(line({"reward": START})), report(line({"reward": moved([0.1, 0.2, 0.1, 0.3, 0.1, 0.2])}))
    forth, back = rows(a, b)["reward"], rows(b, a)["reward"]
    assert (forth.result, back.result) == ("higher", "lower")
    assert forth.difference is not None and back.difference is not None
    assert forth.difference.low == pytest.approx(-(back.difference.high or 0.0))


def test_compare_gives_no_interval_of_few_prompts() -> None:
    few = {"prompts": "abcd", "rubrics": "RRRR"}
    row = rows(report(line({"reward": [0.0] * 4}, **few)), report(line({"reward": [1.0] * 4}, **few)))["reward"]
    assert (row.result, row.prompts) == ("no_interval", 4)


def test_compare_leaves_out_prompts_without_a_value() -> None:
    b = report(line({"reward": [None, *moved([0.1] * 6)[1:]]}))
    row = rows(report(line({"reward": START})), b)["reward"]
    assert (row.prompts, row.result, row.a) == (5, "higher", pytest.approx(sum(START[1:]) / 5))


def test_compare_pairs_shared_prompts_by_digest_in_any_order() -> None:
    b = line({"reward": [9.0, *reversed(START)]}, setup="other", prompts="xfedcba", rubrics="RRRRRRR")
    found = compare(report(line({"reward": START})), report(b))
    held_out = found.held_out
    assert held_out is not None
    assert (held_out.shared, held_out.only_a, held_out.only_b, held_out.other_rubric) == (6, 0, 1, 0)
    difference = found.scores[0].difference
    assert difference is not None and (difference.value, found.scores[0].prompts) == (0.0, 6)


def test_compare_leaves_out_prompts_with_other_rubric_versions() -> None:
    b = line({"reward": START}, setup="other", rubrics="RRRRRS")
    found = compare(report(line({"reward": START})), report(b))
    assert found.held_out is not None and (found.held_out.shared, found.held_out.other_rubric) == (5, 1)
    none = compare(report(line({"reward": START})), report(line({"reward": START}, setup="other", rubrics="SSSSSS")))
    assert {(row.result, row.difference) for row in none.scores} == {("not_comparable", None)}
    assert "rubric" in str(none.scores[0].reason)


def test_compare_refuses_the_scores_of_other_judges_only() -> None:
    values = {"reward": START, "strong": START, "checks": START}
    other = {**CONFIG, "judge": {**JUDGE, "model": "n"}}
    found = compare(report(line(values)), report(line(values), config=other))
    by_score = {row.score: row.result for row in found.scores}
    assert by_score == {"reward": "not_comparable", "strong": "not_distinguishable", "checks": "not_distinguishable"}
    assert found.reward_reason is not None
    assert [one.path for one in found.config] == ["judge.model"]
    strong = {**CONFIG, "eval": {"judges": [{**JUDGE, "name": "strong", "template": "other"}]}}
    assert rows(report(line(values)), report(line(values), config=strong))["strong"].result == "not_comparable"


def test_compare_takes_judges_at_other_addresses_as_the_same() -> None:
    moved_judge = {**JUDGE, "name": "copy", "endpoint": {"base_url": "http://other/v1"}}
    found = compare(
        report(line({"reward": START})), report(line({"reward": START}), config={**CONFIG, "judge": moved_judge})
    )
    assert (found.reward_reason, found.scores[0].result) == (None, "not_distinguishable")
    services = [{**CONFIG, "judge": {"service": url, "name": "j"}} for url in ("http://a", "http://b")]
    a, b = (report(line({"reward": START}), config=config) for config in services)
    assert rows(a, b)["reward"].result == "not_comparable"


def test_compare_refuses_other_sampling_but_not_of_greedy_completions() -> None:
    lines = [line({"reward": START}, setup=setup) for setup in ("same", "other")]
    for one in lines:
        one["values"]["reward"]["greedy"] = START
    hot = {**CONFIG, "sampling": {**SAMPLING, "temperature": 1.0}}
    found = compare(report(lines[0]), report(lines[1], config=hot))
    results = {row.measure: row.result for row in found.scores}
    assert results == {"mean": "not_comparable", "greedy": "not_distinguishable"}
    long = {**CONFIG, "sampling": {**SAMPLING, "max_new_tokens": 9}}
    assert {row.result for row in compare(report(lines[0]), report(lines[1], config=long)).scores} == {"not_comparable"}


def test_compare_refuses_unknown_prompts_unless_the_settings_are_the_same() -> None:
    lines = [line({"reward": START}, setup=setup) for setup in ("same", "other")]
    del lines[0]["prompt_digests"]
    found = compare(report(lines[0]), report(lines[1]))
    assert (found.held_out, found.scores[0].result) == (None, "not_comparable")
    assert compare(report(lines[0]), report(lines[0])).scores[0].prompts == 6


def test_compare_names_scores_of_one_run_only() -> None:
    found = rows(report(line({"reward": START, "strong": START})), report(line({"reward": START})))
    assert (found["strong"].result, found["reward"].result) == ("not_comparable", "not_distinguishable")


def test_compare_takes_the_best_by_gold_and_the_last() -> None:
    values = [{"reward": START, "checks": [level] * 6} for level in (0.1, 0.9, 0.5)]
    a = report(*(line(one, step=step, gold="checks") for step, one in zip((0, 2, 4), values, strict=True)))
    b = report(line(values[2], step=3, gold="checks"))
    found = compare(a, b)
    steps = {(row.evaluation, row.step_a, row.step_b) for row in found.scores}
    assert steps == {("last", 4, 3), ("best", 2, 3)}
    assert {row.score for row in found.scores if row.gold} == {"checks"}
    best = rows(a, b, "best")["checks"].difference
    assert best is not None and best.value == pytest.approx(-0.4)


def test_best_line_of_unscored_evaluations_is_the_first() -> None:
    lines = [line({"reward": [None] * 6}, step=step) for step in (0, 2)]
    assert best_line(lines)["step"] == 0


def test_compare_of_runs_without_evaluations_shows_the_rest() -> None:
    found = compare(report(rewards=[0.1] * 10 + [0.5] * 10), report(line({"reward": START}), rewards=[0.2]))
    assert (found.a.reward_first, found.a.reward_last, found.b.reward_last) == (0.1, 0.5, 0.2)
    assert (found.held_out, found.scores) == (None, ())
    assert len(found.notes) == 1


def test_compare_leaves_out_names_places_and_times() -> None:
    def config(name: str, lr: float, data: str) -> dict[str, Any]:
        measured = {"measured_at": name, "repeats": 5}
        record = {
            "run": name,
            "out": name,
            "config_file": name,
            "working_folder": name,
            "judge_repeatability": measured,
        }
        return {**CONFIG, **record, "optim": {"lr": lr}, "data": {"path": f"{name}/{data}"}}

    same = compare(report(config=config("a", 0.1, "x.yaml")), report(config=config("b", 0.1, "x.yaml")))
    assert same.config == ()
    found = compare(report(config=config("a", 0.1, "x.yaml")), report(config=config("b", 0.2, "y.yaml")))
    assert [(one.path, one.a, one.b) for one in found.config] == [
        ("optim.lr", 0.1, 0.2),
        ("data.path", "a/x.yaml", "b/y.yaml"),
    ]
    only = compare(report(), report(config={**CONFIG, "seed": 3}))
    assert [(one.path, one.a, one.b) for one in only.config] == [("seed", None, 3)]
