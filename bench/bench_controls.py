"""Rubrics of right and of swapped references, of right and of permuted labels, tried by the embedded judge.

``python -m bench.bench_controls`` writes rubrics by a scripted author (`bench.controls`), tries each as
`rubrics generate` does, and prints for each condition how many rubrics the gate refuses, by reason, and the mean
rewards of its probes. ``--untrained`` takes the bare model.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from statistics import fmean

from bench.controls import gate, labelled_tasks, reference_tasks, swapped
from rubricsvc.cli.models import ask, judge_from
from rubricsvc.core.generation import AuthoringTask, GateFindings
from rubricsvc.core.judge import Judge
from workers.engines.local.embedded_model import EMBEDDED


def conditions(limit: int) -> dict[str, tuple[str, Sequence[AuthoringTask], Sequence[AuthoringTask]]]:
    """Return for each condition the method, what the author is shown, and what the rubric is tried on."""
    right, wrong = reference_tasks(), swapped(reference_tasks())
    labelled, permuted = labelled_tasks(permuted=False), labelled_tasks(permuted=True)
    return {
        "right references": ("reference-guided", right[:limit], right[:limit]),
        "swapped references": ("reference-guided", wrong[:limit], right[:limit]),
        "right labels": ("contrastive", labelled[:limit], labelled[:limit]),
        "permuted labels": ("contrastive", permuted[:limit], permuted[:limit]),
    }


def described(findings: Sequence[GateFindings]) -> str:
    """Return how many are refused, the reasons, the mean rewards of the probes and the mean agreement with labels."""
    reasons = Counter(reason for one in findings for reason in one.refused_by)
    rewards = defaultdict[str, list[float]](list)
    for one in findings:
        for name, probe in one.probes.items():
            rewards[name] += [probe.reward] if probe.reward is not None else []
    parts = [f"{sum(bool(one.refused_by) for one in findings)} of {len(findings)} refused {dict(reasons)}"]
    parts += [" ".join(f"{name} {fmean(values):.2f}" for name, values in rewards.items())]
    agreements = [one.preferences.agreement for one in findings if one.preferences is not None]
    return "; ".join([*parts, *([f"agreement {fmean(agreements):.2f}"] if agreements else [])])


def main() -> None:
    """Print a line for each condition."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--untrained", action="store_true", help="the bare model")
    parser.add_argument("--limit", type=int, default=12, help="questions")
    options = parser.parse_args()
    bare = Judge(name="embedded", engine="transformers_local", model=EMBEDDED, min_answer_mass=0.1)
    judge = bare if options.untrained else judge_from("embedded", model=EMBEDDED)
    for name, (method, shown, tried) in conditions(options.limit).items():
        findings = ask(judge, partial(gate, method, shown, tried, judge=judge))
        print(f"{name}: {described(findings)}", flush=True)


if __name__ == "__main__":
    main()
