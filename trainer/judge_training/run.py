"""A training of a judge from its configuration to its files: data, weights, examination, passport.

The examination has figures of questions that the judge was not trained on, beside baselines, with intervals. The judge
is asked as workers ask it. Intervals are of a bootstrap that draws whole groups (`Example.split_group`). AUROC and
accuracy take labels of 0.5 or more as positive; Brier score, calibration error and ranks take the labels as they are.
What cannot be measured, such as the AUROC of fewer than five questions of a class, has no value.
"""

import asyncio
import json
import platform
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from rubricsvc.core.audit import Audit, Figure, Repeatability
from rubricsvc.core.judge import Calibration, Judge
from rubricsvc.core.passport import TRAINED, UNTRAINED, CalibrationReport, Passport, Row, Table
from rubricsvc.core.prompt import Completion
from rubricsvc.core.rubric import Binary, Criterion, Rubric
from rubricsvc.core.verdict import JudgedLabel, Label, Verdict
from rubricsvc.errors import ConflictError, InvalidError, UnavailableError
from rubricsvc.stats import OnProgress
from rubricsvc.stats.agreement import Sample, estimate_metrics, pair_counts
from rubricsvc.stats.calibration_fit import MIN_PROMPTS, calibrate
from trainer.judge_training.config import JudgeTrainConfig
from trainer.judge_training.data import Example, Prepared, Question, questions, sample
from trainer.judge_training.training import MUTABLE, Encoder, JudgeModel, Trained, encode, train
from trainer.policies.lora import save_adapter
from trainer.recording import Metrics, replace_text, sync
from workers.audit import cases, runner, suites
from workers.audit.repeatability import measure
from workers.audit.suites import AuditPlan
from workers.engines import make_engine
from workers.engines.base import Engine
from workers.engines.local import weights as files
from workers.engines.local.conversation import Conversation
from workers.engines.local.models import default_device, default_dtype, model_folder, open_pretrained
from workers.judges import validate
from workers.judges.calls import load
from workers.scoring.completions import score

FOLDER = "judge"
"""Folder of the trained judge, in the training's ``out``."""
MIN_PART = 10
"""Questions that a part of the test needs to have figures of its own."""
NOT_FOR = (
    "People's careers, health, rights or money: its figures are of its own test sets, and of nothing else.",
    "Criteria of kinds that its passport has no figures of, until you have compared it with people's labels.",
)

_ASKED = {"mode", "template", "sampling", "threshold", "min_answer_mass", "max_context", "calibration"}
"""Fields of a judge that its training depends on."""


def check_judge(config: JudgeTrainConfig, stored: Judge | None) -> None:
    """Check before a training that its judge can be asked, and stored under its name; ``stored`` is what has it.

    Raises:
        InvalidError: There is no such template, or it does not fit the mode.
        UnavailableError: The engine requires a package that is not installed.
        ConflictError: The stored judge has other weights.
    """
    validate(config.judge)
    make_engine(config.judge)
    folder = (config.out / FOLDER).resolve()
    if stored and Path(stored.adapter or stored.model).resolve() != folder:
        hint = "give judge.name another value, or train with --no-add"
        raise ConflictError(f"judge {config.judge.name!r} exists and is another one", hint=hint, path="judge.name")


def train_judge(
    config: JudgeTrainConfig,
    prepared: Prepared,
    *,
    on_encode: OnProgress = lambda done, total, note: None,
    on_step: Callable[[Metrics], None] | None = None,
    stop: Event | None = None,
    resume: bool = False,
) -> tuple[Judge | None, Trained]:
    """Train the weights and write them; return the judge that is asked with them, None if ``stop`` was set.

    ``on_encode`` is called with the examples encoded, and their number, ``on_step`` with the metrics of each step.
    """
    model, encoder = open_base(config)
    data = encode(prepared.datasets, prepared.parts, encoder, config, on_encode)
    trained = train(model, data, config, on_step=on_step, stop=stop, resume=resume)
    return None if trained.history.stopped else export(model, config), trained


