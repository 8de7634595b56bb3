"""`rubricsvc rubrics generate`: have rubrics written by a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from sqlalchemy.orm import Session

from rubricsvc.cli.db import database
from rubricsvc.cli.importing import Format, input_file
from rubricsvc.cli.job_waiting import end
from rubricsvc.cli.jobs import Budget, Wait
from rubricsvc.cli.output import MAX_SEED, Json
from rubricsvc.cli.service import local
from rubricsvc.core.base import storable
from rubricsvc.core.generation import MAX_REDRAWS, Generation, Method, Specification
from rubricsvc.core.judge import Sampling
from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import InvalidError
from rubricsvc.formats import InputFile
from rubricsvc.services import generating
from rubricsvc.services.importing import import_prompts
from rubricsvc.store import judges
from rubricsvc.store import prompts as stored_prompts
from rubricsvc.store.session import PUBLISHED, every

_FILE = "File with prompts; - is stdin."
_REFERENCES = "Policy whose completions are references too."
_SPECIFICATION = "Principles: file with the specification."
_RUBRICS = "Merge: rubric, as name or name@version; repeatable."
MAX_TOKENS, LOCAL_TOKENS = 4096, 512
"""Maximum tokens of a rubric, of any model and of one that transformers runs in this process, which is slow."""
_TOKENS = "Maximum tokens of a rubric."
_DEFAULT = f"{MAX_TOKENS}; {LOCAL_TOKENS} of transformers_local"


def generate(
    file: Annotated[str | None, typer.Argument(help=_FILE, show_default="all stored")] = None,
    *,
    judge: Annotated[str, typer.Option(help="Judge whose model writes: name or id.")],
    method: Annotated[Method, typer.Option(help="Way of writing a rubric.")] = "one-shot",
    prompts: Annotated[list[str] | None, typer.Option(help="Stored prompt: id, or id in its file; repeatable.")] = None,
    format: Format = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of prompts.")] = None,
    references: Annotated[str | None, typer.Option(help=_REFERENCES)] = None,
    better: Annotated[str | None, typer.Option(help="Contrastive: policy of the better completions.")] = None,
    worse: Annotated[str | None, typer.Option(help="Contrastive: policy of the worse completions.")] = None,
    specification: Annotated[Path | None, typer.Option(help=_SPECIFICATION)] = None,
    rubric: Annotated[list[str] | None, typer.Option(help=_RUBRICS, show_default="all of the prompt")] = None,
    collection: Annotated[str | None, typer.Option(help="Grounded: collection of documents to read first.")] = None,
    temperature: Annotated[float, typer.Option(min=0, max=100, help="Sampling temperature.")] = 0.7,
    top_p: Annotated[float, typer.Option(min=1e-6, max=1, help="Nucleus sampling (top-p).")] = 1.0,
    max_tokens: Annotated[int | None, typer.Option(min=1, max=1_000_000, help=_TOKENS, show_default=_DEFAULT)] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed; a redraw has the next one.")] = 0,
    repairs: Annotated[int, typer.Option(min=0, max=2, help="Times that a reply is sent back with its error.")] = 2,
    redraws: Annotated[int, typer.Option(min=0, max=MAX_REDRAWS, help="Further samples if a reply is no rubric.")] = 3,
    gate: Annotated[bool, typer.Option("--gate/--no-gate", help="Try each rubric on bad completions.")] = True,
    gate_judge: Annotated[
        str | None, typer.Option(help="Judge that tries the rubrics: name or id.", show_default="the one that writes")
    ] = None,
    empty_max: Annotated[float, typer.Option(min=0, max=1, help="Maximum reward of an empty completion.")] = 0.1,
    key: Annotated[str | None, typer.Option(help="Idempotency key; the same key gives the same job.")] = None,
    name: Annotated[str, typer.Option(help="Name of the job.")] = "",
    budget: Budget = None,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Generate a rubric for each prompt, as a job: of a file, or stored ones.

    Each rubric is tried at once on an empty completion, on another prompt's, and on others that are known to be bad;
    what speaks against it is stored. It is a draft until it is approved. The same prompts, judge and options give the
    same job.
    """
    options: dict[str, Any] = {"method": method, "repairs": repairs, "redraws": redraws, "references": references}
    options |= {"gate": gate, "gate_judge": gate_judge, "empty_max": empty_max, "better": better, "worse": worse}
    options["research"] = {"collection": collection} if collection is not None else None
    options["specification"] = specification_of(specification) if specification else None
    with database() as db:
        source = input_file(file) if file is not None else None
        with db.write() as session:
            most = max_tokens or _max_tokens(session, judge)
            options["sampling"] = Sampling(temperature=temperature, top_p=top_p, max_tokens=most, seed=seed)
            generation = Generation.model_validate(options | {"rubrics": tuple(rubric) if rubric else None})
            ids = _prompt_ids(session, source, format, prompts)[:limit]
            job_id = generating.submit(session, judge, ids, generation, key=key, name=name, budget=budget).id
            is_new = PUBLISHED in session.info
        s = local(db)
        end(s, s.jobs.get(job_id).model_copy(update={"is_new": is_new}), wait, as_json)


def _max_tokens(session: Session, judge_ref: str) -> int:
    return LOCAL_TOKENS if judges.get(session, judge_ref).value.engine == "transformers_local" else MAX_TOKENS


def specification_of(path: Path) -> Specification:
    """Return the specification in a file, by the file's name."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    try:
        return Specification(name=path.name, text=storable(text))
    except ValidationError as error:
        raise InvalidError(": ".join(first_error(error)), hint=f"{path} is the specification") from error


def _prompt_ids(session: Session, file: InputFile | None, format: str | None, refs: list[str] | None) -> list[int]:
    """Return the prompts of the file, or the stored ones of these ids, or all stored ones."""
    if file is not None and refs:
        raise InvalidError("prompts of a file and stored ones are given", hint="name a FILE or --prompts")
    if file is not None:
        return import_prompts(session, file, format)
    if refs:
        return [stored_prompts.get(session, ref).id for ref in refs]
    return [row.id for row in every(stored_prompts.page, session)]
