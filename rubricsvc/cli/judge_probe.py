"""One question to a judge, in this process: before it is stored, and to score without a database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from rubricsvc.cli.embedded import fetch_if_embedded
from rubricsvc.cli.output import echo
from rubricsvc.cli.served_models import served_models
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import UnavailableError, cut
from workers.engines import make_engine
from workers.engines.base import Engine
from workers.scoring.completions import score_group

Result = TypeVar("Result")

_HINTS = {
    "unreachable": "start the server, or correct --url (it usually ends in /v1)",
    "timeout": "the server is slow or does not respond; allow more time with endpoint.timeout_s in a judge file",
    "refused": "check --model, and the API key in the environment variable that --api-key-env names",
    "rate_limited": "rate limited (429); try again later, or with a lower endpoint.concurrency in a judge file",
    "server_error": "see the server's own log",
    "engine_error": "run `rubricsvc doctor`",
    "no_logprobs": "the server returns no log-probabilities: use --mode written (comparative and trajectory judges"
    " can write too, see docs/judges.md)",
}
"""By reason of the probe's failure. Other failures are the model's reply, and the next one may be better."""

_LOCAL_HINTS = {
    "unreachable": "check --model: `embedded`, or the folder or hub name of an instruction-tuned model"
    " (a base model has no chat template)"
}
"""The same if the model runs in this process."""


def probe_judge(judge: Judge) -> None:
    """Ask ``judge`` about a greeting and print the answer.

    Raises:
        UnavailableError: It does not answer; the hint says what to change.
    """
    verdict = _probe(_with_endpoint(judge, max_retries=min(judge.endpoint.max_retries, 1)))
    if verdict.outcome != "failed":
        echo(f"{judge.name} answers: {_summary(verdict)}")
        return
    problem = f"{verdict.reason}: {verdict.detail}" if verdict.detail else str(verdict.reason)
    if hint := _hint(judge, verdict):
        hint = f"{hint} (--no-probe skips the question)"
        raise UnavailableError(f"judge {judge.name!r} does not answer: {problem}", hint=hint)
    echo(f"{judge.name} answers, but without a verdict: {problem}")
    echo("hint: it is added, as its next answer may be better; else use more tokens, another mode or another model")


def _hint(judge: Judge, verdict: Verdict) -> str | None:
    """Return what to do about a failure; None if the model answered and may answer better next time."""
    reason, unauthorized = str(verdict.reason), (verdict.detail or "").startswith(("HTTP 401", "HTTP 403"))
    if judge.engine != "openai_http":
        return _LOCAL_HINTS.get(reason) or _HINTS.get(reason)
    if reason == "refused" and not unauthorized:
        with suppress(UnavailableError):  # not every server lists them
            if judge.model not in (names := served_models(judge.endpoint)):
                return f"the server has no model {judge.model!r}; it has {cut(', '.join(names), 400)}"
    return _HINTS.get(reason)


def _summary(verdict: Verdict) -> str:
    if verdict.probability is not None:
        return f"P(yes) {verdict.probability:.2f}"
    return verdict.outcome if verdict.value is None else f"{verdict.value:.2f}"


def _probe(judge: Judge) -> Verdict:
    rubric = Rubric(criteria=(Criterion(key="greets", text="The answer greets the user."),))
    answers = ["Hello! Nice to meet you.", "No."] if judge.mode == "comparative" else ["Hello! Nice to meet you."]
    (verdict,) = score_once(judge, rubric, Prompt.of("Say hello."), *(Completion(text=text) for text in answers))
    return verdict


def score_once(judge: Judge, rubric: Rubric, prompt: Prompt, *completions: Completion) -> list[Verdict]:
    """Score the first completion, beside the others for a comparative judge, without waiting for an outage."""
    judge = _with_endpoint(judge, outage_timeout_s=0.0)
    return ask(judge, lambda engine: score_group(engine, judge, rubric, prompt, completions))[0]


def ask(judge: Judge, action: Callable[[Engine], Coroutine[Any, Any, Result]]) -> Result:
    """Run an action with the judge's engine in this process."""
    fetch_if_embedded(judge)

    async def run() -> Result:
        async with aclosing(make_engine(judge)) as engine:
            return await action(engine)

    return asyncio.run(run())


def _with_endpoint(judge: Judge, **fields: float) -> Judge:
    """Return the judge with these endpoint fields, its own and its members'."""
    endpoint = judge.endpoint.model_copy(update=fields)
    members = tuple(_with_endpoint(member, **fields) for member in judge.members) if judge.members else None
    return judge.model_copy(update={"endpoint": endpoint, "members": members})