def open_base(config: JudgeTrainConfig) -> tuple[JudgeModel, Encoder]:
    """Return the base to train with a fresh adapter, and the encoder of its judge."""
    judge = config.judge
    dtype = getattr(torch, config.dtype or default_dtype(config.device))
    try:
        torch.zeros(1, device=config.device or default_device()).item()
    except (RuntimeError, AssertionError) as error:  # no such device, one that torch was built without, or "meta"
        message = f"device {config.device!r}: {str(error).splitlines()[0]}"
        raise InvalidError(message, hint='leave it out, or use "cpu"', path="device") from error
    base, tokenizer = open_pretrained(judge.model, dtype, revision=judge.revision)
    base = base.to(config.device or default_device())
    sha256 = files.base_sha256(judge.model, model_folder(files.ModelWeights(judge.model, judge.revision)))
    model = JudgeModel(base, config.lora, seed=config.seed, base_sha256=sha256)
    return model, Encoder(judge, Conversation(tokenizer), base.config.max_position_embeddings)


def export(model: JudgeModel, config: JudgeTrainConfig) -> Judge:
    """Write the adapter to ``out/judge`` in peft's format, and return the judge that is asked with it.

    Equal trainings give equal bytes, without paths of a machine.
    """
    final = config.out / FOLDER
    part = final.with_name(f".{FOLDER}.part")
    with _writing(final):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        save_adapter(model.model, part, config.judge.model, model.base_sha256)
        _write_judge(part, config.judge)
        trained = files.weights_sha256(part)
        shutil.rmtree(final, ignore_errors=True)
        part.rename(final)
        sync(final.parent)
    place = {"adapter": str(final.resolve()), "weights_sha256": trained}
    return Judge.model_validate(config.judge.model_dump() | place)


def _write_judge(folder: Path, judge: Judge) -> None:
    """Write the fields of a judge that the weights were trained for."""
    fields = judge.model_dump(mode="json", include=_ASKED, exclude_defaults=True)
    replace_text(folder / files.JUDGE_FILE, json.dumps(fields, indent=2, sort_keys=True) + "\n")


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        hint = "check the free disk space and the permissions, then continue with --resume"
        raise UnavailableError(f"cannot write the trained judge to {folder}: {error}", hint=hint) from error


By = Literal["source", "family", "variant"]

AT_ONCE = 16
"""Completions that a judge is asked about at a time."""
RESAMPLES = 200
MIN_CLASS_FOR_AUROC = 5
"""Labels of each class that an AUROC needs, also that of a family to count in the mean over families."""
MIN_FAMILY = 200
"""Labels of a family in the training part from which it has a regression of its own."""
MAX_TRAIN = 20_000
"""Labels that the baselines are fitted to; of more a random part is used."""
MAX_WORDS = 200_000
"""1- and 2-grams of a bag of words, the most frequent first."""

BASE: dict[str, Any] = {"adapter": None, "weights_sha256": None, "calibration": None, "min_answer_mass": 0.0}
"""Fields of a judge on its base. Untrained it gives the labels little probability."""


def probabilities(
    judge: Judge,
    examples: Sequence[Example],
    on_progress: OnProgress = lambda done, total, note: None,
    note: str = "",
    *,
    may_fail: bool = False,
) -> list[list[float | None]]:
    """Return the probability before calibration that the judge gives to each target; None where a verdict failed."""

    async def ask() -> list[list[Verdict]]:
        async with aclosing(make_engine(judge)) as engine:
            return await verdicts(engine, judge, examples, lambda done, total, _: on_progress(done, total, note))

    answered = asyncio.run(ask())
    first = next((one for each in answered for one in each), None)
    if not may_fail and first and all(one.outcome == "failed" for each in answered for one in each):
        message = f"all verdicts of the judge failed, the first one with {first.reason}: {first.detail}"
        raise InvalidError(message, hint="correct this and continue with --resume, or train again with other settings")
    return [[one.value if one.probability is None else one.probability for one in each] for each in answered]


async def verdicts(
    engine: Engine, judge: Judge, examples: Sequence[Example], on_progress: OnProgress = lambda done, total, note: None
) -> list[list[Verdict]]:
    """Return the judge's verdict on each target of each example."""
    slots, done = asyncio.Semaphore(AT_ONCE), count(1)

    async def ask(example: Example) -> list[Verdict]:
        criteria = tuple(
            target.criterion.model_copy(update={"key": f"c{number}", "weight": 1.0})
            for number, target in enumerate(example.targets)
        )
        async with slots:
            given = await score(engine, judge, Rubric(criteria=criteria), example.prompt, example.completion)
        on_progress(next(done), len(examples), "")
        return given

    return await asyncio.gather(*map(ask, examples))


