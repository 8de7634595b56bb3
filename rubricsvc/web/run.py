"""The report of a training run as a page: what must be read before its curves, and the curves."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rubricsvc.core.prompt import Completion, is_error, steps_of, tool_results
from rubricsvc.core.strict_json import json_of
from rubricsvc.schemas.runs import REWARD, RunReport, Sample, column_of, flat, measures_beside, result_of
from rubricsvc.web.charts import criterion_curves, curves, drawn, score_points
from rubricsvc.web.pages import number, render

CRITERIA_A_CHART = 6
MAX_CRITERIA = 24


def render_run(report: RunReport) -> str:
    """Return the page as HTML. Texts are escaped, and the page loads nothing."""
    scores = score_points(report.evaluations)
    columns, behaviour = measures_beside([*report.evaluations, *report.baselines])
    return render(
        "run.html.j2",
        report=report,
        sentence=result_sentence(report.evaluations),
        result=result_of(report.evaluations) if report.evaluations else None,
        column_of=column_of,
        shown_turns=shown_turns,
        has_bands=any(one.low is not None for one in scores),
        scores=drawn("mean score", scores) if scores else None,
        curves=[(one.heading, one.note, drawn(one.heading.lower(), one.points)) for one in curves(report.steps)],
        criteria=[
            (note, drawn("mean value", points))
            for note, points in criterion_curves(report.steps, MAX_CRITERIA, CRITERIA_A_CHART)
        ],
        columns=columns,
        behaviour=behaviour,
        config=list(flat(report.config)),
        reward=REWARD,
    )


def result_sentence(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return what the evaluation of the best checkpoint says of the policy beside the starting one, by the gold score.

    Where the run went on after the best checkpoint, say how it ended.
    """
    if len(lines) < 2:
        count = "one evaluation" if lines else "no evaluations"
        return f"The run has {count} on held-out prompts: its reward alone does not show that the policy is better."
    result = result_of(lines)
    gold = result["gold"]
    change = result["scores"][gold].get("mean_difference")
    if change is None or change["value"] is None:
        return f"No prompt has a score by {gold} at the start and at the end."
    name = "the training reward, which is no independent score" if gold == REWARD else gold
    value, low, high = (number(change[end], 3, "+") for end in ("value", "low", "high"))
    interval = f"{value} (95 %: {low} to {high}) on held-out prompts"
    if change["low"] is None:
        text = f"changed by {value}; too few prompts for an interval."
    elif change["low"] > 0:
        text = f"improved by {interval}."
    elif change["high"] < 0:
        text = f"got worse by {interval}."
    else:
        text = f"changed by {interval}: not distinguishable from chance."
    if result is not (last := lines[-1]):
        now = number(last["scores"][gold]["mean"]["value"], 3)
        text += f" That is the best checkpoint, of step {result['step']}; after step {last['step']} the score is {now}."
    return f"By {name} the policy {text}"


class ShownCall(NamedTuple):
    """A call with its arguments by name, and its result; ``name`` is empty where the call was malformed."""

    name: str
    arguments: tuple[tuple[str, str], ...]
    result: str | None
    is_error: bool


class ShownTurn(NamedTuple):
    """A message of the policy, and its calls."""

    text: str
    calls: tuple[ShownCall, ...]


def shown_turns(sample: Sample) -> list[ShownTurn]:
    """Return the turns of an episode before its report; a report that is an argument is not shown twice.

    A call without a result ended the episode, or its tool did not answer. A result without a call is the answer to a
    malformed one.
    """
    turns = []
    for step in steps_of(Completion(messages=sample.messages)) if sample.messages else ():
        results = list(tool_results(step))
        answered = {id(call): result for call, result in results if call is not None}
        for message in (one for one in step if one.role == "assistant"):
            calls = [(call, answered.get(id(call))) for call in message.tool_calls or ()]
            malformed = [(None, result) for call, result in results if call is None]
            shown = []
            for call, result in (*calls, *malformed):
                data = json_of(call.arguments) if call is not None else {}
                named = data if isinstance(data, dict) else {"": call.arguments if call is not None else ""}
                own = ((name, value) for name, value in named.items() if not sample.text or value != sample.text)
                content = result.content if result is not None else None
                arguments = tuple((name, str(value)) for name, value in own)
                name = call.name if call is not None else ""
                shown.append(ShownCall(name, arguments, content, is_error(json_of(content or ""))))
            turns.append(ShownTurn(message.content, tuple(shown)))
    return [one for one in turns if one.calls or one.text != sample.text]
