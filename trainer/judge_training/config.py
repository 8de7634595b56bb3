"""Configuration of judge training, and its TOML file. docs/judge-training.md describes every field."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from rubricsvc.core.base import Text, Title
from rubricsvc.core.judge import LOCAL, Judge
from trainer.config import ConfigSection, LoraConfig, OutputFolder, PathBeside, read_toml
from workers.engines.local.embedded_model import EMBEDDED


class JudgeOptimConfig(ConfigSection):
    """AdamW. The learning rate rises over ``warmup_steps`` and falls linearly to ``final_lr`` times itself."""

    lr: float = Field(default=6e-4, gt=0.0)
    final_lr: float = Field(default=0.1, ge=0.0, le=1.0)
    warmup_steps: int = Field(default=20, ge=0)
    weight_decay: float = Field(default=0.0, ge=0.0)
    grad_clip: float = Field(default=1.0, gt=0.0)
    batch_examples: int = Field(default=16, ge=1)
    max_tokens: int = Field(default=4096, ge=64)


class ValidationConfig(ConfigSection):
    """Early stopping: the loss on the validation part every ``every`` steps; the best weights are kept."""

    every: int = Field(default=50, ge=1)
    stop_after: int = Field(default=5, ge=1)
    max_examples: int = Field(default=200, ge=1)


class SplitConfig(ConfigSection):
    """Shares of the prompts that are held out; ``held_out`` names families of criteria that only the test has."""

    held_out: tuple[str, ...] = ()
    test: float = Field(default=0.1, gt=0.0, lt=1.0)
    validation: float = Field(default=0.05, gt=0.0, lt=1.0)


class _Data(ConfigSection):
    """One data set of the mixture: ``weight`` is its share of the completions; ``license`` goes into the passport."""

    name: Title = Field(min_length=1)
    weight: float = Field(default=1.0, ge=0.0, le=1e5)
    license: Title = "not stated"


class _Files(_Data):
    """Files by a path that may hold ``*``. With ``optional``, absent ones are left out, and the passport says so."""

    path: PathBeside
    optional: bool = False

    @field_validator("path", mode="before")
    @classmethod
    def _named(cls, path: object) -> object:
        if not Path(str(path)).name:
            raise ValueError("must name a file or a pattern of files")
        return path


class FileData(_Files):
    """Files of completions with labels, in any format of docs/formats.md."""

    kind: Literal["file"]
    format: str | None = None


class QuestionData(_Files):
    """Files of questions whose answers are known by construction: an `Example` as JSON in each line."""

    kind: Literal["questions"]


class LabelData(_Data):
    """People's labels in the database: of all rubrics, jobs and people, or of those that are named."""

    kind: Literal["labels"]
    rubric: str | None = None
    job: int | None = None
    annotators: tuple[str, ...] = ()


class VerdictData(_Data):
    """Stored verdicts of another judge: its probabilities are the soft targets."""

    kind: Literal["verdicts"]
    judge: str
    job: int | None = None


DataConfig = Annotated[FileData | QuestionData | LabelData | VerdictData, Field(discriminator="kind")]


class JudgeTrainConfig(ConfigSection):
    """A whole training, as its file describes it. ``judge`` is the one that will be asked, its ``model`` the base."""

    judge: Judge
    data: tuple[DataConfig, ...] = Field(min_length=1)
    out: OutputFolder
    seed: int = 0
    steps: int = Field(default=400, ge=1)
    checkpoint_every: int = Field(default=50, ge=1)
    keep_checkpoints: int = Field(default=2, ge=1)
    dtype: Literal["bfloat16", "float32"] | None = None
    device: str = ""
    lora: LoraConfig = LoraConfig()
    optim: JudgeOptimConfig = JudgeOptimConfig()
    validation: ValidationConfig = ValidationConfig()
    split: SplitConfig = SplitConfig()
    license: Title = "not stated"
    description: Text = ""
    not_for: tuple[Text, ...] = ()
    test_examples: int = Field(default=400, ge=1)

    @field_validator("judge")
    @classmethod
    def _trainable(cls, judge: Judge) -> Judge:
        """Check that the judge is a readout of a model whose weights can be trained."""
        if judge.mode != "readout":
            raise ValueError(f"a {judge.mode} judge cannot be trained; mode is readout")
        if judge.engine not in LOCAL:
            raise ValueError(f"the model of engine {judge.engine} cannot be trained; use transformers_local")
        if judge.adapter:
            raise ValueError("a judge with an adapter cannot be trained again; train the result of `judges merge`")
        if judge.thinking:
            raise ValueError("a judge that thinks cannot be trained: data has no reasoning; leave thinking out")
        return judge

    @field_validator("data")
    @classmethod
    def _mixable(cls, data: tuple[DataConfig, ...]) -> tuple[DataConfig, ...]:
        names = [one.name for one in data]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two data sets are named {repeated!r}; give each a name of its own")
        if not any(one.weight for one in data):
            raise ValueError("every weight is 0; give one of the data a weight above 0")
        return data


def load_config(path: Path) -> JudgeTrainConfig:
    """Return the training that a TOML file describes; ``out`` is ``judges/<name>``.

    ``judge.model`` is a path where there is such a folder.
    """
    config = read_toml(path, JudgeTrainConfig, {"out": str(Path("judges", path.stem))})
    from workers.engines.local.models import default_dtype  # seconds, which an error above need not take

    judge, folder = config.judge, (path.parent / config.judge.model).resolve()
    if judge.model != EMBEDDED and folder.is_dir():
        judge = judge.model_copy(update={"model": str(folder)})  # also to a worker elsewhere
    return config.model_copy(update={"judge": judge, "dtype": config.dtype or default_dtype(config.device)})
