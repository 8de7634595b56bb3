"""Configuration of a training run, and its TOML file. docs/training.md describes every field."""

import hashlib
import math
import os
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date, time
from functools import partial
from os.path import normpath
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rubricsvc.core.base import UnitInterval
from rubricsvc.core.evolution import Approve
from rubricsvc.core.judge import Address, Judge, Network
from rubricsvc.core.validation_messages import FieldMessage, FieldPath, closest, field_messages, models_in
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.schemas.runs import OF_TOOLS, REWARD
from trainer.algorithms import PRESETS, SUPERVISED

Config = TypeVar("Config", bound="ConfigSection")

MAX_PLACES = 2
"""Tables that are named for a field that is in the wrong one."""
MAX_DEPTH = 32
"""Tables and lists within each other."""


class ConfigSection(BaseModel):
    """Base of the file's tables. An unknown field is an error: a misspelt setting must not train with the default."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


def _resolved(path: Path, info: ValidationInfo, rule: Literal["", "file", "output"] = "") -> Path:
    """Return a path in a file, which is relative to the file's folder, as one relative to the working folder.

    By the ``rule`` it is a ``file``, or an ``output`` folder without the configuration in it.
    """
    if not isinstance(info.context, Path):
        return path
    found = Path(normpath(info.context / path))
    if rule == "file" and not found.is_file():
        raise ValueError(f"no such file: {found}")
    if rule == "output" and info.context.resolve().is_relative_to(found.resolve()):
        raise ValueError(f"{found} holds the configuration itself; name a folder of its own")
    return found


PathBeside = Annotated[Path, AfterValidator(_resolved)]
InputPath = Annotated[Path, AfterValidator(partial(_resolved, rule="file"))]
OutputFolder = Annotated[Path, AfterValidator(partial(_resolved, rule="output"))]


def read_toml(
    path: Path,
    model: type[Config],
    defaults: Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
) -> Config:
    """Return the values of a TOML file, whose paths are relative to it.

    ``defaults`` are those of fields that it leaves out; ``changes`` are in place of its own, by dotted path.
    """
    try:
        data = dict(defaults) | tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotFoundError(f"cannot read {path}: {error.strerror}", path=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidError(f"{path} is not TOML: {error}", path=str(path)) from error
    except (RecursionError, ValueError) as error:  # limits of tomllib
        message = f"{path} has an integer of thousands of digits, or is nested too deep"
        raise InvalidError(message, hint="correct the file", path=str(path)) from error
    for dotted, value in (changes or {}).items():  # a table on the way that is missing is added
        *tables, name = dotted.split(".")
        inner = data
        for table in tables:
            inner = inner.setdefault(table, {})
            if not isinstance(inner, dict):
                raise InvalidError(f"{dotted} is not in a table", hint=f"{table} is a value", path=dotted)
        inner[name] = value
    config: Config | None = None
    problems = list(_unusable(data))
    if not problems:
        try:
            config = model.model_validate(data, context=path.parent)
        except ValidationError as error:
            for one in field_messages(error, model=model, data=data):
                unknown = one.code == "extra_forbidden"
                places = dict.fromkeys(path for path in _paths(model) if unknown and path[-1] == one.path[-1])
                if places:  # where a field of this name belongs
                    named = " or ".join(".".join(path) for path in sorted(places, key=len)[:MAX_PLACES])
                    one = one._replace(message=f"unknown field in this table; did you mean {named}?")  # noqa: PLW2901
                problems.append(one)
    if config is None or problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise InvalidError(f"{path} is not a training configuration:\n{lines}", path=str(path))
    return config


def _unusable(value: Any, path: FieldPath = ()) -> Iterator[FieldMessage]:
    """Yield the values of TOML that no field takes."""
    if len(path) > MAX_DEPTH:
        yield FieldMessage(path[:1], f"expected at most {MAX_DEPTH} tables and lists within each other", "depth")
    elif isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _unusable(item, (*path, name))
    elif isinstance(value, date | time):
        yield FieldMessage(path, f"expected no date or time, found {value}; put it in quotes", "date")
    elif isinstance(value, float) and not math.isfinite(value):
        yield FieldMessage(path, f"expected a finite number, found {value}", "finite_number")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield FieldMessage(path, "must fit into 64 bits", "int_too_large")
    elif isinstance(value, str) and "\0" in value:
        yield FieldMessage(path, "expected no NUL character", "nul")


def _paths(model: type[BaseModel], above: tuple[type[BaseModel], ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every field at any depth; a model within itself is not entered again."""
    for name, field in model.model_fields.items():
        yield (name,)
        for inner in models_in(field.annotation):
            if inner not in (*above, model):
                yield from ((name, *rest) for rest in _paths(inner, (*above, model)))


