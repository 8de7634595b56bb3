"""The page of a training run."""

from typing import Any

from rubricsvc.core.prompt import Message, ToolCall
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.schemas.runs import RunReport, Sample
from rubricsvc.web.run import ShownCall, ShownTurn, render_run, result_sentence, shown_turns

CONFIG = {"steps": 2, "policy": {"model": "<b>m</b>"}, "judge": {"name": "j"}, "eval": None}


def evaluation(step: int, low: float | None, high: float | None) -> dict[str, Any]:
    change = {"value": 0.1, "low": low, "high": high}
    scores = {"strong": {"mean": {"value": 0.5, "low": 0.4, "high": 0.6}, "mean_difference": change}}
    return {"step": step, "gold": "strong", "scores": scores, "values": {}}


def test_render_run_escapes_all_texts() -> None:
    bad = "<script>alert(1)</script>"
    sample = Sample(prompt=bad, text=bad, where=bad, scores={bad: 1.0})
    steps = [{"step": 1, "reward": 0.5, "reward_std": None, f"rewards/{bad}/mean": 0.5}, {"step": 2, "reward": None}]
    page = render_run(
        RunReport(
            name=bad, config=CONFIG, steps=steps, highest=[sample], widest=[sample], columns=[bad],
            samples={bad: {bad: sample}},
        )
    )  # fmt: skip
    assert "<script" not in page and "<b>m" not in page and "&lt;script&gt;alert(1)" in page


def test_render_run_shows_the_verdict_on_each_criterion() -> None:
    verdicts = (Verdict.scored("cites", 0.25), Verdict.failed("<b>length", Reason.TIMEOUT), Verdict.abstained("tone"))
    sample = Sample(prompt="Why?", text="So.", where="step 1", scores={"training reward": None}, verdicts=verdicts)
    shown = {"columns": ["step 0"], "samples": {"Why?": {"step 0": sample}}, "highest": [sample]}
    page = render_run(RunReport.model_validate({"name": "1", "config": CONFIG, "steps": [], **shown}))
    assert page.count("cites <b>0.25</b>") == 2
    assert page.count("failed: timeout") == page.count("&lt;b&gt;length") == 2
    assert page.count(">abstained<") == 2


def test_render_run_begins_with_the_answer_and_ends_with_samples() -> None:
    """The change of the gold score, the best baseline by it and the number of alarms come before all else."""
    lines = [evaluation(0, None, None), evaluation(9, 0.05, 0.15)]
    worse, better = evaluation(0, 0.1, 0.2), evaluation(0, 0.1, 0.2)
    worse["scores"]["strong"]["mean"]["value"] = 0.45
    baselines = [{**worse, "baseline": "sft"}, {**better, "baseline": "best_of_n"}, {**better, "baseline": "other"}]
    sample = Sample(prompt="Why?", text="So.", where="step 1", scores={"training reward": 0.5})
    fields = {"steps": [{"step": 1, "reward": 0.5}], "evaluations": lines, "baselines": baselines, "highest": [sample]}
    page = render_run(RunReport.model_validate({"name": "1", "config": CONFIG} | fields))
    order = ["improved by", "+0.100", "best baseline by strong", "<b>0.500</b>", "best of n", "Alarms", "On held-out"]
    order += ["Curves of", "Highest rewards"]
    places = [page.index(words, page.index("<h1>")) for words in order]
    assert places == sorted(places)


def test_result_sentence_says_improved_only_where_the_interval_is_above_zero() -> None:
    first = evaluation(0, None, None)
    assert "improved" in result_sentence([first, evaluation(2, 0.05, 0.15)])
    for low, high in ((-0.05, 0.25), (None, None)):
        assert "improved" not in result_sentence([first, evaluation(2, low, high)])
    for lines in ([], [first]):
        assert "improved" not in result_sentence(lines)
    later = result_sentence([first, {**evaluation(2, 0.05, 0.15), "best": True}, evaluation(4, -0.3, -0.1)])
    assert "improved" in later and "best checkpoint, of step 2" in later and "after step 4" in later


def call(name: str, arguments: str) -> Message:
    return Message(role="assistant", content="", tool_calls=(ToolCall(name=name, arguments=arguments),))


EPISODE = Sample(
    prompt="Why?",
    text="So [a].",
    where="step 2",
    scores={"reward": 0.5},
    messages=(
        call("search", '{"query": "<i>why"}'),
        Message(role="tool", content="[a] <script>"),
        call("open", "no JSON"),
        Message(role="tool", content='{"error": "no such document"}'),
        call("finish", '{"report": "So [a]."}'),
        Message(role="assistant", content="So [a]."),
    ),
    verdicts=(Verdict.scored("cites", 0.25, rationale="1 of 4 <b>resolve"),),
)


def test_shown_turns_have_calls_with_results_and_the_report_once() -> None:
    assert shown_turns(EPISODE) == [
        ShownTurn("", (ShownCall("search", (("query", "<i>why"),), "[a] <script>", False),)),
        ShownTurn("", (ShownCall("open", (("", "no JSON"),), '{"error": "no such document"}', True),)),
        ShownTurn("", (ShownCall("finish", (), None, False),)),
    ]


def test_shown_turns_keep_the_answer_to_a_malformed_call() -> None:
    answer = '{"error": "no JSON"}'
    messages = (Message(role="assistant", content="<tool_call>{"), Message(role="tool", content=answer))
    malformed = Sample(prompt="Why?", text="", where="step 1", scores={}, messages=messages)
    assert shown_turns(malformed) == [ShownTurn("<tool_call>{", (ShownCall("", (), answer, True),))]


def test_render_run_shows_episodes_escaped() -> None:
    episodes = {"step 0": EPISODE, "step 2": EPISODE}
    report = RunReport(name="1", config=CONFIG, steps=[], columns=tuple(episodes), samples={"Why?": episodes})
    page = render_run(report)
    assert page.count("&lt;i&gt;why") == page.count("1 of 4 &lt;b&gt;resolve") == page.count("So [a].") == 2
    assert "<script" not in page and "<i>why" not in page
    assert "side by side" not in render_run(RunReport(name="1", config=CONFIG, steps=[]))
    lines = tuple(evaluation(step, 0.05, 0.15) for step in (0, 2))  # the first prompt is on the first screen
    page = render_run(report.model_copy(update={"evaluations": lines}))
    assert page.count("So [a].") == 4 and page.index("Before and after") < page.index("On held-out prompts")
