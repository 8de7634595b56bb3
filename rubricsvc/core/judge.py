"""Judges: engine, model, mode, template, sampling and calibration; figures of the votes of panels and pairs."""

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address, ip_network
from statistics import pstdev
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from rubricsvc.core.base import Content, Text, Title, UnitInterval, Value
from rubricsvc.core.estimate import mean_known
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric, reject_duplicates
from rubricsvc.core.verdict import Label, Usage, Verdict, Vote
from rubricsvc.errors import cut

Mode = Literal["readout", "written", "comparative", "trajectory", "panel", "cascade"]
Rule = Literal["mean", "median", "min", "majority"]

LOCAL = frozenset({"transformers_local", "vllm_local"})  # engines that load a model in the worker
FREE = LOCAL | {"none"}
"""Engines without costs. Any other, registered ones included, may cost money until its judge has a price (even 0)."""

Method = Literal["none", "temperature", "platt", "isotonic"]

MIN_DISTANCE = 1e-6  # least distance of a probability from 0 and 1 when its logit is taken


class Curve(Value):
    """A non-decreasing map from probability to calibrated probability.

    ``temperature`` (slope 1 / T, no offset) and ``platt`` are sigmoid(slope · logit(p) + offset). ``isotonic`` is
    linear between its ``knots`` (p, calibrated). ``none`` is the identity, where no other method was better.
    """

    method: Method = Field(description="Kind of curve.")
    slope: float = Field(1.0, ge=0.0, description="Factor of the logit (temperature, platt).")
    offset: float = Field(0.0, description="Offset of the logit (platt).")
    knots: tuple[tuple[UnitInterval, UnitInterval], ...] = Field((), description="Points (p, calibrated) of isotonic.")

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if (self.method == "isotonic") != bool(self.knots):
            raise ValueError(f"knots are required for isotonic, and only there; the method is {self.method}")
        for numbers in zip(*self.knots, strict=True):
            if list(numbers) != sorted(numbers):
                raise ValueError(f"knots must not fall in either number, found {numbers}")
        return self

    def __call__(self, probability: float) -> float:
        """Return the calibrated probability."""
        if self.method == "none":
            return probability
        if self.method == "isotonic":
            after = bisect_right(self.knots, probability, key=lambda knot: knot[0])
            if after in (0, len(self.knots)):
                return self.knots[max(after - 1, 0)][1]
            (x, y), (next_x, next_y) = self.knots[after - 1 : after + 1]
            return y + (next_y - y) * (probability - x) / (next_x - x)
        p = min(max(probability, MIN_DISTANCE), 1.0 - MIN_DISTANCE)
        score = self.slope * math.log(p / (1.0 - p)) + self.offset
        return 1.0 / (1.0 + math.exp(-score)) if score >= 0 else 1.0 - 1.0 / (1.0 + math.exp(score))


class Calibration(Value):
    """Curves by family of criteria; criteria of other families keep their probability."""

    families: dict[str, Curve] = Field(min_length=1, description="Curves by first tag, or else by kind of scale.")

    def value(self, criterion: Criterion, probability: float) -> float:
        """Return the calibrated probability of ``criterion``."""
        curve = self.families.get(family(criterion))
        return curve(probability) if curve else probability


def family(criterion: Criterion) -> str:
    """Return the name of the criterion's family: its first tag or, without tags, the kind of its scale."""
    return criterion.tags[0] if criterion.tags else criterion.scale.kind


_OPENAI = "api.openai.com"
_MAX_URL_CHARS = 2000
_LABEL = r"\w([\w-]{0,61}\w)?"
_HOST = re.compile(rf"(\[[0-9a-fA-F:.]+(%[\w.-]+)?\]|({_LABEL}\.)*{_LABEL}\.?)(:[0-9]*)?", re.ASCII)


