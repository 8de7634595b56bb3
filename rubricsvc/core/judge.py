"""A judge: an engine, a model, a way of asking and a way of sampling, named by its fingerprint."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, AnyHttpUrl, Field, TypeAdapter, ValidationError, model_validator

from rubricsvc.core.base import Title, UnitInterval, Value
from rubricsvc.core.calibration import Calibration
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.rubric import refuse_repeats
from rubricsvc.core.verdict import Usage

Mode = Literal["readout", "written", "comparative", "trajectory", "panel", "cascade"]
Rule = Literal["mean", "median", "min", "majority"]

FREE = frozenset({"transformers_local", "vllm_local", "none"})
"""Engines that ask nobody who sends a bill. Any other, one that a user registered too, is thought to cost money until
its judge has a price (which may be 0)."""

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


class Voting(Value):
    """Several findings made one, by ``rule``. A judge is asked ``samples`` times; a panel asks each member once."""

    samples: int = Field(default=1, ge=1, le=100)
    rule: Rule = "mean"


class Thinking(Value):
    """A judge that reasons before it replies: between two marks, or in a field of its own where the server has one.

    ``budget_tokens`` come on top of ``Sampling.max_tokens``, and the protocol has one limit for both together: what is
    not thought may be said. Where the server counts reasoning tokens, a reply that thought for longer than the budget
    fails as ``truncated``.
    """

    budget_tokens: int = Field(default=2048, ge=1, le=1_000_000)
    opens: str = Field(default="<think>", min_length=1)
    closes: str = Field(default="</think>", min_length=1)


class Comparison(Value):
    """How completions of one prompt are set side by side: in pairs, each in both orders, or a group at once.

    ``group_size`` is the most that one call shows (groupwise); bigger groups are asked in parts that share members.
    ``opponents`` (pairwise) is how many others each completion meets; unset, all. ``written`` (pairwise): the judge
    writes its verdict on a pair; else it is read from one token. Groupwise scores are always written. With ``traces``
    whole trajectories are shown, where completions have them; else their last answers. With ``top_n`` the best so many
    of a group are worth 1 on a criterion, and the others 0.
    """

    kind: Literal["pairwise", "groupwise"] = "groupwise"
    group_size: int = Field(default=8, ge=2, le=26)
    opponents: int | None = Field(default=None, ge=1)
    written: bool = False
    traces: bool = False
    top_n: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _whole(self) -> Comparison:
        if self.kind == "groupwise" and (self.opponents or self.written):
            raise ValueError("opponents and written are for pairs; a group is shown at once, and always written about")
        return self

    @property
    def writes(self) -> bool:
        """Whether the judge writes, and is not read from one token."""
        return self.written or self.kind == "groupwise"


class TrajectoryOptions(Value):
    """How an agent's trace is followed: after each ``segment`` steps the judge is asked about the last of them.

    The verdict's value is that of the last look, or the mean, median or least of all looks. ``written``: the judge
    writes its verdicts; else they are read from one token.
    """

    segment: int = Field(default=1, ge=1, le=1000)
    value: Literal["last", "mean", "median", "min"] = "mean"
    written: bool = False

    @property
    def writes(self) -> bool:
        """As `Comparison.writes`."""
        return self.written


class Price(Value):
    """US dollars for a million tokens; ``cached`` unset is the price of others."""

    prompt: float = Field(default=0.0, ge=0.0, le=1e6)
    cached: float | None = Field(default=None, ge=0.0, le=1e6)
    completion: float = Field(default=0.0, ge=0.0, le=1e6)

    def cost(self, prompt: float, completion: float, cached: float = 0.0) -> float:
        """US dollars for so many tokens, ``cached`` of the prompt's."""
        known = self.prompt if self.cached is None else self.cached
        return ((prompt - cached) * self.prompt + cached * known + completion * self.completion) / 1e6

    def worst(self, prompt: float, completion: float) -> float:
        """The same, whatever is cached."""
        return max(self.cost(prompt, completion), self.cost(prompt, completion, prompt))

    def of(self, usage: Usage) -> float:
        """What a call cost, in US dollars."""
        return self.cost(usage.prompt, usage.completion, usage.cached)


