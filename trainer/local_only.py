"""``local_only``: refuse what a run would reach outside this machine and the networks that it names."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rubricsvc.core.judge import Judge
from rubricsvc.settings import get_settings
from trainer.config import RunConfig, ServiceJudge
from workers.engines import check_addresses, judge_addresses


def check_local(run: RunConfig) -> None:
    """Check every address of a run, if it or the project has ``local_only``; judges that are named only are left out.

    Raises:
        InvalidError: One is on another machine, or cannot be known. The message names all of them.
    """
    settings = get_settings()
    if run.local_only or settings.local_only:
        check_addresses(_addresses(run), (*run.local_networks, *settings.local_networks))


def _addresses(run: RunConfig) -> Iterator[tuple[str, str | None]]:
    """Yield what a run reaches, with its address; None for one that is not known."""
    evolve = (run.evolve.proposer, run.evolve.trusted) if run.evolve is not None else ()
    for judge in (run.judge, *(run.eval.judges if run.eval is not None else ()), *evolve):
        if isinstance(judge, ServiceJudge):
            yield f"judge {judge.name!r}", judge.service
        elif isinstance(judge, Judge):
            yield from judge_addresses(judge)
    if run.sampling.server is not None:
        yield "sampling.server", run.sampling.server
    for server in run.tools.mcp:
        if server.url is not None:
            yield f"MCP server {server.name!r}", server.url
    if "wandb" in run.trackers and os.environ.get("WANDB_MODE") not in ("offline", "disabled"):
        yield "tracker 'wandb'", os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"
    if "trackio" in run.trackers and os.environ.get("TRACKIO_SPACE_ID"):
        yield "tracker 'trackio'", "https://huggingface.co"
