"""Rounds in which rubrics evolve, on labels or on the rollouts of a training run. Needs the extra ``judging``.

`hold_rounds` proposes criteria, has them measured by a `Source`, and records the version that was decided on. A command
calls it with people's labels (`LabelSource`), the trainer between its steps with rollouts (`RunEvolutions`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from rubricsvc.core.evolution import (
    USED,
    BufferedCriterion,
    EvolutionRequest,
    EvolutionRound,
    RetirementReason,
    evolved_rubric,
)
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.generation import NO_RUBRIC
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.reward import check_formula
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.states import DRAFT, EVOLVED
from rubricsvc.core.untrusted import clean
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import ConflictError, InvalidError, UnavailableError, cut
from rubricsvc.services.analysing import read_matrices, scope_of
from rubricsvc.services.versions import Edit, add_version
from rubricsvc.stats.criteria import reward_vector
from rubricsvc.stats.evolution import agreement, held_out_result, measured
from rubricsvc.stats.intervals import Floats
from rubricsvc.stats.paired import differences, ordered, preference_pairs
from rubricsvc.store import completions, evolutions, jobs, judges, labels, rubrics
from rubricsvc.store.labels import Selection
from rubricsvc.store.session import by_id, get_or_add, page_of
from rubricsvc.store.tables import CANCELLED, CompletionRow, EvolutionRow, PromptRow, RubricRow

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.states import ApprovalPolicy
    from rubricsvc.store.session import Database

Approve = Literal["auto", "human"]
Authored = tuple[Prompt, Rubric]
"""A prompt with its authored rubric."""


@dataclass
class Round:
    """The round of the evolution ``id`` of the rubric ``base`` that follows a ``step``, which ``used`` a version.

    A source adds to the buffer (``entries``) what is proposed, replaces entries by what is measured, and says which are
    ``untested``, by key, since their trial failed. ``done`` is what has been done so far.
    """

    id: int
    step: int
    base: Rubric
    used: Rubric
    entries: list[BufferedCriterion]
    done: EvolutionRound | None = None
    untested: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    score: float | None = None


class Source(Protocol):
    """What criteria are proposed from and measured on: people's labels, or the rollouts of a run."""

    def propose(self, rounds: Sequence[Round]) -> None:
        """Add proposed criteria to the buffer of each round, and set its ``done``, or add a failure."""

    def measure(self, rounds: Sequence[Round]) -> None:
        """Measure what is due in each round, and replace its entries."""

    def decide(self, one: Round) -> tuple[Mapping[str, RetirementReason | None], Rubric]:
        """Return which criteria are kept (None) or why they are retired, by key, and the rubric with those in use."""