class McpServer(ConfigSection):
    """A server of the Model Context Protocol: a ``command`` that is started on this machine, or a ``url``."""

    name: str
    command: tuple[str, ...] = ()
    url: Address | None = None
    allowed_tools: tuple[str, ...] = ()
    prefix: str = ""
    env: tuple[str, ...] = ()
    api_key_env: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if bool(self.command) == (self.url is not None):
            raise ValueError(f"MCP server {self.name!r}: expected either `command` or `url`")
        return self


class ToolsConfig(ConfigSection):
    """Tools that an environment has beside its own: those of MCP servers."""

    mcp: tuple[McpServer, ...] = Field(default=())


class EnvironmentConfig(ConfigSection):
    """An environment that the policy acts in, with tools; a completion is then an episode of several turns.

    A search with ``snippet_chars`` 0 shows ids and titles only; with ``search_opens`` it opens its first document
    and is the only tool: a message without a call is the report. With ``notes``, ``max_tokens`` count since the last.
    """

    name: Literal["research", "calculator", "mcp"]
    collection: str | None = None
    max_turns: int = Field(default=8, ge=1)
    max_tokens: int = Field(default=1024, ge=2)
    max_result_chars: int = Field(default=2000, ge=1)
    snippet_chars: int = Field(default=160, ge=0)
    search_opens: bool = False
    tool_timeout_s: float = Field(default=10.0, gt=0.0)
    notes: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.name == "research") != (self.collection is not None):
            raise ValueError(
                f"environment {self.name!r} {'needs' if self.name == 'research' else 'has no'} `collection`"
            )
        return self


class DataSource(ConfigSection):
    """Prompts with their rubrics: those of a file, or stored ones."""

    path: InputPath | None = None
    format: str | None = None
    store: tuple[str, ...] = ()

    @property
    def given(self) -> list[str]:
        """The names of the fields that name prompts."""
        return [name for name in ("path", "store", "domains") if getattr(self, name, None)]


class DataConfig(DataSource):
    """The prompts to train on: of one source, or of several named ``domains``."""

    domains: dict[str, DataSource] = Field(default={})

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.given) != 1:
            raise ValueError(f"expected one of path, store and domains, found {' and '.join(self.given) or 'none'}")
        for name, source in self.domains.items():
            if len(source.given) != 1:
                found = " and ".join(source.given) or "neither"
                raise ValueError(f"domains.{name}: expected one of path and store, found {found}")
        return self


class DemonstrationsConfig(ConfigSection):
    """Demonstrations that the policy learns before the run. Of a script a share is ``brief``: without quotes."""

    path: InputPath | None = None
    brief: UnitInterval = 0.0
    steps: int = Field(default=16, ge=1)
    lr: float = Field(default=1e-4, gt=0.0)


class PromptsConfig(ConfigSection):
    """Which prompts a step has. Without this table every prompt comes once before any comes again."""

    weights: dict[str, Annotated[float, Field(gt=0.0, le=1e100)]] = Field(default={})
    max_resamples: int = Field(default=0, ge=0)


CHECKS = "checks"
"""The score of the checks alone; `REWARD` is that of the training."""


class LoraConfig(ConfigSection):
    """A low-rank adapter (LoRA, arXiv 2106.09685): W + alpha / rank · B·A, on linear layers from ``first_layer``."""

    rank: int = Field(default=16, ge=1, le=1024)
    alpha: float = Field(default=32.0, gt=0.0, le=1e5)
    first_layer: int = Field(default=0, ge=0)


