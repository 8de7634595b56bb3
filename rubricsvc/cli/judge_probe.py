"""One question to a judge, in this process: before it is stored, and to score without a database."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rubricsvc.cli.embedded import fetch_if_embedded
from rubricsvc.cli.output import echo
from rubricsvc.errors import UnavailableError, cut

if TYPE_CHECKING:
    from rubricsvc.core.judge import Judge
    from rubricsvc.core.verdict import Verdict

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
    " (a base model has no chat template)",
}
"""The same if the model runs in this process."""


def probe_judge(judge: Judge) -> None:
    """Ask ``judge`` about a greeting and print the answer.

    Raises:
        UnavailableError: It does not answer; the hint says what to change.
    """
    verdict = asyncio.run(_probe(_with_endpoint(judge, max_retries=min(judge.endpoint.max_retries, 1))))
    if verdict.outcome != "failed":
        echo(f"{judge.name} answers: {_summary(verdict)}")
        return
    reason, detail = str(verdict.reason), f": {verdict.detail}" if verdict.detail else ""
    hint = _hint(judge, verdict)
    if hint:
        raise UnavailableError(
            f"judge {judge.name!r} does not answer: {reason}{detail}", hint=f"{hint} (--no-probe skips the question)"
        )
    echo(f"{judge.name} answers, but without a verdict: {reason}{detail}")
    echo("hint: it is added, as its next answer may be better; else use more tokens, another mode or another model")


def _hint(judge: Judge, verdict: Verdict) -> str | None:
    """Return what to do about a failure; None if the model answered and may answer better next time."""
    reason, unauthorized = str(verdict.reason), (verdict.detail or "").startswith(("HTTP 401", "HTTP 403"))
    if judge.engine != "openai_http":
        return _LOCAL_HINTS.get(reason) or _HINTS.get(reason)
    if reason == "refused" and not unauthorized:
        from rubricsvc.cli.served_models import served_models

        with suppress(UnavailableError):  # not every server lists them
            if judge.model not in (names := served_models(judge.endpoint)):
                return f"the server has no model {judge.model!r}; it has {cut(', '.join(names), 400)}"
    return _HINTS.get(reason)


def _summary(verdict: Verdict) -> str:
    if verdict.probability is not None:
        return f"P(yes) {verdict.probability:.2f}"
    return verdict.outcome if verdict.value is None else f"{verdict.value:.2f}"


async def _probe(judge: Judge) -> Verdict:
    from rubricsvc.core.prompt import Completion, Prompt
    from rubricsvc.core.rubric import Criterion, Rubric

    rubric = Rubric(criteria=(Criterion(key="greets", text="The answer greets the user."),))
    completions = [Completion(text="Hello! Nice to meet you.")]
    if judge.mode == "comparative":
        completions.append(Completion(text="No."))
    (verdict,) = await score_once(judge, rubric, Prompt.of("Say hello."), *completions)
    return verdict


async def score_once(judge: Judge, rubric: Any, prompt: Any, completion: Any, *others: Any) -> list[Verdict]:
    """Score one completion, with ``others`` beside it for a comparative judge, without waiting for an outage."""
    from workers.engines import make_engine
    from workers.scoring.completions import score_group

    fetch_if_embedded(judge)
    judge = _with_endpoint(judge, outage_timeout_s=0.0)
    engine = make_engine(judge)
    try:
        return (await score_group(engine, judge, rubric, prompt, [completion, *others]))[0]
    finally:
        await engine.aclose()


def _with_endpoint(judge: Judge, **fields: float) -> Judge:
    """Return the judge with these endpoint fields, its own and its members'."""
    endpoint = judge.endpoint.model_copy(update=fields)
    members = tuple(_with_endpoint(member, **fields) for member in judge.members) if judge.members else None
    return judge.model_copy(update={"endpoint": endpoint, "members": members})