def hold_rounds(
    db: Database, step: int, ids: Sequence[int], source: Source, *, approve: Approve = "human"
) -> list[Round]:
    """Hold the round of each evolution that follows a step: propose, measure, decide, and record each of them.

    What another process has recorded is taken over: proposals are not asked for again, and a round that is decided
    stays. A version is written in one transaction with its round, as a draft where a person approves.

    Raises:
        ConflictError: Another process has held the round of an evolution on labels meanwhile.
    """
    rounds: list[Round] = []
    with db.write() as session:
        for row in (evolutions.get(session, id_) for id_ in ids):
            recorded = evolutions.begin_step(session, row, step)
            used, entries = rubrics.get(session, recorded.rubric_id).value, evolutions.newest_entries(session, row)
            rounds.append(Round(row.id, step, row.rubric.value, used, entries, recorded.round_value))
    fresh = [one for one in rounds if one.done is None]
    source.propose(fresh)
    with db.write() as session:
        for one in fresh:
            one.done = (one.done or EvolutionRound()).model_copy(update={"decided": False})
            recorded = evolutions.begin_step(session, evolutions.get(session, one.id), step)
            if recorded.round is None:
                evolutions.write_round(session, recorded, one.entries, one.done)
    under_way = [one for one in rounds if one.done is not None and not one.done.decided]
    source.measure(under_way)
    for one in under_way:
        moved, (decided, version) = defaultdict[str, list[str]](list), source.decide(one)
        for place, entry in enumerate(one.entries):
            if entry.key in decided:
                reason = decided[entry.key]
                state = "retired" if reason else "frozen" if entry.key in one.base.by_key else "active"
                if bool(reason) == (entry.state in USED):
                    moved["retired" if reason else "activated"].append(entry.key)
                one.entries[place] = entry.model_copy(update={"state": state, "reason": reason})
        written = one.done or EvolutionRound()
        fields: dict[str, object] = {name: tuple(keys) for name, keys in moved.items()}
        fields |= {"decided": True, "untested": tuple(one.untested), "score": one.score}
        fields["failure"] = "; ".join(filter(None, [written.failure, *one.failures])) or None
        fields["active"] = sum(entry.state == "active" for entry in one.entries)
        one.done = written.model_copy(update=fields)
        with db.write() as session:
            row = evolutions.get(session, one.id)
            recorded = evolutions.begin_step(session, row, step)
            if (known := recorded.round_value) is not None and known.decided:
                if row.run is None:
                    raise ConflictError(f"evolution {one.id} is continued by another process", hint="wait for it")
                continue
            parent, target_id = evolutions.newest_target(session, row.id) or row.rubric, None
            if version.digest != parent.digest:
                # forced: the newest version that a person has not seen yet has the same parent, and this replaces it
                name, prompt_id = evolutions.lineage(row), row.prompt_id or row.rubric.prompt_id
                edit = Edit(row.run or name, parent.id, force=True, draft=approve == "human", policy="none")
                target = add_version(session, version, edit, name=name, prompt_id=prompt_id, origin=EVOLVED).row
                changed = "; ".join(f"{what} {', '.join(keys)}" for what, keys in moved.items())
                comment = f"evolved after step {step + 1}: {changed or 'as the buffer is now'}"
                rubrics.record_event(session, target, target.state, by=edit.by or name, comment=comment)
                target_id = target.id
            evolutions.write_round(session, recorded, one.entries, one.done, target_id)
    return rounds


class RunEvolutions:
    """The evolutions of one training run, one for each prompt; ``run`` is its name, which no other run has.

    What a step used and what its round did is recorded once: a step that is repeated after a resume finds it, and so
    uses the same versions. They are approved when they are written, or by a person (``approve``); ``approval`` says
    which rubrics must be.

    Raises:
        InvalidError: All rubrics need the approval of a person, and ``approve`` is ``auto``.
    """

    def __init__(self, db: Database, run: str, approve: Approve, approval: ApprovalPolicy = "generated") -> None:
        if approve == "auto" and approval == "all":
            message, hint = "RUBRICSVC_REQUIRE_APPROVAL=all: rubrics are approved by people", 'set approve = "human"'
            raise InvalidError(message, hint=f"{hint} in [evolve]", path="evolve.approve")
        self.run, self.approve, self.db = run, approve, db
        self._ids: dict[tuple[str, str], int] = {}

    def begin_step(self, step: int, tasks: Sequence[Authored]) -> list[Rubric]:
        """Return the rubric version that a step (from 0) uses for each task, and record it.

        Raises:
            ConflictError: The database does not know the earlier steps of the run.
        """
        with self.db.read() as session:
            if step and not page_of(session, EvolutionRow, 0, 1, run=self.run):
                message = f"the database does not have the rubric versions that run {self.run} has used"
                raise ConflictError(message, hint="use the database of the run: set RUBRICSVC_DATABASE_URL")
        ids, used = self.ids(tasks), dict[int, int]()
        with self.db.write() as session:
            for id_ in dict.fromkeys(ids):
                used[id_] = evolutions.begin_step(session, evolutions.get(session, id_), step).rubric_id
            rows = by_id(session, RubricRow, used.values())
            return [rows[used[id_]].value for id_ in ids]

    def ids(self, tasks: Sequence[Authored]) -> list[int]:
        """Return the evolution of each task; the prompt and the rubric are stored if they are not yet."""
        keys = [(prompt.digest, base.digest) for prompt, base in tasks]
        with self.db.write() as session:
            for key, (prompt, base) in zip(keys, tasks, strict=True):
                if key not in self._ids:
                    prompt_id = completions.add_prompt(session, prompt).id
                    row = evolutions.authored(session, base.digest, prompt_id)
                    if row is None:
                        edit, name = Edit(self.run, policy="none"), f"rubric-{base.digest[:12]}"
                        row = add_version(session, base, edit, name=name).row
                    columns = {"rubric_id": row.id, "run": self.run, "prompt_id": prompt_id}
                    unique = {"key": digest("evolution", self.run, prompt_id, base.digest)}
                    self._ids[key] = get_or_add(session, EvolutionRow, unique, **columns)[0].id
        return [self._ids[key] for key in keys]

    def spent(self) -> float:
        """Return the US dollars that the proposals of this run have cost."""
        with self.db.read() as session:
            return evolutions.proposal_costs(session, run=self.run)

    def waiting(self) -> list[str]:
        """Return the versions of this run that wait for a person's approval, as name@version."""
        with self.db.read() as session:
            return [row.ref for row in evolutions.waiting(session, self.run, rubrics.NOT_APPROVED)]


