"""`rubricsvc judges probe`: a judge's verdicts on a criterion that is plainly met and one that is plainly not.

`judges add` and `judges update` ask the same before they store a judge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rubricsvc.cli import output
from rubricsvc.cli.agreement import JudgeRef
from rubricsvc.cli.db import database
from rubricsvc.cli.failure_hints import FIXES
from rubricsvc.cli.models import ask, served_models
from rubricsvc.cli.output import Json, echo, print_json, print_table
from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError, UnavailableError, cut
from rubricsvc.services.exporting import plain_verdict
from rubricsvc.store import judges
from workers.engines.local.embedded_model import EMBEDDED

if TYPE_CHECKING:
    from workers.audit.probe import Probe

_ADD_TIMEOUT_S = 30.0
"""Seconds that `judges add` and `judges update` wait for a reply."""

_EMBEDDED_TOKENS = 96
"""Tokens of a written reply of the embedded model: it writes for minutes, and rarely a verdict."""

_NOT_REACHED = {reason for reason in Reason if reason.transient} | {
    Reason.REFUSED,
    Reason.ENGINE_ERROR,
    Reason.NO_LOGPROBS,
}
"""Reasons of a judge that does not answer. Other failures are the model's reply, and the next one may be better."""

_OTHER_HINT = "use another mode or another model"

_ADAPTER_HINT = "name a LoRA adapter in peft's format, and the base that it was trained on (docs/judges.md)"

_LOCAL_HINT = "name an instruction-tuned model: `embedded`, a folder, or a hub name (base models have no chat template)"


def probe(judge: JudgeRef, as_json: Json = False) -> None:
    """Ask a judge about a criterion that is plainly met and one that is plainly not.

    Prints its verdicts with their seconds, tokens and cost. Nothing is stored. Exits with 4 if the judge does not
    distinguish them: their values, from 0 to 1, must differ by 0.5 or more.
    """
    with database() as db, db.read() as session:
        stored = judges.get(session, judge).value
    if not _has_model(stored):
        raise InvalidError(f"judge {stored.name!r} has no model to ask", hint="it only runs checks")
    result = _answered(stored)
    with output.exit_with(output.OK if result.passed else output.NOT_PASSED):
        if as_json:
            print_json(_record(stored, result))
        else:
            columns = ("criterion", "expected", "verdict", "p_yes", "seconds", "tokens", "cost_usd")
            print_table(columns, [row.values() for row in _rows(result)])
        _warn(stored, result)


def probe_before_adding(judge: Judge) -> None:
    """Probe a judge, print what came, and warn where it does not distinguish the criteria.

    Raises:
        UnavailableError: It does not answer at all; the hint says what to change.
    """
    if not _has_model(judge):
        echo(f"{judge.name} has no model to ask: it only runs checks")
        return
    more = f" (--no-probe skips the questions, whose replies may take {_ADD_TIMEOUT_S:g} s)"
    result = _answered(judge, more, timeout_s=_ADD_TIMEOUT_S)
    cost = "" if (usage := result.usage) is None else f", {usage.prompt + usage.completion} tokens"
    if usage is not None and judge.priced:
        cost += f", ${usage.cost:.2g}"
    values = ", ".join(f"{_value(one)} ({expected})" for expected, one in zip(_EXPECTED, result.verdicts, strict=True))
    echo(f"{judge.name} answers: {values}; {result.seconds:.1f} s{cost}")
    _warn(judge, result)


def _answered(judge: Judge, more: str = "", *, timeout_s: float = math.inf) -> Probe:
    """Ask, and return the answers; ``timeout_s`` and the judge's own limit one reply.

    Raises:
        UnavailableError: The judge does not answer at all; the hint says what to change, and ends with ``more``.
    """
    result = _ask(judge, timeout_s)
    if hint := _reach_hint(judge, result):
        raise UnavailableError(f"judge {judge.name!r} does not answer: {_problem(result)}", hint=hint + more)
    return result


_EXPECTED = ("met", "not met")


def _has_model(judge: Judge) -> bool:
    return any(leaf.engine != "none" for leaf in judge.leaf_judges)


def _ask(judge: Judge, timeout_s: float) -> Probe:
    """Ask once, with one retry at most and without waiting for an outage."""
    from workers.audit.probe import COMPLETION, RUBRIC
    from workers.audit.probe import probe as ask_both

    def asked(leaf: Judge) -> Judge:
        own = leaf.endpoint
        limits = {"max_retries": min(own.max_retries, 1), "timeout_s": min(own.timeout_s, timeout_s)}
        fields: dict[str, Any] = {"endpoint": own.model_copy(update={"outage_timeout_s": 0.0, **limits})}
        if leaf.model == EMBEDDED:
            most = min(leaf.sampling.max_tokens, _EMBEDDED_TOKENS)
            fields["sampling"] = leaf.sampling.model_copy(update={"max_tokens": most})
        return leaf.model_copy(update=fields)

    questions = " / ".join(criterion.text for criterion in RUBRIC.criteria)
    once = judge.map_leaves(asked)
    seconds = [leaf.endpoint.timeout_s for leaf in once.leaf_judges if leaf.engine == "openai_http"]
    limit = f"; a reply may take {max(seconds):g} s" if seconds else ""
    echo(f"asking {judge.name} about {COMPLETION.text!r}: {questions}{limit}")
    with output.progress_bar(f"probe of {judge.name}") as bar:
        bar.update(0, len(RUBRIC.criteria), "")
        return ask(once, lambda engine: ask_both(engine, once))