class PolicyConfig(ConfigSection):
    """The policy."""

    model: str = "embedded"
    fold_system: bool = False
    dtype: Literal["bfloat16", "float32"] | None = None
    device: str | None = None
    chat_template_kwargs: dict[str, JsonValue] | None = None
    lora: LoraConfig | None = None


class SamplingConfig(ConfigSection):
    """Sampling of rollouts: a step has prompts times group completions."""

    prompts_per_step: int = Field(default=4, ge=1)
    group_size: int = Field(default=8, ge=2)
    max_new_tokens: int = Field(default=256, ge=1)
    temperature: float = Field(default=1.0, gt=0.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    server: Address | None = None


class OptimConfig(ConfigSection):
    """AdamW, advantages (`trainer.algorithms.advantages`) and the loss (`trainer.algorithms.losses`).

    ``algorithm`` gives some of these fields other defaults.
    """

    lr: float = Field(default=1e-5, gt=0.0)
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.0, ge=0.0)
    grad_clip: float = Field(default=1.0, gt=0.0)
    baseline: Literal["group", "leave_one_out", "batch"] = "group"
    divide_by: Literal["group", "domain", "batch", "rewards", "mean", "none"] = "group"
    by_criterion: bool = False
    std_floor: Annotated[float, Field(ge=0.0)] | Literal["judge"] = "judge"
    pairwise_accuracy: (
        Annotated[float, Field(gt=0.0)] | Annotated[tuple[tuple[float, UnitInterval], ...], Field(min_length=1)] | None
    ) = None
    credit: UnitInterval = 0.0
    surrogate: Literal["clip", "cispo"] = "clip"
    ratio: Literal["token", "completion_mean", "completion"] = "token"
    aggregate: Literal["tokens", "completions", "constant"] = "tokens"
    clip_low: float = Field(default=0.2, gt=0.0, lt=1.0)
    clip_high: float = Field(default=0.28, gt=0.0)
    clip_dual: float | None = Field(default=None, gt=1.0)
    kl: Literal["k1", "k2", "k3"] = "k3"
    kl_in: Literal["loss", "reward"] = "loss"
    kl_weighted: bool = False
    kl_beta: float = Field(default=0.0, ge=0.0)
    kl_every: int = Field(default=5, ge=0)
    correction: Literal["token_truncate", "token_mask", "completion_truncate", "completion_mask", "none"] = (
        "token_truncate"
    )
    correction_max: float = Field(default=2.0, gt=1.0)
    updates_per_batch: int = Field(default=1, ge=1)
    micro_tokens: int = Field(default=8192, ge=1)

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        if self.pairwise_accuracy is not None and (self.baseline == "batch" or self.by_criterion):
            raise ValueError("pairwise_accuracy: is within groups; remove `baseline = batch` or `by_criterion`")
        if self.std_floor not in ("judge", 0) and (self.divide_by in ("mean", "none") or self.by_criterion):
            raise ValueError("std_floor: advantages are not divided by a deviation of rewards here; remove it")
        if self.ratio != "token" and self.aggregate != "completions":
            raise ValueError('ratio: a completion has one ratio; set aggregate = "completions"')
        if self.clip_dual is not None and (self.surrogate == "cispo" or self.clip_dual <= 1 + self.clip_high):
            raise ValueError("clip_dual: expected more than 1 + clip_high, and `surrogate = clip`")
        if self.kl_beta and self.kl == "k1" and self.kl_in == "loss" and not self.kl_weighted:
            raise ValueError("kl: the gradient of k1 in the loss is 0 on average; set kl_weighted, or kl_in = reward")
        if self.kl_in == "reward" and (self.kl_weighted or self.by_criterion):
            raise ValueError("kl_in: `kl_weighted` and `by_criterion` need the penalty in the loss")
        return self


LocalJudge = Annotated[
    Annotated[str, Tag("name")] | Annotated[Judge, Tag("local")],
    Discriminator(lambda value: "name" if isinstance(value, str) else "local"),
]
"""The name of a judge in the database, or a judge's own fields."""