def criterion_text(criterion: Criterion) -> str:
    """Return what a judge is shown of a criterion."""
    return "\n".join([criterion.text, criterion.reference or "", *(criterion.passages or ())]).strip()


def overlap(text: str, completion: str) -> float:
    """Return the share of the words of ``text`` that the completion has; stop words count if there is no other."""
    words = frozenset(re.findall(r"\w+", text.casefold()))
    words = words - ENGLISH_STOP_WORDS or words
    return len(words & frozenset(re.findall(r"\w+", completion.casefold()))) / len(words) if words else 0.0


BASELINES: dict[str, Callable[[Question], float | str]] = {
    "majority": lambda _: 0.0,
    "length": lambda one: float(np.log1p(len(one[0].completion.text))),
    "overlap": lambda one: overlap(one[1].criterion.text, one[0].completion.text),
    "prompt overlap": lambda one: overlap(one[0].prompt.text, one[0].completion.text),
    "bag of words": lambda one: f"{criterion_text(one[1].criterion)}\n{one[0].completion.text}",
    "completion only": lambda one: one[0].completion.text,
    "criterion only": lambda one: criterion_text(one[1].criterion),
}
"""What each baseline is given of a question: a number, or a text that it knows the words of."""


def baselines(train: Sequence[Question], test: Sequence[Question], *, seed: int = 0) -> dict[str, list[float]]:
    """Return the probabilities of each baseline for the test part, by its name: scores without reading.

    Each baseline is a logistic regression of the labels on a few features. A family of criteria that the training part
    has often gets a regression of its own, since one of all criteria cannot weigh the same word of a completion in two
    ways; the others share one. Soft labels count as both classes, by their value.
    """
    if len(train) > MAX_TRAIN:
        kept = np.random.default_rng(seed).permutation(len(train))[:MAX_TRAIN]
        train = [train[place] for place in kept.tolist()]
    known, new = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for place, (_, target) in enumerate(train):
        known[target.family_name].append(place)
    for place, (_, target) in enumerate(test):
        new[target.family_name if len(known[target.family_name]) >= MIN_FAMILY else ""].append(place)
    known[""] = list(range(len(train)))
    labels = np.array([target.value for _, target in train], float)
    scores: dict[str, list[float]] = {}
    for name, given in BASELINES.items():
        values, test_values = ([given(one) for one in part] for part in (train, test))
        if any(isinstance(value, str) for value in values):
            bag = TfidfVectorizer(ngram_range=(1, 2), max_features=MAX_WORDS, sublinear_tf=True)
            try:
                features, test_features = bag.fit_transform(values), bag.transform(test_values)
            except ValueError:  # an empty vocabulary
                features, test_features = np.zeros((len(train), 1)), np.zeros((len(test), 1))
        else:
            columns = [np.array(each, float).reshape(-1, 1) for each in (values, test_values)]
            features, test_features = map(StandardScaler().fit(columns[0]).transform, columns)
        result = np.zeros(len(test))
        for family, places in new.items():
            own, soft = np.array(known[family]), labels[known[family]]
            upper, lower = np.flatnonzero(soft > 0), np.flatnonzero(soft < 1)
            if not len(upper) or not len(lower):  # one class
                result[places] = soft.mean()
                continue
            classes = np.repeat([1, 0], [len(upper), len(lower)])
            weights = np.concatenate([soft[upper], 1 - soft[lower]])
            model = LogisticRegression(max_iter=2000)
            model.fit(features[own[np.concatenate([upper, lower])]], classes, sample_weight=weights)
            result[places] = model.predict_proba(test_features[places])[:, 1]
        scores[name] = result.tolist()
    return scores


def rows(
    test: Sequence[Question], scores: Mapping[str, Sequence[float]], *, by: By | None = None, resamples: int = RESAMPLES
) -> list[Row]:
    """Return a row for each of the scores, in [0, 1] and in the order of ``test``; with ``by`` for each part."""
    parts: dict[str, list[int]] = defaultdict(list)
    for place, (example, target) in enumerate(test):
        names = {"source": example.source, "family": target.family_name, "variant": target.variant}
        parts[names[by] if by else ""].append(place)
    return [
        _row(name, part, [test[place] for place in places], [values[place] for place in places], resamples)
        for part, places in sorted(parts.items()) or [("", [])]
        for name, values in scores.items()
    ]


