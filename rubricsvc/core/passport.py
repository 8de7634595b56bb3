"""The passport of a trained judge: what it was made from, what it reaches, and what it must not be used for."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from rubricsvc.core.audit import Audit, Figure, Repeatability
from rubricsvc.core.base import Text, Title, UnitInterval, Value
from rubricsvc.core.judge import Calibration, Judge, Mode, Sha256
from rubricsvc.errors import InvalidError

Measure = Literal["auroc", "macro_auroc", "accuracy", "brier", "ece", "pairwise_accuracy", "spearman"]
TRAINED, UNTRAINED = "trained", "untrained"
"""Scorers of a table: the judge of the passport, and its base."""

Count = Annotated[int, Field(ge=0)]


class Row(Value):
    """The figures of one scorer (a baseline or a judge) on one part of a test set."""

    scorer: Title = Field(description="Baseline or judge that gave the scores.")
    part: Text = Field("", description="Part of the set, such as a source or a variant; empty for all of it.")
    n: Count = Field(description="Questions.")
    positives: Count = Field(description="Questions with a label of 0.5 or more.")
    figures: dict[Measure, Figure] = Field(description="Figures by measure.")

    def __getitem__(self, measure: Measure) -> Figure:
        """Return the figure of a measure, without a value if it was not measured."""
        return self.figures.get(measure) or Figure()


class Table(Value):
    """The figures of baselines, the untrained and the trained judge on one test set, or on its parts only."""

    name: Text = Field(min_length=1, description="Name of the test set.")
    description: Text = Field("", description="What is in the test set, and what of it was not trained on.")
    measure: Measure = Field("auroc", description="Measure that sums the table up.")
    rows: tuple[Row, ...] = Field(description="A row for each scorer; baselines first.")

    @property
    def whole(self) -> list[Row]:
        """The rows of the whole set."""
        return [row for row in self.rows if not row.part]


class BaseWeights(Value):
    """The model that was trained."""

    name: Text = Field(description="Name of the base model.")
    revision: Text | None = Field(None, description="Revision of the base model.")
    license: Title = Field(description="License of the base model, as an SPDX identifier where there is one.")
    sha256: Sha256 = Field(description="Digest of the base model's weights, as in the adapter's base.json.")


class Form(Value):
    """How the judge was asked in training. Its figures hold for this form only."""

    mode: Mode = Field("readout", description="Way of judging.")
    template: Title | None = Field(None, description="Name of the prompt template.")
    template_digest: Sha256 | None = Field(None, description="SHA-256 of the prompt template.")
    scales: tuple[Literal["binary", "ordinal", "numeric"], ...] = Field(("binary",), description="Kinds of scale.")


class Training(Value):
    """How the judge was trained. With the same data, method, ``seed`` and ``options`` it can be trained again."""

    method: Literal["lora", "full"] = Field(description="Low-rank adapter, or all weights.")
    rank: int | None = Field(None, ge=1, description="Rank of the adapter.")
    seed: int = Field(description="Random seed.")
    steps: Count = Field(description="Optimiser steps up to these weights.")
    tokens: Count = Field(description="Tokens that were trained on, repeated ones included.")
    seconds: float = Field(ge=0.0, description="Duration of the steps, up to the one whose weights were kept.")
    machine: Title = Field("", description="Kind of machine in general words.")
    versions: dict[Title, Title] = Field(default_factory=dict, description="Versions of the software, by name.")
    options: dict[str, JsonValue] = Field(default_factory=dict, description="Further settings.")


class DataSource(Value):
    """One set of completions, without its duplicates; or one that was ``absent``, which has none."""

    name: Title = Field(description="Name of the set.")
    digest: Sha256 = Field(description="SHA-256 of its content.")
    license: Text = Field(description="License of the set; that of the texts for questions made by construction.")
    completions: Count = Field(description="Completions.")
    questions: Count = Field(description="Questions with a label, without duplicates.")
    duplicates: Count = Field(0, description="Repeated labels that were left out.")
    contradictions: Count = Field(0, description="Questions with different labels, whose mean was used.")
    left_out: dict[Title, Count] = Field({}, description="Labels that could not be trained on, by reason.")
    share: UnitInterval = Field(description="Share of the completions that were trained on.")
    absent: Text = Field("", description="Why the set was not there; empty if it was.")


class DataSplit(Value):
    """What was not on two sides of the split, and the number of questions of its parts."""

    by: Title = Field(description="What was kept on one side: prompt, completion, criterion or source.")
    sizes: dict[Title, Count] = Field(description="Questions by part.")
    held_out: tuple[Text, ...] = Field((), description="Criteria or sources that were not trained on.")


class CalibrationReport(Value):
    """The calibration of the judge, on a part that was not trained on."""

    part: Text = Field(description="Part of the data that the curves were fitted to, and the one that was measured.")
    calibration: Calibration | None = Field(None, description="Fitted curves.")
    before: Figure = Field(description="Expected calibration error without the curves.")
    after: Figure = Field(default_factory=Figure, description="Expected calibration error with them.")


class Passport(Value):
    """What a trained judge was made from, what it reaches, and what it must not be used for."""

    version: Literal[1] = Field(1, description="Version of this format.")
    created_at: datetime = Field(description="Time at which the passport was written.")
    description: Text = Field("", description="What the judge is for, in a sentence or two.")
    not_for: tuple[Text, ...] = Field(description="What the judge must not be used for, in sentences.")
    base: BaseWeights = Field(description="Model that was trained.")
    weights_sha256: Sha256 = Field(description="Digest of the adapter or of all weights, as in the judge's own field.")
    form: Form = Field(description="How the judge was asked in training.")
    training: Training = Field(description="How it was trained.")
    data: tuple[DataSource, ...] = Field(description="What it was trained on.")
    split: DataSplit = Field(description="How training and test data were kept apart.")
    tables: tuple[Table, ...] = Field((), description="Figures beside those of baselines, the main one first.")
    calibration: CalibrationReport | None = Field(None, description="Calibration.")
    repeatability: Repeatability | None = Field(None, description="Deviation when asked again.")
    audit: Audit | None = Field(None, description="Attacks on the trained judge.")

    def check_judge(self, judge: Judge) -> None:
        """Raise an InvalidError if this is not the passport of ``judge``."""
        weights, asked, template = judge.weights_sha256, self.form.mode, judge.template or judge.mode
        if judge.members:
            reason = f"a {judge.mode} has no weights of its own"
        elif weights and weights != self.weights_sha256:
            reason = f"it is of the weights {self.weights_sha256[:12]}…, and the judge has {weights[:12]}…"
        elif judge.mode != asked:
            reason = f"it is of a judge in mode {asked}, and this one is in mode {judge.mode}"
        elif self.form.template and template != self.form.template:
            reason = f"it is of the template {self.form.template}, and the judge has {template}"
        else:
            return
        hint = "give the passport that was written with the judge's weights"
        raise InvalidError(f"this is not the passport of judge {judge.name!r}: {reason}", hint=hint, path="passport")