class EvolveConfig(ConfigSection):
    """Evolution of the rubrics while the policy trains: rounds of proposals, from groups of its completions."""

    proposer: LocalJudge
    trusted: LocalJudge | None = None
    approve: Approve = "auto"
    every: int = Field(default=10, ge=1)
    shown: int = Field(default=8, ge=2, le=64)
    max_proposals: int = Field(default=4, ge=1, le=20)
    max_active: int = Field(default=5, ge=1, le=100)
    weight: float = Field(default=0.1, gt=0.0, le=1.0)
    min_separation: float = Field(default=0.05, ge=0.0, lt=0.5)
    retest_every: int = Field(default=50, ge=1)
    budget: float | None = Field(default=None, gt=0.0)

    @property
    def judges(self) -> dict[str, str | Judge]:
        """The judges that are named, by field."""
        return {"proposer": self.proposer} | ({"trusted": self.trusted} if self.trusted is not None else {})

    @field_validator("proposer")
    @classmethod
    def _has_a_model(cls, proposer: str | Judge) -> str | Judge:
        if isinstance(proposer, Judge) and not proposer.model:
            raise ValueError(f"a {proposer.mode} has no model of its own; name one of its members")
        return proposer


class ServiceJudge(ConfigSection):
    """The judge ``name`` of a running ``rubricsvc serve`` at the URL ``service``; the key is ``RUBRICSVC_API_KEY``."""

    service: str
    name: str
    timeout_s: float = Field(default=1800.0, gt=0.0)


JudgeSetting = Annotated[
    Annotated[str, Tag("name")] | Annotated[ServiceJudge, Tag("service")] | Annotated[Judge, Tag("local")],
    Discriminator(
        lambda value: (
            {str: "name", ServiceJudge: "service"}.get(type(value))
            or ("service" if isinstance(value, dict) and "service" in value else "local")
        )
    ),
]
"""The name of a judge in the database, a judge of a service, or a judge's own fields."""


class OtherPromptsConfig(ConfigSection):
    """Prompts of another collection: does the policy search there as well?"""

    path: InputPath
    collection: str


BaselineName = Literal["before_demonstrations", "start", "best_of_n", "best_of_n_supervised", "without_tools",
                       "empty_results", "script", "other"]  # fmt: skip


class EvalConfig(DataSource):
    """Evaluation on held-out prompts: of the starting policy, every ``every`` steps, and at the end."""

    share: float | None = Field(default=None, gt=0.0, lt=1.0)
    every: int = Field(default=50, ge=1)
    samples: int = Field(default=4, ge=1)
    greedy: bool = True
    judges: tuple[JudgeSetting, ...] = ()
    checks: bool = False
    gold: str | None = None
    baselines: bool | tuple[BaselineName, ...] = False
    other: OtherPromptsConfig | None = None
    stop_on_divergence: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        given = self.given + ["share"] * (self.share is not None)
        if len(given) != 1:
            raise ValueError(f"expected one of path, store and share, found {' and '.join(given) or 'none'}")
        names = self.score_names
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two scores are named {repeated[0]!r}; name each judge apart, and none reward or checks")
        if self.gold is not None and self.gold not in names:
            raise ValueError(f"unknown score {self.gold!r} in gold; {closest(self.gold, names)}")
        if not isinstance(self.baselines, bool) and "other" in self.baselines and self.other is None:
            raise ValueError("baselines: `other` needs the table [eval.other]")
        return self

    @property
    def score_names(self) -> list[str]:
        """The names of all scores: the training reward's, the judges', the checks'."""
        judges = [one if isinstance(one, str) else one.name for one in self.judges]
        return [REWARD, *judges, *([CHECKS] if self.checks else [])]

    @property
    def gold_name(self) -> str:
        """The score that the best checkpoint is chosen by."""
        return self.gold or (self.score_names[1:] or [REWARD])[0]


ControlName = Literal["random", "shuffled", "frozen"]


class ControlConfig(ConfigSection):
    """A control of a run: ``reward`` replaces the training reward (`trainer.rewards`), evaluations keep it."""

    reward: ControlName