MIN_PAIRS = {"search": 20, "held-out": 10}
MIN_PROMPTS = 5
"""Prompts with pairs in each part: fewer give no interval."""
SHOWN = 6
"""Completions that a proposer is shown, of the pairs that rubric and people order differently."""
MAX_CHARS = 6000
"""Characters of such a completion and of its prompt."""
WEIGHT = 0.1
"""Weight of a new criterion, as a share of the sum of the start's."""
_WRITING = frozenset({"written", "trajectory"})


Propose = Callable[..., tuple[list[BufferedCriterion], EvolutionRound]]
"""Asks a model for criteria: ``propose(base, entries, step=, texts=, budget=)``, of `propose_criteria`; ``texts`` are
completions with their prompt and people's scores, by SHA-256, and ``budget`` what is left, in US dollars."""


class LabelSource:
    """Proposes from the pairs that rubric and people order differently, and measures whole drafts on all pairs.

    Attributes:
        id: The evolution of the rubric with these settings, labels and verdicts; its budget is that of ``request``.

    Raises:
        NotFoundError: There is no such rubric, job or judge.
        InvalidError: The start has no verdicts, or they depend on other completions; there are too few labels or labels
            of one class; or a price is not known.
    """

    def __init__(
        self,
        db: Database,
        rubric: int | str,
        request: EvolutionRequest,
        score_job: Callable[[int], None],
        propose: Propose | None = None,
    ) -> None:
        self._db, self._request, self._score_job, self._propose = db, request, score_job, propose
        with db.write() as session:
            row = rubrics.get(session, rubric, allow_drafts=True)
            _, judge = scope_of(session, row.id, request.job_id, request.judge)
            leaves = judge.value.leaf_judges
            if any(leaf.mode == "comparative" for leaf in leaves):
                message = f"judge {judge.name!r} compares completions: its verdicts depend on the group"
                raise InvalidError(message, hint="evolve with a readout or written judge: --judge NAME", path="judge")
            # leaving a criterion out changes what such a judge is asked about the others
            self._together = any(one.mode in _WRITING and one.criteria_per_call != 1 for one in leaves)
            if request.proposer is not None:
                proposer = judges.get(session, request.proposer).value
                if not proposer.model:
                    message = f"judge {proposer.name!r} ({proposer.mode}) has no model of its own"
                    raise InvalidError(message, hint="name one of its members", path="proposer")
                for one in (proposer, judge.value):
                    jobs.check_budget(one, request.budget)
            self._start_id, self._start, self._prompt_id = row.id, row.value, row.prompt_id
            self._judge_id = judge.id
            found = self._read_labels(session, row, Selection(judge.id, request.job_id, row.id))
            settings = request.model_copy(update={"judge": judge.name})
            key = digest("evolution", row.id, judge.id, settings.model_copy(update={"budget": None}), found)
            columns = {"rubric_id": row.id, "judge_id": judge.id, "data_digest": found}
            given = settings.model_dump(mode="json")
            evolution, _ = get_or_add(session, EvolutionRow, {"key": key}, settings=given, **columns)
            evolution.settings = given
            self.id, self._name = evolution.id, evolutions.lineage(evolution)
            hint = "continue by the same command with a larger --budget"
            self._exhausted = InvalidError(f"evolution {self.id} has used its budget", hint=hint)
            held = [one for one in evolutions.steps(session, self.id) if one.round_value and one.round_value.decided]
            tried = {f"{self._name}-{one.step}" for one in held}
            known = evolutions.jobs_of(session, self.id)
        for job in known:
            if (job.key or "").rpartition("-")[0] in tried:
                self._take(job.id)

    def _read_labels(self, session: Session, rubric: RubricRow, selection: Selection) -> str:
        """Read the completions that the judge scored and people gave overall scores; return the SHA-256 of all."""
        matrix = next(read_matrices(session, selection))
        order = np.argsort(matrix.completions)  # not that of the items, which may change
        self._ids, self._verdicts = matrix.completions[order], matrix.values[order]
        self._clusters = matrix.independent[order]
        place = {id_: row for row, id_ in enumerate(self._ids.tolist())}
        overall = [(place[id_], who, score) for id_, who, score in labels.overall_labels(session, selection)]
        scored, given = [row for row, *_ in overall], [score for *_, score in overall]
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: no person gave a score
            self._scores = np.bincount(scored, given, len(place)) / np.bincount(scored, minlength=len(place))
        kept = ~np.isnan(reward_vector(rubric.value, self._verdicts)) & ~np.isnan(self._scores)
        clusters = np.random.default_rng([self._request.seed, 0]).permutation(np.unique(self._clusters[kept]))
        out = np.isin(self._clusters, clusters[: round(self._request.held_out * len(clusters))])
        self._rows = {"search": kept & ~out, "held-out": kept & out}
        pairs = preference_pairs(overall, matrix.prompts[order]).reshape(-1, 2)
        self._pairs = {name: pairs[rows[pairs].all(1)] for name, rows in self._rows.items()}
        for name, found in self._pairs.items():
            among = len(np.unique(self._clusters[found[:, 0]]))
            if len(found) < MIN_PAIRS[name] or among < MIN_PROMPTS:
                needed = f"{MIN_PAIRS[name]} pairs that a person scored differently, of {MIN_PROMPTS} prompts"
                label = "label more completions (`rubricsvc labels import FILE`)"
                hint = f"{label}, and score them: `rubricsvc jobs submit --judge NAME`"
                message = f"the {name} part needs {needed}; found {len(found)} of {among}"
                raise InvalidError(message, hint=hint, path="labels")
        self._values = dict(zip([one.key for one in rubric.value.criteria], self._verdicts.T, strict=True))
        parts = (self._ids, self._verdicts, self._scores, *self._pairs.values())
        return sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in parts)).hexdigest()

    def _rewards(self, rubric: Rubric) -> Floats:
        return reward_vector(rubric, np.column_stack([self._values[one.key] for one in rubric.criteria]))

    def propose(self, rounds: Sequence[Round]) -> None:
        """Ask for criteria that tell what people prefer, in pairs that the rubric orders in another way.

        Raises:
            InvalidError: The budget is used up.
            UnavailableError: The proposer cannot be asked.
        """
        if self._propose is None:
            return
        for one in rounds:
            rewards, pairs, texts = self._rewards(one.used), self._pairs["search"], dict[str, str]()
            worst = np.argsort(ordered(differences(rewards, pairs)), kind="stable")[: 4 * SHOWN]
            drawn = np.random.default_rng([self._request.seed, 2, one.step]).permutation(worst)
            with self._db.read() as session:
                rows = list(dict.fromkeys(pairs[drawn].flatten().tolist()))[:SHOWN]
                found = by_id(session, CompletionRow, self._ids[rows].tolist())
                asked = by_id(session, PromptRow, {completion.prompt_id for completion in found.values()})
            for row in rows:
                completion = found[int(self._ids[row])]
                note = f"People gave it {self._scores[row]:.2f} of 1; its reward is {rewards[row]:.2f}."
                question = cut(asked[completion.prompt_id].value.text, MAX_CHARS)
                answer = cut(f"{note}\n\n{completion.value.text}", MAX_CHARS)
                texts[completion.digest] = clean(f"Question:\n{question}\n\nAnswer:\n{answer}").text
            added, one.done = self._propose(one.base, one.entries, step=one.step, texts=texts, budget=self._left())
            reason = (one.done.failure or "").partition(":")[0]
            if reason == Reason.BUDGET:
                raise self._exhausted
            if reason not in ("", NO_RUBRIC):
                raise UnavailableError(f"the proposer {self._request.proposer!r}: {one.done.failure}")
            one.entries += added

    def measure(self, rounds: Sequence[Round]) -> None:
        """Have the judge asked about the criteria that it was not asked about yet."""
        labelled = np.flatnonzero(self._rows["search"])
        for one in rounds:
            new = [entry.criterion for entry in one.entries if entry.key not in self._values]
            if new:
                plain = [each.model_copy(update={"weight": 1.0, "group": (), "required": False}) for each in new]
                self._take(self._score(f"{one.step}", Rubric(criteria=tuple(plain)), "search"))
            for place, entry in enumerate(one.entries):
                if not entry.trials:
                    known = self._values[entry.key][labelled].tolist()
                    values = [None if np.isnan(each) else each for each in known]
                    sign = -1.0 if entry.criterion.weight < 0 else 1.0
                    reference = (sign * self._scores[labelled]).tolist()
                    one.entries[place] = measured(entry, one.step, values, reference) or entry

    def decide(self, one: Round) -> tuple[Mapping[str, RetirementReason | None], Rubric]:
        """Keep the best of the version and its changes: a criterion is left out, or one more is taken in."""
        criteria, tried = list(one.used.criteria), list[list[Criterion]]()
        if len(criteria) > 1:
            tried += [criteria[:place] + criteria[place + 1 :] for place in range(len(criteria))]
        for entry in one.entries:
            if entry.key not in one.used.by_key:
                active = entry.model_copy(update={"state": "active"})
                added = self._start.by_key.get(entry.key) or evolved_rubric(self._start, [active], WEIGHT).criteria[-1]
                tried.append([*criteria, added])
        best, one.score = one.used, agreement(self._rewards(one.used), self._pairs["search"])
        for changed in tried:
            try:
                draft = Rubric.model_validate(one.used.with_criteria(changed).model_dump())
                check_formula(draft)
            except ValueError:  # the formula does not take them
                continue
            score = agreement(self._rewards(draft), self._pairs["search"])
            if score is not None and (one.score is None or score > one.score + 1e-9):
                best, one.score = draft, score
        return {entry.key: None if entry.key in best.by_key else "agreement" for entry in one.entries}, best

    def finish(self) -> None:
        """Score the best rubric as a whole on held-out prompts, and store it as a draft of the start's name."""
        with self._db.read() as session:
            row = evolutions.get(session, self.id)
            best = (evolutions.newest_target(session, self.id) or row.rubric).value
            entries = evolutions.newest_entries(session, row)
        start, after = reward_vector(self._start, self._verdicts), self._rewards(best)
        done = EvolutionRound(score=agreement(after, self._pairs["search"]))
        new = best.by_key.keys() - self._start.by_key.keys()
        if new or (self._together and len(best.criteria) < len(self._start.criteria)):
            job_id = self._score("held-out", best, "held-out")
            with self._db.read() as session:
                (matrix,) = read_matrices(session, Selection(self._judge_id, job_id))
            after = reward_vector(best, matrix.aligned(self._ids))
        result = held_out_result(self._pairs["held-out"], self._clusters, start, after)
        with self._db.write() as session:
            row = evolutions.get(session, self.id)
            recorded = evolutions.begin_step(session, row, self._request.rounds)
            if recorded.round is None:
                target = None
                if best != self._start:  # a branch where somebody has edited the start since
                    given = rubrics.get(session, self._start_id)
                    edit, of = Edit(parent=given.id, force=True, draft=True), {"prompt_id": given.prompt_id}
                    target = add_version(session, best, edit, name=given.name, origin=EVOLVED, **of).row.id
                evolutions.write_round(session, recorded, entries, done, target)
                row.result, row.finished_at = result.model_dump(mode="json"), datetime.now(UTC)

    def _score(self, what: str, rubric: Rubric, part: str) -> int:
        """Have a rubric scored on a part by a job, or by the one that was submitted for it; return its id.

        Raises:
            InvalidError: The budget is used up, or the job was cancelled.
            UnavailableError: Most verdicts of the job failed.
        """
        key, left = f"{self._name}-{what}-{rubric.digest[:12]}", self._left()
        with self._db.write() as session:
            known = next((job for job in evolutions.jobs_of(session, self.id) if job.key == key), None)
            if known is not None and known.exhausted:
                jobs.retry(session, known.id, budget=None if left is None else known.spent + left)
            if known is None:  # a candidate is a draft that work without a rubric's name never uses
                stored: dict[str, Any] = {"prompt_id": self._prompt_id, "origin": EVOLVED, "added_by": self._name}
                rubric_id = rubrics.add(session, rubric, name=self._name, state=DRAFT, **stored).id
                items = [(id_, rubric_id) for id_ in self._ids[self._rows[part]].tolist()]
                options: dict[str, Any] = {"key": key, "name": f"evolution {self.id}: {what}", "allow_drafts": True}
                known = jobs.submit(session, judge_id=self._judge_id, items=items, budget=left, **options)
            job_id = known.id
        self._score_job(job_id)
        with self._db.read() as session:
            job, progress = jobs.get(session, job_id), jobs.progress(session, job_id)
            if job.exhausted:
                raise self._exhausted
            again, what = "then evolve again by the same command", f"job {job_id} of evolution {self.id}"
            if job.status == CANCELLED:
                raise InvalidError(f"{what} was cancelled", hint=f"rubricsvc jobs retry {job_id}, {again}")
            if progress.failed_verdicts > progress.verdicts:
                message = f"{what}: {progress.failed_verdicts} verdicts failed"
                raise UnavailableError(message, hint=f"rubricsvc jobs retry {job_id} --wait, {again}")
        return job_id

    def _take(self, job_id: int) -> None:
        """Take over the verdicts of the job of a trial."""
        with self._db.read() as session:
            for matrix in read_matrices(session, Selection(self._judge_id, job_id)):
                columns = matrix.aligned(self._ids).T
                self._values |= zip([one.key for one in matrix.rubric.criteria], columns, strict=True)

    def _left(self) -> float | None:
        """Return the US dollars that are left; None without a limit."""
        with self._db.read() as session:
            spent = sum(job.spent for job in evolutions.jobs_of(session, self.id))
            spent += evolutions.proposal_costs(session, evolution_id=self.id)
        budget = self._request.budget
        if budget is not None and budget <= spent:
            raise self._exhausted
        return None if budget is None else budget - spent
