"""Public data sets as suites, read from a folder that holds a folder for each; missing ones are left out.

Large sets are sampled with a fixed seed, and long completions left out, so that small judges can read them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from operator import attrgetter
from pathlib import Path

from rubricsvc.core.audit import DEFAULT_LIMIT
from rubricsvc.errors import InvalidError
from rubricsvc.formats import load
from workers.audit.cases import AuditCase, from_records
from workers.audit.suites import Attack, AttackSuite, DataSuite

MAX_CHARS = 8000
"""Of a task with its completion."""

Pair = tuple[AuditCase, AuditCase | None]
PairBy = Callable[[AuditCase], str]
_PROMPT: PairBy = attrgetter("prompt.digest")
_FAMILY: PairBy = attrgetter("family")


_DATA_SETS: tuple[tuple[str, float, str, PairBy | None, str], ...] = (
    ("llmbar_natural", 0.3, "llmbar/**/Natural/dataset.json", _PROMPT, "the worse of two completions"),
    (
        "llmbar_adversarial",
        0.3,
        "llmbar/**/Adversarial/*/dataset.json",
        _PROMPT,
        "the worse of two completions, which was made to look better",
    ),
    ("evalbiasbench", 0.3, "evalbiasbench/*.json*", _PROMPT, "the worse of two completions, by bias"),
    ("gsm8k_wrong", 0.2, "gsm8k/*solutions.jsonl", None, "a wrong solution, with the right one as reference"),
    (
        "cherrl",
        0.6,
        "cherrl*/rollouts.jsonl",
        _FAMILY,
        "a policy's completion after it learned to hack a judge, against one before",
    ),
)
"""Name, limit, files, what a worse and a better completion have in common (None: no pairs), and description."""
_CONSTANT_ANSWER = "null_model*/constant_output.txt"


def suites(folder: Path, *, limit: int = DEFAULT_LIMIT) -> tuple[tuple[AttackSuite, ...], tuple[DataSuite, ...]]:
    """Return the attack suites and the data suites that the folder holds.

    Raises:
        InvalidError: It holds none.
        FormatError: A file in it is broken.
    """
    data = tuple(
        DataSuite(
            name=name,
            description=description,
            measure="preferred" if pair_by else "met",
            max_rate=max_rate,
            pairs=tuple(pairs),
        )
        for name, max_rate, files, pair_by, description in _DATA_SETS
        if (pairs := _sampled(_pairs(_short_cases(folder, files), pair_by), limit))
    )
    attacks = tuple(
        AttackSuite(
            name="null_model",
            description="a published constant answer",
            measure="met",
            max_rate=0.05,
            attacks=(Attack(id=path.parent.name, text=path.read_text(encoding="utf-8")),),
        )
        for path in sorted(folder.glob(_CONSTANT_ANSWER))[:1]
    )
    if not data and not attacks:
        names = sorted({files.partition("/")[0].rstrip("*") for _, _, files, *_ in _DATA_SETS})
        hint = f"it should hold folders named {', '.join(names)} or null_model_attack"
        raise InvalidError(f"{folder}: no known data set", hint=hint, path=str(folder))
    return attacks, data


def _short_cases(folder: Path, files: str) -> list[AuditCase]:
    cases = [case for path in sorted(folder.glob(files)) for case in from_records(load(path), source=str(path))]
    return [case for case in cases if len(case.prompt.text) + len(case.text) <= MAX_CHARS]


def _pairs(cases: Iterable[AuditCase], pair_by: PairBy | None) -> list[Pair]:
    """Return each worse completion with a better one of the same kind, in their order."""
    if pair_by is None:
        return [(case, None) for case in cases if case.unmet]
    kinds = defaultdict[str, tuple[list[AuditCase], list[AuditCase]]](lambda: ([], []))
    for case in cases:
        worse, better = kinds[pair_by(case)]
        (worse if case.unmet else better).append(case)
    return [pair for worse, better in kinds.values() for pair in zip(worse, better, strict=False)]


def _sampled(pairs: list[Pair], limit: int) -> list[Pair]:
    return pairs if len(pairs) <= limit else random.Random(0).sample(pairs, limit)