_MUTABLE_SETTINGS = {
    "steps", "out", "data.path", "data.format", "checkpoint_every", "keep_checkpoints", "max_unscored",
    "pause_after", "max_pause_s", "scored_by", "score_timeout_s", "local_only", "local_networks",
    "criterion_metrics", "trackers", "policy.device", "sampling.server", "optim.micro_tokens", "judge.endpoint",
    "judge.service", "judge.timeout_s", "optim.kl_every", "data.store", "data.domains", "demonstrations.path",
}  # fmt: skip
"""Settings that may change at a resume: they do not affect what is learned. Data is compared by content."""

_MUTABLE_NESTED: Any = {"evolve": {"proposer": {"endpoint"}, "trusted": {"endpoint"}, "budget": True}, "eval": True}
"""Nested settings that may change, too; evaluations compare their own (`trainer.evaluation`)."""

Identity = dict[str, Any]
"""The settings that a resumed run must share, by dotted name, and the digests of its tasks and of its judge."""


class TrainConfig(ConfigSection):
    """Settings of `trainer.loop.train`. With ``out`` unset nothing is written.

    ``algorithm`` is a preset (`trainer.algorithms.PRESETS`), a Python file (`trainer.algorithms.custom`), or the
    baseline ``best_of_n_supervised``. ``overlong`` changes the rewards that are learned from, not those on record.
    """

    steps: int = Field(ge=1)
    seed: int = 0
    algorithm: str = "dapo"
    overlong: Literal["keep", "mask", "mask_loss", "zero", "soft"] = "keep"
    out: OutputFolder | None = None
    checkpoint_every: int = Field(default=50, ge=0)
    keep_checkpoints: int = Field(default=2, ge=1)
    max_unscored: float = Field(default=0.25, ge=0.0, le=1.0)
    pause_after: int = Field(default=3, ge=1)
    max_pause_s: float = Field(default=86400.0, ge=0.0)
    criterion_metrics: bool = False
    policy: PolicyConfig = PolicyConfig()
    sampling: SamplingConfig = SamplingConfig()
    environment: EnvironmentConfig | None = None
    tools: ToolsConfig = ToolsConfig()
    optim: OptimConfig = OptimConfig()
    prompts: PromptsConfig | None = None
    demonstrations: DemonstrationsConfig | None = None
    evolve: EvolveConfig | None = None
    control: ControlConfig | None = None
    eval: EvalConfig | None = None

    @field_validator("algorithm")
    @classmethod
    def _known(cls, name: str, info: ValidationInfo) -> str:
        known = [*PRESETS, SUPERVISED]
        if name not in known and not name.endswith(".py"):
            raise ValueError(f"unknown algorithm {name!r}; expected {', '.join(known)}, or a Python file (*.py)")
        return name if name in known else str(_resolved(Path(name), info, "file"))

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, data: Any) -> Any:
        """Fill in what the preset says of fields that are not set."""
        preset = PRESETS.get(str(data.get("algorithm"))) if isinstance(data, dict) else None
        given = data.get("optim", {}) if preset else None
        if isinstance(given, OptimConfig):
            given = given.model_dump(exclude_unset=True)
        return data | {"optim": preset | given} if preset and isinstance(given, dict) else data

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        if self.sampling.server is not None and self.sampling.top_p < 1.0:
            raise ValueError(f"sampling.top_p = {self.sampling.top_p:g}: a server samples from all tokens; remove one")
        if self.overlong == "soft" and self.environment is not None:
            raise ValueError("overlong: soft is for single messages, not for episodes; choose mask or zero")
        if self.tools.mcp and self.environment is None:
            raise ValueError('tools: needs a table [environment]; name = "mcp" has no tools but these')
        if self.environment is not None and self.environment.name == "mcp" and not self.tools.mcp:
            raise ValueError("environment `mcp`: name its servers with [tools] mcp = [{name = …, command = […]}]")
        return self

    def identity(
        self, tasks_digest: str, std_floor: float, judge_digest: str | None = None, base_sha256: str | None = None
    ) -> Identity:
        """Return what must be the same for a run to be resumed, of which its tasks are given by their digest.

        ``std_floor`` is the number that ``optim.std_floor`` stands for: a judge may have been measured since. The judge
        is that of the reward source, which may have only its name. A policy in a folder is named by its path from the
        run's folder: both may be moved together.
        """
        flat: Identity = {}
        for name, value in self.model_dump(mode="json", exclude=_MUTABLE_NESTED).items():
            flat |= {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, dict) else {name: value}
        fixed = {name: value for name, value in flat.items() if name not in _MUTABLE_SETTINGS and value is not None}
        pinned = {"judge_digest": judge_digest} if judge_digest else {}
        pinned |= {"policy.base_sha256": base_sha256} if base_sha256 else {}  # of an adapter's base
        if self.algorithm.endswith(".py"):  # what it is, wherever it lies
            pinned["algorithm"] = hashlib.sha256(Path(self.algorithm).read_bytes()).hexdigest()
        if self.out is not None and Path(self.policy.model).is_dir():
            pinned["policy.model"] = os.path.relpath(Path(self.policy.model).resolve(), self.out.resolve())
        return {**fixed, **pinned, "optim.std_floor": std_floor, "tasks": tasks_digest}


