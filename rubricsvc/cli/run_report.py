"""`rubricsvc runs report` and `runs plot`: a training run as a page, and its curves as pictures."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli import output
from rubricsvc.cli.db import database
from rubricsvc.cli.run_folders import read_record
from rubricsvc.cli.run_views import Run, find, last_steps
from rubricsvc.core.run_report import RunReport, Sample
from rubricsvc.errors import InvalidError, NotFoundError, needs_extra

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.passport import Passport
    from rubricsvc.store.session import Database

MOST_STEPS = 1_000_000
SHOWN = 5
"""Samples with the highest reward, and as many with the largest gap."""
SHOWN_PROMPTS = 8
_LOOKED_AT = 50
_CAPTION_CHARS = 110


def report(
    run: Run,
    *,
    out: Annotated[Path, typer.Option(help="Page to write.", show_default=False)],
) -> None:
    """Write a run as one page: samples, evaluations with intervals, alarms, curves, judge, configuration.

    The page holds everything in itself, needs no script and loads nothing. Evaluations are read from the run's folder.
    """
    with needs_extra("charts"):
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    from rubricsvc.web.run import render_run

    page = render_run(read_report(run))
    with output.open_output(out) as stream:
        stream.write(page)


def plot(
    run: Run,
    *,
    out: Annotated[Path, typer.Option(help="Picture to write: .svg or .png.", show_default=False)],
    metric: Annotated[list[str] | None, typer.Option(help="Metric; repeat it.", show_default="reward")] = None,
) -> None:
    """Write metrics of a run over its steps as a picture."""
    with needs_extra("charts"):
        import vl_convert
    from rubricsvc.web.charts import WIDTHS, styled
    from rubricsvc.web.run_charts import band_note, curve, metric_points

    if (kind := out.suffix.lower()) not in (".svg", ".png"):
        raise InvalidError(f"{out} is neither .svg nor .png", hint="name the file chart.svg or chart.png")
    names = metric or ["reward"]
    steps = read_report(run).steps
    known = {name for step in steps for name in step}
    missing = [name for name in names if not metric_points(steps, [name])]
    if missing:
        hint = f"the run has {', '.join(sorted(known))}" if known else "no step is finished yet"
        raise NotFoundError(f"the run has no numbers of {', '.join(missing)}", hint=hint)
    chart = curve(names[0] if len(names) == 1 else "value", metric_points(steps, names), height=300)
    picture = styled(chart(WIDTHS["wide"]).properties(title=_caption(band_note(steps, names))))
    picture.config.background = "white"
    specification = picture.to_json()
    with output.replaced(out) as part:
        if kind == ".svg":
            part.write_text(vl_convert.vegalite_to_svg(specification), encoding="utf-8")
        else:
            part.write_bytes(vl_convert.vegalite_to_png(specification, scale=2))


def _caption(note: str) -> dict[str, Any]:
    """Return a title below a chart."""
    lines = textwrap.wrap(note, _CAPTION_CHARS)
    style = {"fontSize": 12, "fontWeight": "normal", "anchor": "start", "orient": "bottom", "offset": 10}
    return {"text": lines, **style}


def read_report(ref: str) -> RunReport:
    """Return what is known of a run: its record, and its folder where that is here.

    Raises:
        NotFoundError: There is no such run.
    """
    from rubricsvc.services import recording

    with database() as db:
        found = find(db, ref)
        steps = last_steps(db, found, MOST_STEPS)
        if isinstance(found, Path):
            return _with_folder(RunReport(ref, read_record(found), steps), found)
        with db.read() as session:
            one = recording.details(session, found)
            highest = _highest(session, found)
        config = one.config or {}
        passport = _passport(db, config.get("judge"))
        made = RunReport(str(found), config, steps, highest=highest, passport=passport, status=one.status)
    return _with_folder(made, Path(one.folder))


def _passport(db: Database, judge: Mapping[str, Any] | None) -> Passport | None:
    from rubricsvc.store import judges

    with db.read() as session:
        row = judges.find(session, judge["name"]) if judge else None
        return row.passport_value if row is not None else None


def _highest(session: Session, run_id: int) -> list[Sample]:
    """Return the rollouts with the highest rewards, each text once."""
    from rubricsvc.store import completions, prompts, runs

    rows = runs.best_rollouts(session, run_id, _LOOKED_AT)
    texts = completions.many(session, {row.completion_id for row in rows})
    questions = prompts.many(session, {row.prompt_id for row in rows})
    found: dict[str, Sample] = {}
    for row in rows:
        text = texts[row.completion_id][1].text
        where = f"step {row.step}, rubric {row.rubric.ref}"
        sample = Sample(
            questions[row.prompt_id].text, text, where, {"training reward": row.reward}, truncated=row.truncated
        )
        found.setdefault(text, sample)
    return list(found.values())[:SHOWN]


def _with_folder(report: RunReport, folder: Path) -> RunReport:
    """Add the evaluations and baselines in the folder of a run, if it is here."""
    from dataclasses import replace

    from trainer.evaluation.baselines import read_baselines
    from trainer.evaluation.evaluation import LINES
    from trainer.metrics import read

    lines = sorted(read(folder, LINES), key=lambda line: int(line["step"]))
    if not lines:
        return report
    baselines = read_baselines(folder)
    gold = str(lines[-1]["gold"])
    files = {f"step {line['step']}": folder / "eval" / f"step-{line['step']:06d}.jsonl" for line in lines}
    start = next(iter(files))
    samples = {name: list(_completions(path, name, gold)) for name, path in files.items()}
    best = list(_completions(folder / "baselines" / "best_of_n.jsonl", "best of n", gold))
    return replace(
        report,
        evaluations=lines,
        baselines=baselines,
        highest=report.highest or _by(("reward",), [one for name in samples for one in samples[name]]),
        widest=_widest([one for name, each in samples.items() if name != start for one in each], gold),
        columns=[*samples, "best of n"],
        samples=_side_by_side({**samples, "best of n": best}),
    )


def _completions(path: Path, name: str, gold: str) -> Iterator[Sample]:
    import json

    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        where = f"{name}, {'greedy' if row['greedy'] else 'sampled'}, held-out prompt {row['prompt']}"
        prompt = row.get("prompt_text") or row["prompt"]
        yield Sample(prompt, row["text"], where, row["rewards"], truncated=row["truncated"])


def _by(names: Sequence[str], samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples with the largest first score, or the largest excess of it over the second; each text once."""

    def size(one: Sample) -> float | None:
        values = [one.scores.get(name) for name in names]
        return None if None in values else values[0] - sum(value or 0.0 for value in values[1:])  # type: ignore[operator]

    sized = [(value, one) for one in samples if (value := size(one)) is not None]
    ranked = sorted(sized, key=lambda pair: -pair[0])
    unique = {one.text: one for value, one in reversed(ranked) if len(names) == 1 or value > 0}
    return list(unique.values())[::-1][:SHOWN]


def _widest(samples: Sequence[Sample], gold: str) -> list[Sample]:
    return [] if gold == "reward" else _by(("reward", gold), samples)


def _side_by_side(samples: Mapping[str, Sequence[Sample]]) -> dict[str, dict[str, Sample]]:
    """Return for each prompt one completion of each policy: the greedy one, else the first."""
    found: dict[str, dict[str, Sample]] = {}
    for name, each in samples.items():
        for one in each:
            columns = found.setdefault(one.prompt, {})
            if name not in columns or ", greedy," in one.where:
                columns[name] = one
    return dict(list(found.items())[:SHOWN_PROMPTS])