class Endpoint(Value):
    """How the judge is reached. None of it changes what the judge says, so none of it is in the fingerprint.

    ``base_url`` unset is api.openai.com. ``api_key_env`` names the environment variable that holds the key; unset,
    OPENAI_API_KEY goes to api.openai.com and no key to anybody else. ``concurrency`` bounds the calls that one process
    has under way, and ``requests_per_minute`` and ``tokens_per_minute`` what it begins; processes do not count each
    other's. While the server is down questions wait, up to ``outage_timeout_s``, and then fail as ``unavailable``.
    ``prompt_lists``: a server that takes lists of prompts (vLLM, SGLang) gets a completion's readouts in one request.
    """

    base_url: Address | None = None
    api_key_env: str | None = None
    timeout_s: float = Field(default=120.0, gt=0.0, le=3600.0)
    max_retries: int = Field(default=4, ge=0, le=20)
    outage_timeout_s: float = Field(default=120.0, ge=0.0, le=86400.0)
    concurrency: int = Field(default=64, ge=1, le=4096)
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    prompt_lists: bool = True
    price: Price | None = None

    @classmethod
    def kept(cls, fields: dict[str, Any]) -> Endpoint:
        """An endpoint out of the database as it stands there: an earlier version may have taken what is refused now.

        `checked` looks at it again before it is asked.
        """
        price = fields.get("price")
        return cls.model_construct(**fields | {"price": Price.model_construct(**price) if price else None})

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
    labels must share: below it the judge did not answer. ``calibration`` is applied to a readout's probability before
    the threshold. ``max_context`` (tokens) refuses longer asks as ``too_long``.
    ``require_evidence`` (written mode) fails a finding with a quote that does not stand in the completion, and a
    positive one without any quote of three words, or twelve characters, that does.

    A ``panel`` asks its ``members`` and folds their verdicts by ``voting``; a ``cascade`` asks the first and goes on to
    the next where the probability, calibrated where it can be, lies within ``band``. Both have no model of their own.
    """

    name: Title = Field(min_length=1)
    engine: Annotated[str, Field(min_length=1)] = "openai_http"
    model: str = ""
    revision: str | None = None
    mode: Mode = "readout"
    template: str | None = None
    criteria_per_call: int = Field(default=1, ge=0)
    sampling: Sampling = Field(default_factory=Sampling)
    threshold: float | None = Field(default=None, gt=0.0, lt=1.0)
    min_answer_mass: float = Field(default=0.1, ge=0.0, le=1.0)
    max_context: int | None = Field(default=None, ge=1)
    endpoint: Endpoint = Field(default_factory=Endpoint)
    require_evidence: bool | None = None
    voting: Voting | None = None
    thinking: Thinking | None = None
    comparison: Comparison | None = None
    trajectory: TrajectoryOptions | None = None
    members: tuple[Judge, ...] | None = None
    band: tuple[UnitInterval, UnitInterval] | None = None
    calibration: Calibration | None = None

    @model_validator(mode="after")
    def _whole(self) -> Judge:
        several = self.mode in ("panel", "cascade")
        if several and (self.model or len(self.members or ()) < 2):
            raise ValueError(f"a {self.mode} has two or more members and no model of its own")
        if not several and (self.members or not self.model):
            raise ValueError(f"a {self.mode} judge needs a model, and has no members")
        if self.members:
            refuse_repeats("member's name", [member.name for member in self.members])
        if self.calibration and self.mode != "readout":
            raise ValueError(f"a readout's probabilities are calibrated, and a {self.mode} judge has none of its own")
        if (self.band is not None) != (self.mode == "cascade") or (self.band and self.band[0] > self.band[1]):
            raise ValueError("a cascade, and nothing else, has a band: two probabilities, the lower one first")
        if self.voting and self.voting.samples > 1 and (self.mode != "written" or self.sampling.temperature == 0):
            raise ValueError(
                "several samples are for a written judge whose temperature is above 0; else all are the same"
            )
        if (self.thinking or self.require_evidence) and self.mode in ("readout", "panel", "cascade"):
            raise ValueError(f"a {self.mode} judge writes neither thinking nor quotes; that is for a written one")
        return self

    @model_validator(mode="after")
    def _comparable(self) -> Judge:
        if self.comparison and self.mode != "comparative":
            raise ValueError(f"a {self.mode} judge compares nothing; that is for a comparative one")
        if self.mode == "comparative" and self.require_evidence:
            raise ValueError("a comparative judge quotes nothing; quotes are required of a written one")
        if self.mode == "comparative" and self.thinking and not self.effective_comparison.writes:
            raise ValueError("one token about a pair leaves no room for thinking; let the judge write about pairs")
        if self.trajectory and self.mode != "trajectory":
            raise ValueError(f"a {self.mode} judge follows no steps; that is for a trajectory one")
        if (
            self.mode == "trajectory"
            and (self.thinking or self.require_evidence)
            and not self.effective_trajectory.written
        ):
            raise ValueError("one token about a step leaves no room for thinking or quotes; let the judge write")
        if self.members and any(leaf.mode == "comparative" for leaf in self.leaf_judges):
            raise ValueError(f"the members of a {self.mode} judge one completion each; a comparative one needs a group")
        return self

    @property
    def effective_comparison(self) -> Comparison:
        """How a comparative judge compares."""
        return self.comparison or Comparison()

    @property
    def pairwise(self) -> bool:
        """Whether it compares in pairs."""
        return self.mode == "comparative" and self.effective_comparison.kind == "pairwise"

    @property
    def effective_trajectory(self) -> TrajectoryOptions:
        """How a trajectory judge goes through a trace."""
        return self.trajectory or TrajectoryOptions()

    @property
    def leaf_judges(self) -> tuple[Judge, ...]:
        """The judges that ask a model: this one, or its members, however deep."""
        return tuple(leaf for member in self.members for leaf in member.leaf_judges) if self.members else (self,)

    @property
    def priced(self) -> bool:
        """Whether anything is known of what it costs."""
        return any(leaf.endpoint.price for leaf in self.leaf_judges)

    @property
    def unpriced(self) -> list[str]:
        """The names of the leaves that may cost money, and whose price is not known."""
        return [leaf.name for leaf in self.leaf_judges if leaf.engine not in FREE and leaf.endpoint.price is None]

    @property
    def calibrated(self) -> bool | None:
        """Whether every readout in this judge was calibrated on labels; None where none of it is a readout."""
        known = [member.calibrated for member in self.members or ()]
        if self.mode == "readout":
            known.append(self.calibration is not None)
        told = [calibrated for calibrated in known if calibrated is not None]
        return all(told) if told else None

    @cached_property
    def digest(self) -> str:
        """What makes two judges the same judge: everything but the names and the ways to reach them.

        What is in force where it is unset is left out where it is set, too: spelt out, it makes no other judge.
        """
        spelt = {name for name, unset in _IN_FORCE.items() if getattr(self, name) == unset}
        own = self.model_copy(update=dict.fromkeys(("name", "endpoint", "members", *spelt)))
        return digest(own, [member.digest for member in self.members or ()])

    def __hash__(self) -> int:
        return hash(self.digest)


_IN_FORCE = {
    "voting": Voting(),
    "comparison": Comparison(),
    "trajectory": TrajectoryOptions(),
    "require_evidence": False,
}
"""The fields that may be unset, and what then holds. (Without thinking there is none.)"""
