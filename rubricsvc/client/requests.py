"""Requests and results as values, shared by both clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from rubricsvc.core.reward import Reward
from rubricsvc.core.verdict import Verdict

M_co = TypeVar("M_co", bound=BaseModel, covariant=True)


@dataclass(frozen=True)
class Request(Generic[M_co]):
    """An HTTP request and the model of its response. Parameters that are None are not sent."""

    returns: type[M_co]
    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    body: BaseModel | None = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of ``httpx2.Client.request``."""
        json = {"Content-Type": "application/json"} if self.body is not None else {}
        return {
            "method": self.method,
            "url": self.path,
            "params": {name: value for name, value in self.params.items() if value is not None},
            "headers": {**json, **self.headers},
            "content": self.content if self.body is None else self.body.model_dump_json().encode(),
        }


@dataclass(frozen=True)
class ScoredCompletion(Reward):
    """A completion's reward with its verdicts. ``value`` is None if too little was judged."""

    verdicts: tuple[Verdict, ...] = ()
    completion_id: int = 0
