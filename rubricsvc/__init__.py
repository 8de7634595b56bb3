"""Rubric rewards: store rubrics, score completions with generative judges, train policies on the rewards.

The names below are imported on first use, so that ``import rubricsvc`` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rubricsvc.client import AsyncClient, Client
    from rubricsvc.core.prompt import Completion, Prompt
    from rubricsvc.core.reward import reward
    from rubricsvc.core.rubric import Criterion, Rubric
    from rubricsvc.core.verdict import Verdict
    from rubricsvc.formats import load

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "Completion", "Criterion", "Prompt", "Rubric", "Verdict", "load", "reward"]

_MODULES = {
    "AsyncClient": "rubricsvc.client",
    "Client": "rubricsvc.client",
    "Completion": "rubricsvc.core.prompt",
    "Criterion": "rubricsvc.core.rubric",
    "Prompt": "rubricsvc.core.prompt",
    "Rubric": "rubricsvc.core.rubric",
    "Verdict": "rubricsvc.core.verdict",
    "load": "rubricsvc.formats",
    "reward": "rubricsvc.core.reward",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_MODULES))
