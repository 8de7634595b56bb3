"""The report's charts as SVG, one for a wide screen and one for a phone, with text of 12 pixels in both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from rubricsvc.cli.demo.results import QuestionResult
from rubricsvc.core.panel import mean_known
from rubricsvc.web.charts import INK

BEFORE, AFTER = "#8a8f98", "#2f7de1"
_LETTER, _LINE = 7, 15
"""Pixels for a letter and for a line of text."""
_TENTHS = [0, 0.2, 0.4, 0.6, 0.8, 1]
SMOOTHED_STEPS = 5


def question_chart(results: Sequence[QuestionResult]) -> Callable[[int], Any]:
    """Chart the mean reward of each question before and after training, under the question's text."""
    import altair as alt

    rows = [
        {"place": place, "reward": value, "when": when}
        for place, result in enumerate(results)
        for when, value in (("before", result.reward_before), ("after", result.reward_after))
        if value is not None
    ]
    questions = [result.question for result in results]
    labels = [f"{'held out: ' if q.held_out else ''}{q.text.replace('`', '')}" for q in questions]
    x = alt.X("reward:Q", title="mean reward", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(values=_TENTHS))
    y = alt.Y("place:O", axis=None)
    scale = alt.Scale(domain=["before", "after"], range=[BEFORE, AFTER])

    def chart(width: int) -> Any:
        texts = [wrap(label, width // _LETTER) for label in labels]
        most = max(map(len, texts), default=1)
        names = [{"place": n, "lines": [""] * (most - len(lines)) + lines} for n, lines in enumerate(texts)]
        at = alt.Chart(alt.Data(values=rows)).encode(x=x, y=y)
        line = at.mark_line(color="#88888888", strokeWidth=2).encode(detail="place:O")
        dots = at.mark_circle(size=90, opacity=1).encode(color=alt.Color("when:N", title=None, scale=scale))
        style = {"align": "left", "fontSize": 12, "lineHeight": _LINE, "dy": -_LINE * most, "color": INK}
        texts_above = alt.Chart(alt.Data(values=names)).mark_text(**style).encode(x=alt.value(0), y=y, text="lines:N")
        return (line + dots + texts_above).properties(width=width, height=alt.Step(26 + _LINE * most))

    return chart


def reward_chart(steps: Sequence[Mapping[str, Any]]) -> Callable[[int], Any]:
    """Chart the mean reward of each training step with one standard deviation, and its moving mean."""
    import altair as alt

    smoothed = SMOOTHED_STEPS if len(steps) >= SMOOTHED_STEPS else 1  # of few steps the mean would lag behind
    rows = [
        {
            "step": step["step"],
            "reward": step["reward"],
            "low": max(step["reward"] - (step["reward_std"] or 0.0), 0.0),
            "high": min(step["reward"] + (step["reward_std"] or 0.0), 1.0),
            "smooth": mean_known(s["reward"] for s in steps[max(0, n + 1 - smoothed) : n + 1]),
        }
        for n, step in enumerate(steps)
        if step["reward"] is not None
    ]

    def chart(width: int) -> Any:
        base = alt.Chart(alt.Data(values=rows)).encode(
            x=alt.X(
                "step:Q",
                title="training step",
                axis=alt.Axis(tickMinStep=1, tickCount=width // 40, format="d", grid=False),
            )
        )
        reward = alt.Y("low:Q", title="reward", scale=alt.Scale(domain=[0, 1]))
        band = base.mark_area(opacity=0.25, color=AFTER).encode(y=reward, y2="high:Q")
        dots = base.mark_circle(color=AFTER, size=36, opacity=0.8).encode(y="reward:Q")
        line = base.mark_line(color=AFTER, strokeWidth=2.5).encode(y="smooth:Q")
        return (band + dots + line).properties(width=width, height=260)

    return chart
