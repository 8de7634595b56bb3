"""`Evolutions`: rubrics that labels or the rollouts of a training run improve, and the record of their rounds.

`workers.evolution.hold_rounds` proposes, measures and decides; here is what it starts from, and what it records.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from rubricsvc.core import evolution
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.states import BY_PEOPLE, EVOLVED
from rubricsvc.errors import ConflictError, InvalidError, needs_extra
from rubricsvc.queries import EvolutionFilters
from rubricsvc.schemas.base import MAX_BATCH, Page, takes
from rubricsvc.services import lazy
from rubricsvc.services.versions import Edit, add_named, add_version
from rubricsvc.store import completions, evolutions, jobs, judges, labels, rubrics
from rubricsvc.store.labels import Selection
from rubricsvc.store.session import Database, by_id, get_or_add, name_of, page_of
from rubricsvc.store.tables import EvolutionRow, RubricRow

MIN_PAIRS = {"search": 20, "held-out": 10}
MIN_PROMPTS = 5  # prompts with pairs in each part: fewer give no interval


@dataclass(eq=False)
class Evolutions:
    """Evolutions, by id. ``edit`` says who adds versions, and which of them people must approve."""

    db: Database
    edit: Edit = field(default_factory=Edit)

    @takes(EvolutionFilters)
    def page(self, query: EvolutionFilters) -> Page[evolution.EvolutionSummary]:
        """List evolutions, oldest first, with how far each of them is."""
        with self.db.read() as session:
            prompt_id = completions.get_prompt(session, query.prompt).id if query.prompt is not None else None
            rows = page_of(session, EvolutionRow, query.after, query.limit + 1, run=query.run, prompt_id=prompt_id)
            return Page.cut([evolution.EvolutionSummary(**_summary(session, row)) for row in rows], query.limit)

    def get(self, evolution_id: int) -> evolution.EvolutionReport:
        """Get an evolution: the criteria of its buffer, its rounds, and what it gains on held-out prompts."""
        with self.db.read() as session:
            row = evolutions.get(session, evolution_id)
            steps = [one for one in evolutions.steps(session, row.id) if one.round is not None]
            ids = {id_ for one in steps for id_ in (one.rubric_id, one.target_id) if id_}
            used = {id_: version.ref for id_, version in by_id(session, RubricRow, ids).items()} | {None: None}
            rounds = [
                {"step": one.step, "used": used[one.rubric_id], "wrote": used[one.target_id], "round": one.round}
                for one in steps
            ]
            return evolution.EvolutionReport(
                **_summary(session, row),
                settings=row.request,
                entries=tuple(evolutions.newest_entries(session, row)),
                rounds=tuple(map(evolution.EvolutionStep.model_validate, rounds)),
                jobs=tuple(job.id for job in evolutions.jobs_of(session, row.id)),
            )

    @takes(evolution.EvolutionRequest)
    def start(self, request: evolution.EvolutionRequest) -> evolution.EvolutionData:
        """Start an evolution on labels, and return the completions and labels that `evolve start` searches.

        With the same settings, labels and verdicts it is the one that exists. 404 if there is no such rubric, job or
        judge; 422 if the start has no verdicts, or they depend on other completions; if there are too few labels; or if
        a price is not known.
        """
        with needs_extra("judging"):
            from rubricsvc.services.analysing import scope_of
        with self.db.write() as session:
            row = rubrics.get(session, request.rubric, allow_drafts=True)
            selection, judge = scope_of(session, row.id, request.job_id, request.judge)
            if any(leaf.mode == "comparative" for leaf in judge.value.leaf_judges):
                message = f"judge {judge.name!r} compares completions: its verdicts depend on the group"
                raise InvalidError(message, hint="evolve with a readout or written judge: --judge NAME", path="judge")
            if request.proposer is not None:
                proposer = judges.get(session, request.proposer).value
                if not proposer.model:
                    message = f"judge {request.proposer!r} ({proposer.mode}) has no model of its own"
                    raise InvalidError(message, hint="name one of its members", path="proposer")
                for one in (proposer, judge.value):
                    jobs.check_budget(one, request.budget)
            data = _labelled(session, row, selection, request, judge.name)
            settings = request.model_copy(update={"judge": judge.name, "rubric": row.ref})
            found, unlimited = digest("labels", data), settings.model_copy(update={"budget": None})
            key = {"key": digest("evolution", unlimited, found)}
            stored, _ = get_or_add(session, EvolutionRow, key, rubric_id=row.id)
            stored.settings = settings.model_dump(mode="json")
            return data.model_copy(update={"id": stored.id})

    @takes(evolution.NewEvolutionStep)
    def begin_step(self, new: evolution.NewEvolutionStep) -> Page[evolution.EvolutionState]:
        """Return the rubric version that a step of a run uses for each task, and record it.

        Prompts and rubrics are stored if they are not yet. A step that is repeated uses the same versions. 409 if the
        earlier steps of the run are not known here; 422 if people approve all rubrics, and `approve` is auto.
        """
        if new.approve == "auto" and self.edit.policy in BY_PEOPLE:
            message = f"RUBRICSVC_REQUIRE_APPROVAL={self.edit.policy}: rubrics are approved by people"
            hint = 'set approve = "human"'
            raise InvalidError(message, hint=f"{hint} in [evolve]", path="evolve.approve")
        states = []
        name_of("the name of the run", new.run)
        with self.db.write() as session:
            if new.step and not page_of(session, EvolutionRow, 0, 1, run=new.run):
                message = f"the database does not have the rubric versions that run {new.run} has used"
                raise ConflictError(message, hint="set RUBRICSVC_URL or RUBRICSVC_DATABASE_URL to those of the run")
            for prompt, base, prompt_name, name in new.tasks:
                lazy.check_rubric(base)
                if new.approve == "auto" and base.examples:
                    hint = 'set approve = "human" in [evolve], or leave the examples out'
                    message = "a version with examples is approved after a test of them"
                    raise InvalidError(message, hint=hint, path="evolve.approve")
                prompt_id = completions.add_prompt(session, prompt, prompt_name or None).id
                unique = {"key": digest("evolution", new.run, prompt_id, base.digest)}
                if known := page_of(session, EvolutionRow, key=unique["key"]):
                    row = known[0]
                else:
                    edit = replace(self.edit, by=self.edit.by or new.run)
                    version = evolutions.authored(session, base.digest, prompt_id)
                    version = version or add_named(session, base, edit, name, prompt_id)
                    columns = {"rubric_id": version.id, "run": new.run, "prompt_id": prompt_id}
                    row, _ = get_or_add(session, EvolutionRow, unique, **columns)
                step = evolutions.begin_step(session, row, new.step)
                used, entries = rubrics.get(session, step.rubric_id).value, evolutions.newest_entries(session, row)
                states.append(
                    evolution.EvolutionState(id=row.id, rubric=used, entries=tuple(entries), round=step.round_value)
                )
        return Page(data=tuple(states), next=None)

    @takes(evolution.NewEvolutionRound)
    def record(self, evolution_id: int, new: evolution.NewEvolutionRound) -> evolution.EvolutionSummary:
        """Record a round, and in the same transaction the version that it has written. What is recorded stays.

        409 if another process has decided the round of an evolution on labels in another way.
        """
        if new.rubric is not None:
            lazy.check_rubric(new.rubric)
        with self.db.write() as session:
            row = evolutions.get(session, evolution_id)
            # of two processes that record a round at once, the second one sees the first
            session.refresh(row, with_for_update=True)
            result = new.result if row.run is None else None
            if result is not None and row.request is not None and new.step != row.request.rounds:
                raise InvalidError("a result follows the last round", hint="record its rounds first", path="step")
            step, target_id = evolutions.begin_step(session, row, new.step), None
            known, done, name = step.round_value, new.round, evolutions.lineage(row)
            parent = evolutions.newest_target(session, row.id) or row.rubric
            again = known is not None and known.asked_again and not done.decided
            if known is not None and not again and (known.decided or not done.decided):
                if row.run is None and known != done:
                    hint = "wait until it has ended; `rubricsvc evolve show` says how far it is"
                    raise ConflictError(f"evolution {row.id} is continued by another process", hint=hint)
                return evolution.EvolutionSummary(**_summary(session, row))
            proposed = set[str]().union(*(one.criterion.texts for one in new.entries)) - row.rubric.value.texts
            rubrics.add_model_texts(session, proposed, name, row.prompt_id, row.rubric_id)
            if new.rubric is not None and result is not None and new.rubric.digest != row.rubric.digest:
                # a branch where somebody has edited the start since
                edit, of = Edit(parent=row.rubric_id, force=True, draft=True), {"prompt_id": row.rubric.prompt_id}
                target_id = add_version(session, new.rubric, edit, name=row.rubric.name, origin=EVOLVED, **of).row.id
            elif new.rubric is not None and result is None and new.rubric.digest != parent.digest:
                # forced: the newest version that a person has not seen yet has the same parent, and this replaces it
                prompt_id = row.prompt_id or row.rubric.prompt_id
                human = new.approve == "human" or self.edit.policy in BY_PEOPLE
                options: dict[str, Any] = {"parent": parent.id, "force": True, "draft": human, "policy": "none"}
                edit = replace(self.edit, by=self.edit.by or row.run or name, **options)
                target = add_version(session, new.rubric, edit, name=name, prompt_id=prompt_id, origin=EVOLVED).row
                moved = {"activated": done.activated, "retired": done.retired}
                changed = "; ".join(f"{what} {', '.join(keys)}" for what, keys in moved.items() if keys)
                comment = f"evolved after step {new.step + 1}: {changed or 'as the buffer is now'}"
                rubrics.record_event(session, target, target.state, by=edit.by or name, comment=comment)
                target_id = target.id
            step.round, step.target_id = done.model_dump(mode="json"), target_id
            step.entries = [one.model_dump(mode="json") for one in new.entries]
            session.flush()
            if result is not None:
                row.result, row.finished_at = result.model_dump(mode="json"), datetime.now(UTC)
            return evolution.EvolutionSummary(**_summary(session, row))


def _labelled(
    session: Session, row: RubricRow, selection: Selection, request: evolution.EvolutionRequest, judge: str
) -> evolution.EvolutionData:
    """Return the completions that the judge scored and people gave overall scores, divided by what is independent."""
    import numpy as np

    from rubricsvc.services.analysing import read_matrices
    from rubricsvc.stats.paired import preference_pairs

    matrix = next(read_matrices(session, selection))
    place = {id_: number for number, id_ in enumerate(matrix.completions.tolist())}
    overall = [(place[id_], who, score) for id_, who, score in labels.overall_labels(session, selection)]
    scored = [number for number, *_ in overall]
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: no person gave a score
        sums = np.bincount(scored, [score for *_, score in overall], len(place))
        scores = sums / np.bincount(scored, minlength=len(place))
    used = np.flatnonzero(~np.isnan(matrix.rewards) & ~np.isnan(scores))
    if len(used) > MAX_BATCH:
        message = f"{len(used)} labelled completions; a search is limited to {MAX_BATCH}"
        raise InvalidError(message, hint="name a job: --job ID", path="job_id")
    used = used[np.argsort(matrix.completions[used])]  # not in the order of the items, which may change
    clusters = matrix.independent[used]
    shuffled = np.random.default_rng([request.seed, 0]).permutation(np.unique(clusters))
    held_out = np.isin(clusters, shuffled[: round(request.held_out * len(shuffled))])
    new_place = {number: new for new, number in enumerate(used.tolist())}
    kept = [(new_place[number], who, score) for number, who, score in overall if number in new_place]
    pairs = preference_pairs(kept, matrix.prompts[used])
    for name, part in (("search", ~held_out), ("held-out", held_out)):
        inside = pairs[part[pairs].all(1)]
        among = len(np.unique(clusters[inside[:, 0]]))
        if len(inside) < MIN_PAIRS[name] or among < MIN_PROMPTS:
            needed = f"{MIN_PAIRS[name]} pairs that a person scored differently, of {MIN_PROMPTS} prompts"
            label = "label more completions (`rubricsvc labels import FILE`)"
            hint = f"{label}, and score them: `rubricsvc jobs submit --judge NAME`"
            message = f"the {name} part needs {needed}; found {len(inside)} of {among}"
            raise InvalidError(message, hint=hint, path="labels")
    values = np.where(np.isnan(matrix.values[used]), None, matrix.values[used]).T.tolist()  # type: ignore[call-overload]
    return evolution.EvolutionData(
        rubric=row.value,
        prompt_id=row.prompt_id,
        judge=judge,
        completions=tuple(matrix.completions[used].tolist()),
        clusters=tuple(clusters.tolist()),
        held_out=tuple(held_out.tolist()),
        scores=tuple(scores[used].tolist()),
        values={one.key: tuple(column) for one, column in zip(row.value.criteria, values, strict=True)},
        pairs=tuple(map(tuple, pairs.tolist())),
    )


def _summary(session: Session, row: EvolutionRow) -> dict[str, Any]:
    """Return the fields of a summary."""
    steps, newest = evolutions.steps(session, row.id), evolutions.newest_target(session, row.id)
    names = ("id", "created_at", "finished_at", "run", "prompt_id", "held_out")
    jobs_of = evolutions.jobs_of(session, row.id) if row.run is None else []
    held = steps if row.run is not None else [one for one in steps if one.round_value and one.round_value.decided]
    return {name: getattr(row, name) for name in names} | {
        "rubric": row.rubric.ref,
        "newest": newest.ref if newest is not None else None,
        "steps": len(held) - (row.run is None and row.finished_at is not None),
        "planned": row.request.rounds if row.request is not None else None,
        "cost": sum(one.round.get("cost", 0.0) for one in steps if one.round) + sum(job.spent for job in jobs_of),
    }