def _warn(judge: Judge, result: Probe) -> None:
    """Print what is wrong with the verdicts, and what to do about it."""
    failed = {vote.by: vote for verdict in result.verdicts for vote in verdict.votes if vote.outcome == "failed"}
    for by, vote in failed.items():
        echo(f"warning: {by} of {judge.name} failed: {vote.reason}: {vote.detail or ''}")
    if result.passed and not result.is_close:
        return
    if any(leaf.model == EMBEDDED and leaf.adapter is None for leaf in judge.leaf_judges):
        hint = "without an adapter the embedded model is hardly better than chance; score with a real model"
    elif (problem := _unscored(result)) is not None:
        hint = FIXES[problem.reason] if problem.reason else _OTHER_HINT
    else:
        hint = f"{_OTHER_HINT}; `rubricsvc judges audit {judge.name}` and `judges agreement` measure more"
    values = f"{_value(result.met)} for what is met, {_value(result.not_met)} for what is not"
    if result.is_close:
        echo(f"warning: {judge.name} distinguishes the criteria by its threshold alone: {values}")
    elif result.difference is None:
        echo(f"warning: {judge.name} answers, but without a verdict: {_problem(result)}")
    else:
        echo(f"warning: {judge.name} does not distinguish a met criterion from one that is not: {values}")
    echo(f"hint: {hint}")


def _unscored(result: Probe) -> Verdict | None:
    """Return the first verdict without a value, a failed one first."""
    without = [verdict for verdict in result.verdicts if verdict.value is None]
    return min(without, key=lambda verdict: verdict.outcome != "failed", default=None)


def _problem(result: Probe) -> str:
    verdict = _unscored(result)
    if verdict is None:
        return ""
    name = str(verdict.reason or verdict.outcome)
    return f"{name}: {verdict.detail}" if verdict.detail else name


def _reach_hint(judge: Judge, result: Probe) -> str | None:
    """Return what to do about a failure to reach the model; None if the model answered."""
    verdict = _unscored(result)
    if verdict is None or verdict.reason not in _NOT_REACHED:
        return None
    reason, unauthorized = verdict.reason, (verdict.detail or "").startswith(("HTTP 401", "HTTP 403"))
    if judge.members:
        return f"{FIXES[reason]}; `rubricsvc judges probe` asks a member alone"
    if judge.engine != "openai_http" and reason is Reason.UNREACHABLE:
        return _ADAPTER_HINT if judge.adapter else _LOCAL_HINT
    if judge.engine == "openai_http" and reason is Reason.REFUSED and not unauthorized:
        with suppress(UnavailableError):  # not every server lists them
            if judge.model not in (names := served_models(judge.endpoint)):
                return f"the server has no model {judge.model!r}; it has {cut(', '.join(names), 400)}"
    return FIXES[reason]


def _value(verdict: Verdict) -> str:
    if verdict.value is None:
        return str(verdict.reason or verdict.outcome)
    return f"{verdict.value:.2f}" if verdict.probability is None else f"P(yes) {verdict.probability:.2f}"


def _rows(result: Probe) -> Iterator[dict[str, Any]]:
    """Yield both verdicts as rows."""
    from workers.audit.probe import RUBRIC

    for criterion, expected, verdict in zip(RUBRIC.criteria, _EXPECTED, result.verdicts, strict=True):
        usage = verdict.usage
        yield {
            "criterion": criterion.text,
            "expected": expected,
            "verdict": verdict.value if verdict.value is not None else verdict.reason or verdict.outcome,
            "p_yes": verdict.probability,
            "seconds": verdict.latency_s and round(verdict.latency_s, 2),
            "tokens": usage and usage.prompt + usage.completion,
            "cost_usd": (usage and usage.cost) or None,
        }


def _record(judge: Judge, result: Probe) -> dict[str, Any]:
    usage = result.usage
    return {
        "judge": judge.name,
        "distinguished": result.passed,
        "difference": result.difference,
        "seconds": round(result.seconds, 3),
        "usage": usage and usage.model_dump(),
        "verdicts": [
            plain_verdict(verdict) | {"criterion": row["criterion"], "expected": row["expected"]}
            for row, verdict in zip(_rows(result), result.verdicts, strict=True)
        ],
    }