def _row(scorer: str, part: str, test: Sequence[Question], scores: Sequence[float], resamples: int) -> Row:
    labels = [target.value for _, target in test]
    met = [float(label >= 0.5) for label in labels]
    numbers: dict[str, int] = {}
    groups = [numbers.setdefault(example.split_group, len(numbers)) for example, _ in test]
    families = defaultdict[str, list[int]](list)
    for place, (_, target) in enumerate(test):
        families[target.family_name].append(place)
    counts = pair_counts(
        (groups[place], (example.prompt.digest, target.criterion.question), place, scores[place], labels[place])
        for place, (example, target) in enumerate(test)
    )
    columns: Any = np.array([scores, met, groups])
    mixed = [
        Sample.of(*columns[:, places], counts=counts)
        for places in families.values()
        if MIN_CLASS_FOR_AUROC <= columns[1, places].sum() <= len(places) - MIN_CLASS_FOR_AUROC
    ]
    binary = [Sample.of(scores, met, groups, counts=counts)]
    found = estimate_metrics(binary, ("auroc", "accuracy", "pairwise_accuracy"), resamples=resamples)
    ranked = any(not isinstance(target.criterion.scale, Binary) for _, target in test)
    soft = ("brier", "ece", "spearman") if ranked else ("brier", "ece")
    found |= estimate_metrics([Sample.of(scores, labels, groups, counts=counts)], soft, resamples=resamples)
    found["macro_auroc"] = estimate_metrics(mixed, ("auroc",), resamples=resamples)["auroc"]
    figures: dict[Any, Figure] = {
        name: Figure(value=one.value, low=one.low, high=one.high) for name, one in found.items()
    }
    if min(sum(met), len(met) - sum(met)) < MIN_CLASS_FOR_AUROC:
        figures["auroc"] = Figure()
    return Row(scorer=scorer, part=part, n=len(test), positives=int(sum(met)), figures=figures)


def examine_judge(
    config: JudgeTrainConfig,
    prepared: Prepared,
    judge: Judge,
    trained: Trained,
    *,
    audited: bool,
    on_progress: OnProgress = lambda done, total, note: None,
) -> tuple[Judge, Passport, int]:
    """Examine a trained judge, write its passport, and return both with the number of failed verdicts.

    The judge is asked as workers ask it, with the exported weights, beside its untrained base and baselines that are
    fitted to the training part. It is calibrated on the validation part where that helps; all figures are of the test.
    Questions whose verdict failed count as the value 0.5. With ``audited`` the judge is audited and repeated.
    """
    untrained, parts = config.judge.model_copy(update=BASE), prepared.parts
    validation, test = (sample(parts[name], config.test_examples) for name in ("validation", "test"))
    calibration = _calibration(validation, probabilities(judge, validation, on_progress, "calibration"))
    asked = probabilities(judge, test, on_progress, TRAINED)
    before, base = (
        [0.5 if value is None else value for each in answers for value in each]
        for answers in (asked, probabilities(untrained, test, on_progress, UNTRAINED, may_fail=True))
    )
    pairs = questions(test)
    after = [
        calibration.value(target.criterion, score) if calibration else score
        for (_, target), score in zip(pairs, before, strict=True)
    ]
    on_progress(0, 1, "baselines")
    scores = {**baselines(questions(parts["train"]), pairs), UNTRAINED: base, TRAINED: after}
    judge = judge.model_copy(update={"calibration": calibration})

    raw, fitted = rows(pairs, {"before": before, "after": after})
    part = "fitted to the validation part, measured on the test" if calibration else "no curve was better than none"

    async def audit() -> tuple[Repeatability, Audit]:
        built_in = [(case.rubric, case.prompt, Completion(text=case.text)) for case in cases.built_in()[:40]]
        plan = AuditPlan(cases.built_in(), suites.built_in()).adapted(judge)
        async with aclosing(make_engine(judge)) as engine:
            repeatability = await measure(engine, judge, built_in, source="built-in cases")
            return repeatability, await runner.run(engine, judge, plan, on_progress=on_progress)

    repeatability, attacked = asyncio.run(audit()) if audited else (None, None)
    passport = Passport(
        **_origin(config, prepared, judge, trained),
        tables=_tables(pairs, scores, config.split.held_out),
        calibration=CalibrationReport(part=part, calibration=calibration, before=raw["ece"], after=fitted["ece"]),
        repeatability=repeatability,
        audit=attacked,
    )
    with _writing(folder := config.out / FOLDER):
        _write_judge(folder, judge)
        replace_text(folder / files.PASSPORT_FILE, passport.model_dump_json(exclude_none=True) + "\n")
    return judge, passport, sum(value is None for each in asked for value in each)


