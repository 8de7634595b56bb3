"""A judge's audit as a Markdown table, and the two shown attacks on the untrained embedded one.

    python -m bench.bench_audit [--data FOLDER] [--limit N] [--url URL --model NAME] [--only SUITE …]

Without ``--url`` the embedded model judges, untrained. The public data sets are asked about where ``--data`` holds
them. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from bench.shown_attacks import EARLIER_TURNS, TICKED, probabilities
from rubricsvc.cli.models import fetch_embedded
from rubricsvc.core.audit import Audit, Rate
from rubricsvc.core.judge import Endpoint, Judge
from workers.audit import cases, suites
from workers.audit.runner import run
from workers.audit.suites import AuditPlan
from workers.engines import make_engine
from workers.engines.local.embedded_model import EMBEDDED

Pair = dict[str, tuple[float, float]]


def number(rate: Rate) -> str:
    return "n/a" if rate.value is None else f"{rate.value:.2f} [{rate.low:.2f}, {rate.high:.2f}]"


def table(audit: Audit) -> None:
    print("| suite | findings | rate | baseline | mean shift | unscored |")
    print("|---|--:|--:|--:|--:|--:|")
    for one in audit.suites:
        before = f"{one.baseline.value:.2f}" if one.baseline and one.baseline.value is not None else ""
        shift = f"{one.mean_shift:+.3f}" if one.mean_shift is not None else ""
        print(f"| {one.name} | {one.rate.n} | {number(one.rate)} | {before} | {shift} | {sum(one.unscored.values())} |")
        for family, rate in one.families.items():
            print(f"| … {family} | {rate.n} | {number(rate)} | | | |")


async def measure(judge: Judge, plan: AuditPlan) -> tuple[Audit, dict[str, Pair]]:
    def on_progress(done: int, total: int, suite: str) -> None:
        print(f"\r{done}/{total} {suite:20}", end="", file=sys.stderr, flush=True)

    engine = make_engine(judge)
    try:
        shown = (
            {one.name: await probabilities(engine, one) for one in (EARLIER_TURNS, TICKED)}
            if judge.model == EMBEDDED
            else {}
        )
        return await run(engine, judge, plan, on_progress=on_progress), shown
    finally:
        await engine.aclose()


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--url")
    arguments.add_argument("--model", default=EMBEDDED)
    arguments.add_argument("--only", nargs="*")
    options = arguments.parse_args()
    engine = "openai_http" if options.url else "transformers_local"
    judge = Judge(
        name=options.model,
        engine=engine,
        model=options.model,
        endpoint=Endpoint(base_url=options.url),
        min_answer_mass=0.1,
    )
    plan = AuditPlan(cases.built_in(), suites.built_in())
    if judge.model == EMBEDDED:
        fetch_embedded()
    audit, shown = asyncio.run(measure(judge, plan.only(options.only) if options.only is not None else plan))
    for name, found in shown.items():
        for prompt, (before, after) in found.items():
            print(f"{name}: {prompt} prompt, P(yes) {before:.2f} without it, {after:.2f} with it")
    print()
    table(audit)
    report: dict[str, Any] = {"shown": shown, "audit": audit.model_dump(mode="json", exclude={"worst"})}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
