"""A judge: an engine, a model, a way of asking and a way of sampling, named by its fingerprint."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, AnyHttpUrl, Field, TypeAdapter, ValidationError

from rubricsvc.core.base import Title, Value
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.rubric import Rubric

Mode = Literal["readout", "written"]

_HTTP = TypeAdapter(AnyHttpUrl)


def _address(url: str) -> str:
    try:
        _HTTP.validate_python(url)
        whole = re.match(r"https?://[^/?#]", url, re.IGNORECASE) and not re.search(r"\s", url)
    except ValidationError:
        whole = None
    if not whole:
        raise ValueError("is no address of a server; it looks like http://127.0.0.1:8000/v1 or https://…")
    return url


Address = Annotated[str, AfterValidator(_address)]
"""An http(s) URL with a host, as it was written."""


class Sampling(Value):
    """How the judge's reply is drawn. ``max_tokens`` bounds the reply of one call."""

    temperature: float = Field(default=0.0, ge=0.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    max_tokens: int = Field(default=1024, ge=1, le=1_000_000)
    seed: int | None = 0


class Endpoint(Value):
    """How the judge is reached. None of it changes what the judge says, so none of it is in the fingerprint.

    ``base_url`` unset is api.openai.com. ``api_key_env`` names the environment variable that holds the key; unset,
    OPENAI_API_KEY goes to api.openai.com and no key to anybody else. ``concurrency`` bounds the calls that one process
    has under way; processes do not count each other's.
    """

    base_url: Address | None = None
    api_key_env: str | None = None
    timeout_s: float = Field(default=120.0, gt=0.0, le=3600.0)
    max_retries: int = Field(default=4, ge=0, le=20)
    concurrency: int = Field(default=64, ge=1, le=4096)

    @classmethod
    def kept(cls, fields: dict[str, Any]) -> Endpoint:
        """An endpoint out of the database as it stands there: an earlier version may have taken what is refused now.

        `checked` looks at it again before it is asked.
        """
        return cls.model_construct(**fields)

    def checked(self) -> Endpoint:
        """This endpoint, if it may be asked.

        Raises:
            pydantic.ValidationError: it is `kept` from an earlier version, and is refused now.
        """
        return Endpoint.model_validate(self.model_dump())

    @property
    def key_variable(self) -> str | None:
        """The environment variable whose value this endpoint is sent, if any."""
        if self.api_key_env or self.base_url is None:
            return self.api_key_env or "OPENAI_API_KEY"
        return "OPENAI_API_KEY" if urlsplit(self.base_url).hostname == "api.openai.com" else None


class Judge(Value):
    """Who judges.

    ``engine`` names a class in ``workers.engines``; ``template`` a file in ``workers/judges/prompts``.
    ``criteria_per_call`` (written mode) is 1, k, or 0 for all in one call. ``threshold`` turns a readout's probability
    into 0 or 1; without it the probability is the value. ``min_answer_mass`` is the least probability that a readout's
    labels must share: below it the judge did not answer. ``max_context`` (tokens) refuses longer asks as ``too_long``.
    """

    name: Title = Field(min_length=1)
    engine: Annotated[str, Field(min_length=1)] = "openai_http"
    model: Annotated[str, Field(min_length=1)]
    revision: str | None = None
    mode: Mode = "readout"
    template: str | None = None
    criteria_per_call: int = Field(default=1, ge=0)
    sampling: Sampling = Field(default_factory=Sampling)
    threshold: float | None = Field(default=None, gt=0.0, lt=1.0)
    min_answer_mass: float = Field(default=0.1, ge=0.0, le=1.0)
    max_context: int | None = Field(default=None, ge=1)
    endpoint: Endpoint = Field(default_factory=Endpoint)

    @cached_property
    def digest(self) -> str:
        """What makes two judges the same judge: everything but the name and the way to reach it."""
        return digest(self.model_dump(mode="json", exclude={"name", "endpoint"}))

    def __hash__(self) -> int:
        return hash(self.digest)


def fingerprint(rubric: Rubric, judge: Judge, template_digest: str) -> str:
    """Where the verdicts of one rubric come from: rubric version, judge with its sampling, text of its template.

    The rubric's digest covers each criterion, so that this and the criterion's key name a verdict completely. Change
    any of it and the fingerprint changes, and what is stored is not used again.
    """
    return digest(rubric.digest, judge.digest, template_digest)