class RunConfig(TrainConfig):
    """A whole run, as its file describes it: the settings of training, the data and the judge."""

    data: DataConfig
    judge: JudgeSetting
    out: OutputFolder
    scored_by: Literal["celery", "in_process"] = "celery"
    score_timeout_s: float = Field(default=1800.0, gt=0.0)
    trackers: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = ()
    local_only: bool = False
    local_networks: tuple[Network, ...] = ()

    @property
    def gold_judge(self) -> Judge | ServiceJudge | None:
        """The judge that the gold score of evaluations is by; None where that is the reward or checks."""
        named = [one for one in self.eval.judges if not isinstance(one, str)] if self.eval is not None else []
        return next((one for one in named if self.eval is not None and one.name == self.eval.gold_name), None)

    @model_validator(mode="after")
    def _tables_agree(self) -> Self:
        if len(set(self.trackers)) < len(self.trackers):
            raise ValueError("trackers: name each tracker once")
        environment = self.environment.name if self.environment is not None else None
        if self.demonstrations is not None and self.demonstrations.path is None and environment != "research":
            raise ValueError("demonstrations: set `path`; only the environment `research` has a script")
        settings = self.eval
        for name in settings.baselines if settings is not None and not isinstance(settings.baselines, bool) else ():
            if name in OF_TOOLS and environment is None:
                raise ValueError(f"eval.baselines: {name!r} needs an environment")
            if name in ("script", "other") and environment != "research":
                raise ValueError(f"eval.baselines: {name!r} needs the environment `research`")
        if settings is not None and settings.other is not None and environment != "research":
            raise ValueError("eval.other: another collection needs the environment `research`")
        if isinstance(self.judge, ServiceJudge) and self.scored_by == "in_process":
            raise ValueError("scored_by: a judge of a service is asked by the service's workers")
        if self.prompts is not None:
            if self.prompts.max_resamples and self.evolve is not None:
                rule = "rubrics that evolve need all groups of a step; remove one of the two"
                raise ValueError(f"prompts.max_resamples: {rule}")
            if unknown := [name for name in self.prompts.weights if name not in self.data.domains]:
                hint = closest(unknown[0], self.data.domains)
                raise ValueError(f"prompts.weights: unknown domain {unknown[0]!r}; {hint}")
        return self


def load_config(path: Path, *, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """Return the run that a TOML file describes. Its paths are relative to the file; ``out`` is ``runs/<name>``.

    ``policy.model`` is an absolute path where there is such a folder: it names the policy wherever the file is read.
    """
    config = read_toml(path, RunConfig, {"out": str(Path("runs", path.stem))}, changes)
    from workers.engines.local.models import default_dtype  # seconds, which an error above need not take

    if config.algorithm.endswith(".py"):
        from trainer.algorithms.custom import algorithm_of

        algorithm_of(config.algorithm, config.optim)
    policy: dict[str, Any] = {"dtype": config.policy.dtype or default_dtype(config.policy.device or "")}
    if config.policy.model != "embedded" and (model := (path.parent / config.policy.model).resolve()).is_dir():
        policy["model"] = str(model)
    return config.model_copy(update={"policy": config.policy.model_copy(update=policy)})
