"""Controls: the gate keeps rubrics of right references and labels, and refuses those of wrong ones.

`bench.bench_controls` runs them with the embedded judge.
"""

import asyncio
from collections import Counter

from bench.controls import FACTS, WordJudge, gate, labelled_tasks, reference_tasks, swapped
from rubricsvc.core.generation import GateFindings
from rubricsvc.core.judge import Judge

JUDGE = Judge(name="words", model="m")


def refused(findings: list[GateFindings]) -> Counter[str]:
    return Counter(reason for one in findings for reason in one.refused_by)


def test_gate_keeps_rubrics_of_right_references_and_refuses_those_of_swapped_ones() -> None:
    right = reference_tasks()
    assert refused(asyncio.run(gate("reference-guided", right, right, WordJudge(), JUDGE))) == {}
    found = asyncio.run(gate("reference-guided", swapped(right), right, WordJudge(), JUDGE))
    assert refused(found)["off_topic"] == len(FACTS)


def test_gate_keeps_rubrics_of_right_labels_and_refuses_those_of_permuted_ones() -> None:
    right, permuted = labelled_tasks(permuted=False), labelled_tasks(permuted=True)
    kept = asyncio.run(gate("contrastive", right, right, WordJudge(), JUDGE))
    wrong = asyncio.run(gate("contrastive", permuted, permuted, WordJudge(), JUDGE))
    assert refused(kept) == {}
    assert refused(wrong)["preferences"] >= len(FACTS) - 1, "one in forty is better than chance by chance"
