"""``local_only``: refuse what a run would reach outside this machine and the networks that it names.

Addresses are resolved once, at the start of the run.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from rubricsvc.core.judge import FREE, Judge
from rubricsvc.errors import InvalidError
from trainer.config import RunConfig, ServiceJudge

OPENAI = "https://api.openai.com/v1"


def check_local(run: RunConfig) -> None:
    """Check every address of a run with ``local_only``; judges that are named only are left out.

    Raises:
        InvalidError: One is on another machine, or cannot be known. The message names all of them.
    """
    if not run.local_only:
        return
    problems = [f"{what}: {problem}" for what, url in _addresses(run) if (problem := _problem(url, run.local_networks))]
    if problems:
        raise InvalidError(
            "local_only = true: not on this machine:\n" + "\n".join(f"  {one}" for one in problems),
            hint='use others, or name their network: local_networks = ["10.0.0.0/8"]',
            path="local_only",
        )


def _addresses(run: RunConfig) -> Iterator[tuple[str, str | None]]:
    """Yield what a run reaches, with its address; None for one that is not known."""
    evolve = (run.evolve.proposer, run.evolve.trusted) if run.evolve is not None else ()
    for judge in (run.judge, *(run.eval.judges if run.eval is not None else ()), *evolve):
        if isinstance(judge, ServiceJudge):
            yield f"judge {judge.name!r}", judge.service
        elif isinstance(judge, Judge):
            for leaf in judge.leaf_judges:
                if leaf.engine not in FREE:
                    default = OPENAI if leaf.engine == "openai_http" else None
                    yield f"judge {leaf.name!r}", leaf.endpoint.base_url or default
    if run.sampling.server is not None:
        yield "sampling.server", run.sampling.server
    for server in run.tools.mcp:
        if server.url is not None:
            yield f"MCP server {server.name!r}", server.url
    if "wandb" in run.trackers and os.environ.get("WANDB_MODE") not in ("offline", "disabled"):
        yield "tracker 'wandb'", os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"
    if "trackio" in run.trackers and os.environ.get("TRACKIO_SPACE_ID"):
        yield "tracker 'trackio'", "https://huggingface.co"


def _problem(url: str | None, networks: tuple[str, ...]) -> str | None:
    """Return what is wrong with an address; None where all that its name resolves to is local, as is its proxy."""
    if url is None:
        return "its engine does not tell its address"
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxy = None if proxy_bypass(host) else getproxies().get(parts.scheme)
    for name in (host, urlsplit(proxy).hostname or proxy) if proxy else (host,):
        try:
            found = {str(one[4][0]).partition("%")[0] for one in socket.getaddrinfo(name, None)}
        except (OSError, UnicodeError):
            return f"{url}: {name} cannot be resolved"
        if others := sorted(one for one in found if not _is_local(one, networks)):
            through = "" if name == host else f" through the proxy {name}"
            return f"{url}{through} ({', '.join(others)})"
    return None


def _is_local(address: str, networks: tuple[str, ...]) -> bool:
    ip = ip_address(address)
    return ip.is_loopback or any(ip in ip_network(network) for network in networks)
