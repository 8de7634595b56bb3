"""`rubricsvc runs transcripts`: episodes of held-out prompts turn by turn, before the training and after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from rubricsvc.cli.output import Json, cell, echo, print_data, print_json, print_table, shorten
from rubricsvc.cli.run_report import read_report
from rubricsvc.cli.run_samples import MOST_ROWS, TRANSCRIPTS
from rubricsvc.cli.run_views import Run
from rubricsvc.cli.verdicts import reason_of
from rubricsvc.core.prompt import Message
from rubricsvc.core.run_report import Sample
from rubricsvc.errors import NotFoundError
from rubricsvc.services.exporting import plain_verdict

_REASON_CHARS = 200


def transcripts(
    run: Run,
    *,
    prompt: Annotated[str | None, typer.Option(help="Show prompts with this text.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Number of prompts.")] = TRANSCRIPTS,
    as_json: Json = False,
) -> None:
    """Print episodes of the same held-out prompts turn by turn, of the first evaluation and of the last.

    They are in the order in which the gold score rose most; of more prompts than `-n`, evenly from this order.
    """
    found = read_report(run, transcripts=MOST_ROWS if prompt is not None else limit).transcripts
    if not found:
        hint = "they are of runs with [environment] and [eval]; `rubricsvc runs evaluations` lists the evaluations"
        raise NotFoundError(f"run {run} has no episodes of held-out prompts", hint=hint)
    shown = [one for one in found if (prompt or "").casefold() in one.prompt.casefold()][:limit]
    if not shown:
        hint = f"one of {len(found)} begins: {shorten(found[0].prompt)}"
        raise NotFoundError(f"no held-out prompt has the text {shorten(prompt or '')!r}", hint=hint)
    for one in shown:
        if as_json:
            print_json({"prompt": one.prompt, "episodes": [_plain(sample) for sample in one.samples]})
            continue
        print_data(f"# {one.prompt}")
        for sample in one.samples:
            _print(sample)
    if len(found) > len(shown):
        echo(f"{len(shown)} of {len(found)} prompts; show more with -n")


def print_trajectory(messages: Sequence[Message]) -> None:
    """Print messages, each under its role."""
    for message in messages:
        print_data(f"[{message.role}{f' {message.name}' if message.name else ''}]")
        print_data(message.text)


def _print(sample: Sample) -> None:
    print_data(f"\n## {sample.where}{' (truncated)' if sample.truncated else ''}")
    print_trajectory(sample.messages)
    if not sample.text:
        print_data("(no report)")
    print_data(", ".join(f"{name} {cell(value)}" for name, value in sample.scores.items()))
    if sample.verdicts:
        rows: list[list[Any]] = [
            [
                one.criterion,
                one.value if one.value is not None else one.reason or one.outcome,
                shorten(reason_of(one), _REASON_CHARS),
            ]
            for one in sample.verdicts
        ]
        print_table(["criterion", "verdict", "reason"], rows)
    print_data("")


def _plain(sample: Sample) -> dict[str, Any]:
    messages = [message.model_dump(mode="json", exclude_defaults=True) for message in sample.messages]
    verdicts = [plain_verdict(one) for one in sample.verdicts]
    fields = {"where": sample.where, "greedy": sample.greedy, "truncated": sample.truncated, "text": sample.text}
    return {**fields, "messages": messages, "scores": dict(sample.scores), "verdicts": verdicts}
