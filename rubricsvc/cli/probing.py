"""Asking a judge something, once and in this process: before it is kept, and to score without a database."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rubricsvc.cli.output import echo, progress_bar
from rubricsvc.errors import UnavailableError, cut

if TYPE_CHECKING:
    from rubricsvc.core.judge import Judge
    from rubricsvc.core.verdict import Verdict

EMBEDDED = "embedded"

_MENDING = {
    "unreachable": "is the server running, and is --url right (it usually ends in /v1)?",
    "timeout": "the server is slow or stuck; give it longer with --timeout",
    "refused": "check --model, and the API key in the environment variable that --api-key-env names",
    "rate_limited": "the server has had enough for now; try again later, or with a lower --concurrency",
    "server_error": "look into the server's own log",
    "engine_error": "`rubricsvc doctor` looks further",
}
"""What to do about a probe's failure. Other failures are the model's answer, which may be better next time."""

_MENDING_HERE = {
    "unreachable": "look at --model: `embedded`, or a folder or a name on the hub, of a model that is tuned to"
    " instructions (a base model has no chat template)",
}
"""The same where the model runs in this process, and no server is asked."""


def probe_judge(judge: Judge) -> None:
    """Ask ``judge`` about a greeting, and say what it answers.

    Raises:
        UnavailableError: it does not answer; the hint says what mends that.
    """
    verdict = asyncio.run(_ask(_reached(judge, max_retries=min(judge.endpoint.max_retries, 1))))
    if verdict.outcome != "failed":
        echo(f"{judge.name} answers: {_in_words(verdict)}")
        return
    reason = str(verdict.reason)
    mending = _mending(judge, verdict)
    if mending:
        detail = f": {verdict.detail}" if verdict.detail else ""
        hint = f"{mending} (--no-probe adds it all the same)"
        raise UnavailableError(f"the judge was not added, it does not answer: {reason}{detail}", hint=hint)
    echo(f"{judge.name} answers, but not with a verdict: {reason} {verdict.detail or ''}".rstrip())
    echo(
        "hint: it is added all the same, as its next answer may be better; if `rubricsvc score` fails like this too,"
        " add it under another name with more --max-tokens, another --mode or another --model"
    )


def _mending(judge: Judge, verdict: Verdict) -> str | None:
    """What to do about a failure; None where the model answered, and may answer better next time."""
    reason, locked = str(verdict.reason), (verdict.detail or "").startswith(("HTTP 401", "HTTP 403"))
    if reason == "no_logprobs":
        return _without_probabilities(judge)
    if reason == "refused" and not locked and judge.engine == "openai_http":
        from rubricsvc.cli.asking import models_of

        with suppress(UnavailableError):  # not every server lists them
            if judge.model not in (served := models_of(judge.endpoint)):
                return f"the server has no model {judge.model!r}; it has {cut(', '.join(served), 400)}"
    here = {} if judge.engine == "openai_http" else _MENDING_HERE
    return here.get(reason) or _MENDING.get(reason)


_WRITING = "so do --mode comparative (in groups, or --compare pairwise --written) and --mode trajectory --written"
"""What works of a server that gives no probabilities but writes; --mode written does, too."""


def _without_probabilities(judge: Judge) -> str:
    """What would work instead of reading a token, tried out where that is another mode."""
    none = "this server gives no token probabilities"
    if judge.mode != "readout":
        return f"{none}; with --written this judge writes what it finds; --mode written works, and {_WRITING}"
    plain = {"mode": "written", "template": None, "threshold": None, "calibration": None}
    verdict = asyncio.run(_ask(_reached(judge.model_copy(update=plain), max_retries=1)))
    if verdict.outcome == "failed":
        return f"{none}; --mode written was tried too, and failed: {verdict.reason} {verdict.detail or ''}".rstrip()
    return f"{none}; --mode written works there, it was tried just now, and {_WRITING}"


def _in_words(verdict: Verdict) -> str:
    if verdict.probability is not None:
        return f"P(yes) {verdict.probability:.2f}"
    return verdict.outcome if verdict.value is None else f"{verdict.value:.2f}"


async def _ask(judge: Judge) -> Verdict:
    from rubricsvc.core.prompt import Completion, Prompt
    from rubricsvc.core.rubric import Criterion, Rubric

    rubric = Rubric(criteria=(Criterion(key="greets", text="The answer greets the user."),))
    answers = [Completion(text="Hello! Nice to meet you.")]
    if judge.mode == "comparative":
        answers.append(Completion(text="No."))
    (verdict,) = await score_once(judge, rubric, Prompt.of("Say hello."), *answers)
    return verdict


def warn_of_embedded() -> None:
    """What the shipped model is worth, said where people meet it."""
    echo("the embedded 135M model is for trying things out: untrained, its verdicts are hardly better than chance")


async def score_once(judge: Judge, rubric: Any, prompt: Any, completion: Any, *beside: Any) -> list[Verdict]:
    """One completion scored, with others ``beside`` it, by an engine that is made for it and closed after it."""
    from workers.engines import make_engine
    from workers.scoring.completions import score_group

    fetch_if_embedded(judge)
    judge = _reached(judge, outage_timeout_s=0.0)  # somebody waits for it
    engine = make_engine(judge)
    try:
        return (await score_group(engine, judge, rubric, prompt, [completion, *beside]))[0]
    finally:
        await engine.aclose()


def _reached(judge: Judge, **otherwise: float) -> Judge:
    """The same judge, it and its members reached otherwise."""
    endpoint = judge.endpoint.model_copy(update=otherwise)
    members = tuple(_reached(member, **otherwise) for member in judge.members) if judge.members else None
    return judge.model_copy(update={"endpoint": endpoint, "members": members})


def fetch_if_embedded(judge: Judge) -> None:
    """Fetch the embedded model if the judge or one of its members uses it."""
    if any(leaf.model == EMBEDDED for leaf in judge.leaf_judges):
        fetch_embedded()


def fetch_embedded() -> None:
    """Bring the shipped model into the cache, with a progress bar, if it is not there."""
    from rubricsvc.settings import get_settings
    from workers.engines.local.embedded_model import NAME, embedded_model

    cache = get_settings().cache_dir
    if (cache / NAME).is_dir():
        return
    with progress_bar("embedded model") as bar:
        embedded_model(cache, lambda what, share: bar.update(round(share * 100), 100, what))
