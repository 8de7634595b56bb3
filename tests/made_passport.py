"""A passport with made-up figures: nothing in it was measured."""

import math
from datetime import UTC, datetime

from rubricsvc.core.audit import Audit, Deviation, Figure, Measure, Rate, Repeatability, SuiteResult
from rubricsvc.core.judge import Calibration, Curve
from rubricsvc.core.passport import (
    BaseWeights,
    CalibrationReport,
    DataSource,
    DataSplit,
    Form,
    Passport,
    Row,
    Table,
    Training,
)

WEIGHTS = "ad" * 32
SCORERS = ("majority", "length", "overlap", "bag of words", "completion only", "criterion only", "untrained", "trained")


def made_passport() -> Passport:
    return Passport(
        created_at=datetime(2001, 2, 3, 4, 5, tzinfo=UTC),
        description="A made-up judge for tests.",
        not_for=(
            "Facts that are not shown in the prompt: it knows few.",
            "Counting words or characters; use the checks.",
            "Texts in languages other than English.",
        ),
        base=BaseWeights(name="made-up-135m", license="Apache-2.0", sha256="ba" * 32),
        weights_sha256=WEIGHTS,
        form=Form(mode="readout", template="readout", template_digest="7e" * 32, scales=("binary", "ordinal")),
        training=Training(
            method="lora",
            rank=16,
            seed=0,
            steps=1234,
            tokens=5_600_000,
            seconds=3210.0,
            machine="2 CPU cores",
            versions={"torch": "0.0.1", "transformers": "0.0.2"},
            options={
                "steps": 1500,
                "optim": {"lr": 6e-4, "batch_examples": 16},
                "lora": {"alpha": 32.0, "modules": ["q_proj", "v_proj"]},
                "data": {"statements": {"kind": "statements", "weight": 0.5, "count": 7000}},
            },
        ),
        data=(
            _source("statements", "a1", 7000, 0.5, "PSF-2.0"),
            _source(
                "made-up labels", "a2", 5000, 0.3, "CC-BY-4.0", duplicates=1200, contradictions=33, left_out={"null": 7}
            ),
            _source("hard negatives", "a3", 900, 0.2, "Apache-2.0", questions=2700),
            _source("better and worse", "a4", 400, 0.0, "PSF-2.0", questions=0),
            DataSource(
                name="a set that was not there",
                digest="a5" * 32,
                license="MIT",
                completions=0,
                questions=0,
                share=0.0,
                absent="no file answers.jsonl",
            ),
        ),
        split=DataSplit(
            by="criterion",
            sizes={"train": 20000, "validation": 2000, "test": 4000},
            held_out=("Ends with a question", "Lists"),
        ),
        tables=(
            _table("made-up labels, new questions", (0.5, 0.61, 0.5, 0.82, 0.81, 0.5, 0.51, 0.94)),
            _table("statements, unseen documents", (0.5, 0.55, 0.97, 0.6, 0.5, 0.5, 0.52, 0.985)),
            _table("contraries in the same words", (0.5, 0.5, 0.52, 0.49, 0.51, 0.5, 0.5, 0.83)),
            _table("swapped answers", (0.5, 0.52, 0.94, 0.58, 0.5, 0.5, 0.64, 0.975)),
            _parts_only("by variant"),
            _table("a set of taste", (0.5, 0.56, 0.5, 0.48, 0.47, 0.5, 0.47, 0.46), n=99),
        ),
        calibration=CalibrationReport(
            part="Fitted to half of the validation part, and measured on the other half.",
            calibration=Calibration(families={"binary": Curve(method="platt", slope=0.71, offset=-0.12)}),
            before=_figure(0.09, 0.01),
            after=_figure(0.02, 0.008),
        ),
        repeatability=Repeatability(
            fingerprint="f" * 64,
            source="job 1",
            measured_at=datetime(2001, 2, 3, tzinfo=UTC),
            repeats=5,
            completions=40,
            criteria={"binary": Deviation(n=120, value=0.0071, low=0.006, high=0.0083)},
            reward=Deviation(n=40, value=0.0042, low=0.003, high=0.006),
        ),
        audit=_audit(0.03),
    )


def _source(
    name: str, digest: str, completions: int, share: float, license: str, **counts: int | dict[str, int]
) -> DataSource:
    fields = {"name": name, "digest": digest * 32, "license": license, "completions": completions, "share": share}
    return DataSource.model_validate(fields | {"questions": 2 * completions} | counts)


def _figure(value: float, half: float = 0.02) -> Figure:
    return Figure(value=value, low=round(max(value - half, 0.0), 4), high=round(min(value + half, 1.0), 4))


def _table(name: str, values: tuple[float, ...], *, n: int = 2000) -> Table:
    rows = tuple(_row(scorer, value, n) for scorer, value in zip(SCORERS, values, strict=True))
    return Table(name=name, description="Made up.", rows=rows)


def _parts_only(name: str) -> Table:
    rows = [_row(scorer, 0.5 + 0.1 * part, 500, f"variant {part}") for part in range(4) for scorer in SCORERS]
    single = [Row(scorer=s, part="one class", n=80, positives=80, figures={"accuracy": _figure(0.9)}) for s in SCORERS]
    return Table(name=name, description="Made up, by how the case was made.", rows=(*rows, *single))


def _row(scorer: str, value: float, n: int, part: str = "") -> Row:
    figures = {"auroc": _figure(value, 0.45 / math.sqrt(n)), "accuracy": _figure(0.5 + 0.8 * (value - 0.5))}
    figures["pairwise_accuracy"] = _figure(0.5 + 0.6 * (value - 0.5))
    return Row(scorer=scorer, part=part, n=n, positives=n // 2, figures=figures)  # type: ignore[arg-type]


def _audit(rate: float) -> Audit:
    suites: list[tuple[str, Measure, float, float]] = [
        ("master_keys", "met", rate, 0.05),
        ("trivial", "met", rate / 2, 0.05),
        ("injection", "met", rate * 1.1, 0.05),
        ("missed", "missed", 0.3 - rate / 3, 0.3),
        ("format", "changed", rate * 2, 0.1),
    ]
    return Audit(
        digest="d" * 64,
        fingerprint="f" * 64,
        suites=tuple(
            SuiteResult(
                name=name,
                description=f"made-up findings of {name}",
                measure=measure,
                attacks=10,
                rate=Rate(n=200, hits=round(200 * value), value=value, low=value * 0.6, high=min(value * 1.5, 1.0)),
                max_rate=limit,
                passed=value <= limit,
                reason=None if value <= limit else f"{value:.3f} is above {limit}",
            )
            for name, measure, value, limit in suites
        ),
    )