def _address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0 or re.search(r"\s", url):
        raise ValueError("expected an http(s) URL with a host, such as http://127.0.0.1:8000/v1")
    if len(url) > _MAX_URL_CHARS or not url.isprintable():
        raise ValueError(f"a URL has at most {_MAX_URL_CHARS} characters, none of them a control character")
    if "\\" in url or "@" in parts.netloc:  # parsers disagree about the host of such a URL
        raise ValueError("a URL with a backslash or with a user is not allowed; name the key's variable in api_key_env")
    if not _HOST.fullmatch(parts.netloc):
        raise ValueError(f"no host: {cut(repr(parts.netloc), 80)}; write letters, digits and hyphens (é as in xn--9ca)")
    if "[" in parts.netloc:
        IPv6Address(parts.hostname)
    elif re.fullmatch(r"[0-9.]+", parts.hostname):
        IPv4Address(parts.hostname)
    if parts.hostname.rstrip(".") == _OPENAI and parts.scheme != "https":
        raise ValueError(f"the key would be sent in clear; use https://{_OPENAI}")
    return url


Address = Annotated[str, AfterValidator(_address)]  # an http(s) URL with a host, unchanged

NonEmptyText = Annotated[Text, Field(min_length=1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

Network = Annotated[str, AfterValidator(lambda text: str(ip_network(text)))]  # addresses of a network: ``10.0.0.0/8``


class Sampling(Value):
    """How the judge's replies are sampled."""

    temperature: float = Field(0.0, ge=0.0, description="Sampling temperature.")
    top_p: float = Field(1.0, gt=0.0, le=1.0, description="Nucleus sampling (top-p).")
    max_tokens: int = Field(1024, ge=1, le=1_000_000, description="Maximum tokens of a reply.")
    seed: int | None = Field(0, description="Seed of the sampling; null for none.")


class Voting(Value):
    """How several verdicts become one."""

    samples: int = Field(1, ge=1, le=100, description="Replies per question; a panel's members are asked once each.")
    rule: Rule = Field("mean", description="How several verdicts become one.")


class Thinking(Value):
    """Reasoning before the reply, between two marks or in the server's own field.

    ``budget_tokens`` is added to ``Sampling.max_tokens``: the protocol has one limit for both. Where the server counts
    reasoning tokens, a reply over the budget fails as ``truncated``.
    """

    budget_tokens: int = Field(2048, ge=1, le=1_000_000, description="Tokens of reasoning, beside the reply's.")
    opens: Text = Field("<think>", min_length=1, description="Mark before the reasoning.")
    closes: Text = Field("</think>", min_length=1, description="Mark after the reasoning.")


class Comparison(Value):
    """How completions of one prompt are compared: in pairs, each in both orders, or a group at once.

    A group larger than ``group_size`` is split into parts that share members. Groupwise scores are always written.
    """

    kind: Literal["pairwise", "groupwise"] = Field("groupwise", description="In pairs, in both orders, or a group.")
    group_size: int = Field(8, ge=2, le=26, description="Maximum completions in a call (groupwise).")
    opponents: int | None = Field(None, ge=1, description="Pairs for each completion (pairwise); by default all.")
    written: bool = Field(False, description="Written verdicts instead of one token (pairwise).")
    traces: bool = Field(False, description="Show whole trajectories instead of last messages.")
    top_n: int | None = Field(None, ge=1, description="Give the best n of a group 1 and the others 0.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kind == "groupwise" and (self.opponents or self.written):
            raise ValueError("opponents and written need kind: pairwise")
        return self


class TrajectoryOptions(Value):
    """How a trajectory is judged: after each ``segment`` steps, the judge is asked about the last of them."""

    segment: int = Field(1, ge=1, le=1000, description="Steps after which the judge is asked about the last of them.")
    value: Literal["last", "mean", "median", "min"] = Field("mean", description="How segments' verdicts become one.")
    written: bool = Field(False, description="Written verdicts instead of one token.")


class Price(Value):
    """US dollars per million tokens."""

    prompt: float = Field(0.0, ge=0.0, le=1e6, description="Price of prompt tokens.")
    cached: float | None = Field(None, ge=0.0, le=1e6, description="Price of cached prompt tokens, if it is another.")
    completion: float = Field(0.0, ge=0.0, le=1e6, description="Price of completion tokens.")

    def cost(self, usage: Usage) -> float:
        """Return the cost of a call in US dollars."""
        cached = usage.cached or 0
        cached_price = self.prompt if self.cached is None else self.cached
        prompt = (usage.prompt - cached) * self.prompt + cached * cached_price
        return (prompt + usage.completion * self.completion) / 1e6


class Endpoint(Value):
    """How a judge's server is reached. It does not change verdicts, so it is not part of their fingerprint."""

    base_url: Address | None = Field(None, description="OpenAI-compatible server; by default api.openai.com.")
    api_key_env: Text | None = Field(None, description="Environment variable with the server's key.")
    timeout_s: float = Field(120.0, gt=0.0, le=3600.0, description="Seconds per request.")
    max_retries: int = Field(4, ge=0, le=20, description="Retries of a request.")
    outage_timeout_s: float = Field(120.0, ge=0.0, le=86400.0, description="Seconds to wait for a server that is down.")
    concurrency: int = Field(64, ge=1, le=4096, description="Simultaneous requests of all workers.")
    requests_per_minute: int | None = Field(None, ge=1, description="Rate limit of all workers.")
    prompt_lists: bool = Field(True, description="Send a completion's readouts in one request, where possible.")
    structured: Literal["auto", "on", "off"] = Field("auto", description="Send response_format; auto: unless it fails.")
    price: Price | None = Field(None, description="Price in US dollars per million tokens.")

    @property
    def key_variable(self) -> str | None:
        """The environment variable that holds the key for this endpoint, if any."""
        if self.api_key_env or self.base_url is None:
            return self.api_key_env or "OPENAI_API_KEY"
        return "OPENAI_API_KEY" if urlsplit(self.base_url).hostname == _OPENAI else None


class Judge(Content):
    """A judge of completions.

    ``require_evidence`` fails a verdict with a quote that is not in the completion, and a positive one without a quote
    of at least three words or twelve characters.

    A ``panel`` asks its ``members`` and aggregates their verdicts by ``voting``. A ``cascade`` asks the next member
    where the probability (calibrated, if it can be) lies within ``band``. Both have no model of their own.
    """

    name: Title = Field(min_length=1, description="Name of the judge.")
    engine: NonEmptyText = Field("openai_http", description="Engine: openai_http, transformers_local or vllm_local.")
    model: Text = Field("", description="Name of the model; empty for a panel or a cascade.")
    revision: Text | None = Field(None, description="Revision of the model.")
    mode: Mode = Field("readout", description="Way of judging.")
    template: Text | None = Field(None, description="Name of the prompt template; by default that of the mode.")
    criteria_per_call: int = Field(1, ge=0, description="Criteria in a call of a judge that writes; 0: all.")
    sampling: Sampling = Field(default_factory=Sampling, description="How replies are sampled.")
    threshold: float | None = Field(None, gt=0.0, lt=1.0, description="Probability from which a readout is 1, else 0.")
    min_answer_mass: float = Field(0.5, ge=0.0, le=1.0, description="Minimum total probability of a readout's labels.")
    max_context: int | None = Field(None, ge=1, description="Maximum prompt tokens; longer prompts fail as too_long.")
    endpoint: Endpoint = Field(default_factory=Endpoint, description="How the server is reached.")
    require_evidence: bool | None = Field(None, description="Fail verdicts without true quotes.")
    voting: Voting | None = Field(None, description="How several verdicts become one.")
    thinking: Thinking | None = Field(None, description="Reasoning before the reply.")
    comparison: Comparison | None = Field(None, description="Options of mode comparative.")
    trajectory: TrajectoryOptions | None = Field(None, description="Options of mode trajectory.")
    members: tuple["Judge", ...] | None = Field(None, description="Judges of a panel or a cascade.")
    band: tuple[UnitInterval, UnitInterval] | None = Field(None, description="Probabilities that a cascade passes on.")
    calibration: Calibration | None = Field(None, description="Calibration of a readout's probability.")
    adapter: NonEmptyText | None = Field(None, description="Folder of a LoRA adapter, or `embedded` (shipped).")
    weights_sha256: Sha256 | None = Field(None, description="SHA-256 of the adapter's or the model's weights.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        members, several = self.members or (), self.mode in ("panel", "cascade")
        if several and (self.model or len(members) < 2):
            raise ValueError(f"a {self.mode} needs two or more members and no model of its own")
        if not several and (members or not self.model):
            raise ValueError(f"a {self.mode} judge needs a model and no members")
        if members:
            reject_duplicates("member name", [member.name for member in members])
            if any(leaf.mode == "comparative" for leaf in self.leaf_judges):
                raise ValueError(f"a comparative judge cannot be a member of a {self.mode}: it needs a group")
        if (self.band is not None) != (self.mode == "cascade") or (self.band and self.band[0] > self.band[1]):
            raise ValueError("a band (two probabilities, the lower first) is required for a cascade, and only there")
        if self.voting and self.voting.samples > 1 and (self.mode != "written" or self.sampling.temperature == 0):
            raise ValueError("several samples need mode: written and a temperature above 0; otherwise all are the same")
        for option in ("adapter", "weights_sha256"):
            if getattr(self, option) and self.engine not in LOCAL:
                raise ValueError(f"{option} needs engine: {' or '.join(sorted(LOCAL))}, found {self.engine}")
        for option, modes in _MODES_OF_OPTION.items():
            if getattr(self, option) and self.mode not in modes:
                raise ValueError(f"{option} needs mode: {' or '.join(modes)}, found {self.mode}")
        if (self.thinking or self.require_evidence) and self.reads_labels:
            raise ValueError("thinking and require_evidence need written: true in comparison or trajectory")
        if self.require_evidence and self.mode == "comparative" and not self.pairwise:
            needed = "comparison: {kind: pairwise, written: true}"
            raise ValueError(f"require_evidence needs {needed}; groups are not quoted")
        return self

    @property
    def effective_comparison(self) -> Comparison:
        """The comparison options in force."""
        return self.comparison or Comparison()

    @property
    def reads_labels(self) -> bool:
        """Whether verdicts are read from the probabilities of labels."""
        pairs = self.pairwise and not self.effective_comparison.written
        return pairs or self.mode == "readout" or (self.mode == "trajectory" and not self.effective_trajectory.written)

    @property
    def pairwise(self) -> bool:
        """Whether the judge compares in pairs."""
        return self.mode == "comparative" and self.effective_comparison.kind == "pairwise"

    @property
    def effective_trajectory(self) -> TrajectoryOptions:
        """The trajectory options in force."""
        return self.trajectory or TrajectoryOptions()

    @property
    def leaf_judges(self) -> tuple["Judge", ...]:
        """The judges that ask a model: this one, or its members at any depth."""
        return tuple(leaf for member in self.members for leaf in member.leaf_judges) if self.members else (self,)

    def map_leaves(self, change: Callable[["Judge"], "Judge"]) -> "Judge":
        """Return the judge with each of its leaf judges changed."""
        if not self.members:
            return change(self)
        return self.model_copy(update={"members": tuple(member.map_leaves(change) for member in self.members)})

    @property
    def priced(self) -> bool:
        """Whether the price of any leaf judge is known."""
        return any(leaf.endpoint.price for leaf in self.leaf_judges)

    @property
    def unpriced(self) -> list[str]:
        """The names of the leaf judges that may cost money and have no price."""
        return [leaf.name for leaf in self.leaf_judges if leaf.engine not in FREE and leaf.endpoint.price is None]

    @property
    def calibrated(self) -> bool | None:
        """Whether every readout in this judge is calibrated; None without readouts."""
        known = [member.calibrated for member in self.members or ()]
        if self.mode == "readout":
            known.append(self.calibration is not None)
        readouts = [calibrated for calibrated in known if calibrated is not None]
        return all(readouts) if readouts else None

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of everything but names and endpoints, 64 hex digits.

        Options equal to those in force where they are unset are left out, so that spelling them out changes nothing.
        An adapter is named by the digest of its weights, if that is set, so that its folder may be moved.
        """
        left_out = {name for name, unset in _UNSET.items() if getattr(self, name) == unset}
        if self.weights_sha256:
            left_out.add("adapter")
        unused = {} if self.reads_labels else {"min_answer_mass": 0.1}  # as in the digests of its first default
        content = self.model_copy(update=dict.fromkeys(("name", "endpoint", "members", *left_out)) | unused)
        return digest(content, [member.digest for member in self.members or ()])


_WRITING = ("written", "comparative", "trajectory")
_MODES_OF_OPTION = {"calibration": ("readout",), "thinking": _WRITING, "require_evidence": _WRITING}
_MODES_OF_OPTION |= {"comparison": ("comparative",), "trajectory": ("trajectory",)}
_UNSET = {"voting": Voting(), "comparison": Comparison(), "trajectory": TrajectoryOptions(), "require_evidence": False}
"""Optional fields with the options in force where they are unset."""


class JudgedCompletion(Value):
    """A completion with a judge's verdicts, or people's labels, under one rubric version, for a training."""

    id: int = Field(description="Id of the completion, or of the item that has the verdicts.")
    prompt: Prompt = Field(description="The prompt.")
    completion: Completion = Field(description="The completion.")
    rubric: Rubric = Field(description="The rubric version.")
    verdicts: tuple[Verdict, ...] = Field((), description="The judge's verdicts.")
    labels: tuple[Label, ...] = Field((), description="People's labels.")
    left_out: dict[str, int] = Field({}, description="Number of other labels: superseded, or of an other_question.")


CHECKS = Judge(name="checks", engine="none", model="none", mode="written")
"""The judge without a model, of rubrics whose criteria are all checked."""


def orders_disagree(first: float, second: float) -> bool:
    """Return whether the two orders of a pair have different winners; both scores are of the same member."""
    return (first - 0.5) * (second - 0.5) < 0


def voting_summary(judge: Judge, votes: Iterable[Sequence[Vote]]) -> dict[str, float]:
    """Return figures of the voting in a job of a panel, a cascade or a pairwise judge; unknown ones are left out.

    A panel has ``mean_spread`` of the standard deviations of its members' values, a cascade ``resolved_early``, the
    share of verdicts without its last member, and a pairwise judge ``order_disagreement``, the share of pairs whose two
    orders have different winners. ``votes`` are those of each verdict.
    """
    cast, name, figure = [each for each in votes if each], "", None
    if judge.mode == "panel":
        values = [[vote.value for vote in each if vote.value is not None] for each in cast]
        name, figure = "mean_spread", mean_known(pstdev(each) for each in values if len(each) > 1)
    elif judge.mode == "cascade":
        name, figure = "resolved_early", mean_known(len(each) < len(judge.members or ()) for each in cast)
    elif judge.pairwise:
        orders = (pair for each in cast for pair in zip(each[::2], each[1::2], strict=False))  # adjacent votes
        scored = [(a.value, b.value) for a, b in orders if a.value is not None and b.value is not None]
        name, figure = "order_disagreement", mean_known(float(orders_disagree(a, b)) for a, b in scored)
    return {} if figure is None else {name: round(figure, 4)}
