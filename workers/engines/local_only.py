"""``local_only``: refuse addresses outside this machine and the networks that are named."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from rubricsvc.core.judge import FREE, Judge
from rubricsvc.errors import InvalidError

OPENAI = "https://api.openai.com/v1"


def judge_addresses(judge: Judge) -> Iterator[tuple[str, str | None]]:
    """Yield a judge and the members of a panel that call a server, with its URL; None for one that is not known."""
    for leaf in judge.leaf_judges:
        if leaf.engine not in FREE:
            default = OPENAI if leaf.engine == "openai_http" else None
            yield f"judge {leaf.name!r}", leaf.endpoint.base_url or default


def check_addresses(addresses: Iterable[tuple[str, str | None]], networks: tuple[str, ...]) -> None:
    """Check that addresses are loopback addresses or in the networks. Names are resolved now, and not again.

    Raises:
        InvalidError: One is on another machine, or cannot be known. The message names all of them.
    """
    problems = [f"  {what}: {problem}" for what, url in addresses if (problem := _problem(url, networks))]
    if problems:
        raise InvalidError(
            "local_only = true: not on this machine:\n" + "\n".join(problems),
            hint='use others, or name their network: local_networks = ["10.0.0.0/8"]',
            path="local_only",
        )


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