def _calibration(examples: Sequence[Example], asked: Sequence[Sequence[float | None]]) -> Calibration | None:
    """Return the curves of a readout; None where there are too few labels, or no curve is better than none."""
    groups = {name: number for number, name in enumerate(dict.fromkeys(one.split_group for one in examples))}
    labels = []
    for number, (example, values) in enumerate(zip(examples, asked, strict=True)):
        for target, value in zip(example.targets, values, strict=True):
            key = target.criterion.key
            verdicts = {} if value is None else {key: Verdict.scored(key, value, probability=value)}
            label = Label(criterion=key, annotator="target", value=target.value)
            labels.append(JudgedLabel(number, groups[example.split_group], 0, label, target.criterion, verdicts))
    if len({label.prompt_id for label in labels if label.verdicts}) < MIN_PROMPTS:
        return None
    curves = {one.family: one.curve for one in calibrate(labels) if one.curve and one.curve.method != "none"}
    return Calibration(families=curves) if curves else None


_PARTS: tuple[tuple[str, str, By], ...] = (
    ("by data set", "held-out questions by data set", "source"),
    ("by criterion", f"by criterion or kind of criterion, with {MIN_PART} questions or more", "family"),
    ("by variant", f"questions by construction, by how the case was made, with {MIN_PART} or more", "variant"),
)
"""Tables of parts of the test: name, description and what divides it."""


def _tables(
    pairs: Sequence[Question], scores: Mapping[str, Sequence[float]], held_out: Sequence[str]
) -> tuple[Table, ...]:
    """Return the tables of the whole test, of what was held out, and by source, criterion and variant.

    Parts have `MIN_PART` questions.
    """
    unseen = [place for place, (_, target) in enumerate(pairs) if target.family_name in held_out]
    of_unseen = {name: [values[place] for place in unseen] for name, values in scores.items()}
    tables = [("test", "all held-out questions", rows(pairs, scores))]
    if unseen:
        found = rows([pairs[place] for place in unseen], of_unseen)
        tables.append(("held-out criteria", "criteria and kinds of criteria that were not trained on", found))
    for name, text, by in _PARTS:
        large = [row for row in rows(pairs, scores, by=by, resamples=0) if row.part and row.n >= MIN_PART]
        tables.append((name, text, large))
    return tuple(Table(name=name, description=text, rows=tuple(own)) for name, text, own in tables if own)


def _origin(config: JudgeTrainConfig, prepared: Prepared, judge: Judge, trained: Trained) -> dict[str, Any]:
    """Return the fields of a passport but its figures: what the judge was made from, and how."""
    template, asked = load(judge), [target for _, target in questions(prepared.parts["train"])]
    kept = [step for step in trained.history.steps if step["step"] <= trained.best_step]
    options = config.model_dump(mode="json", exclude=MUTABLE | {"judge", "seed"})
    options["data"] = {one.name: {"kind": one.kind, "weight": one.weight} for one in config.data}
    scales = tuple(sorted({target.criterion.scale.kind for target in asked}))
    return {
        "created_at": datetime.now(UTC),
        "description": config.description,
        "not_for": config.not_for or NOT_FOR,
        "base": {
            "name": config.judge.model,
            "revision": config.judge.revision,
            "license": config.license,
            "sha256": trained.base_sha256,
        },
        "weights_sha256": judge.weights_sha256 or "",
        "form": {"mode": judge.mode, "template": template.name, "template_digest": template.digest, "scales": scales},
        "training": {
            "method": "lora",
            "rank": config.lora.rank,
            "seed": config.seed,
            "steps": trained.best_step,
            "tokens": sum(step["tokens"] for step in kept),
            "seconds": sum(step["step_time"] for step in kept),
            "machine": f"{torch.get_num_threads()} threads, {platform.machine()} {config.device}".strip(),
            "versions": {name: version(name) for name in ("torch", "transformers", "peft", "rubricsvc")},
            "options": options,
        },
        "data": tuple(prepared.sources(config)),
        "split": {
            "by": "prompt",
            "sizes": {name: len(questions(part)) for name, part in prepared.parts.items()},
            "held_out": config.split.held_out,
        },
    }
