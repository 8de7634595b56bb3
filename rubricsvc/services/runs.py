"""`Runs`: training runs, which trainers record and people read; and what a trainer reads before it starts one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from rubricsvc.core.judge import Judge
from rubricsvc.core.panel import mean_known
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import ApprovalPolicy
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError, RubricsvcError
from rubricsvc.queries import EvaluationCompletionFilters, EvaluationFilters, Paging, RolloutFilters, RunFilters
from rubricsvc.schemas import Page
from rubricsvc.schemas.methods import takes
from rubricsvc.schemas.runs import (
    BASELINES,
    BEFORE,
    EQUAL_COMPUTE,
    OTHER,
    REWARD,
    STEP,
    Alarm,
    NewRun,
    Rewarded,
    RunEvaluation,
    RunHeartbeat,
    RunReport,
    RunStep,
    Sample,
    StoredEvaluation,
    StoredEvaluationCompletion,
    StoredEvaluationReward,
    StoredRollout,
    StoredRun,
    StoredStep,
    column_of,
)
from rubricsvc.services.rubrics import Edit, add_version
from rubricsvc.stats.run_alarms import alarms
from rubricsvc.store import completions, jobs, judges, labels, prompts, rubrics, runs
from rubricsvc.store.evolutions import authored
from rubricsvc.store.session import by_id, database_time, page_of
from rubricsvc.store.tables import CompletionRow, EvaluationRow, PromptRow, RunRow
from rubricsvc.store.verdicts import for_items

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.stats.agreement import CriterionAgreement
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import EvaluationCompletionRow, ItemRow, RolloutRow

T = TypeVar("T")
Sign = Callable[[str, Completion], float | None]
"""How much of a sign a completion has, given its prompt's text; None where it does not have the sign at all."""

MAX_REASON_CHARS = 300
REPORT_SECONDS = runs.REPORT_SECONDS
MOST_ROWS = 1_000_000
SHOWN = 5
"""Samples of a report with the highest reward, and as many with the largest gap."""
SHOWN_PROMPTS = 8
EXAMPLES = 2
"""Rollouts of an alarm."""
_LOOKED_AT = 500


class Runs:
    """Training runs, by id.

    Args:
        db: The database.
        approval: Which new rubrics are drafts.
        rubric: Raises an InvalidError for a rubric whose checks do not exist.
        signs: Returns what the examples of an alarm show, by its sign; else they are any rollouts of its step.
    """

    def __init__(
        self,
        db: Database,
        approval: ApprovalPolicy = "generated",
        *,
        rubric: Callable[[Rubric], None] = lambda _: None,
        signs: Callable[[], Mapping[str, Sign]] = dict,
    ) -> None:
        self.db, self._approval, self._check_rubric, self._signs = db, approval, rubric, signs

    def create(self, new: NewRun) -> StoredRun:
        """Begin a run, or continue that of the same key after ``done`` steps; later ones on record are deleted."""
        values: dict[str, Any] = new.model_dump(mode="json", exclude={"judge_digest"})
        with self.db.write() as session:
            judge = judges.find(session, new.judge) if new.judge is not None else None
            known = judge is not None and new.judge_digest in (None, judge.digest)
            row = runs.begin(session, **values, judge_id=judge.id if judge is not None and known else None)
            return _summaries(session, [row])[0]

    def record(self, run_id: int, step: RunStep) -> StoredRun:
        """Record a step with its rollouts, in place of what is on record of it.

        Raises:
            NotFoundError: There is no such run, or no item of a rollout.
            InvalidError: An item of a rollout has scored another completion.
        """
        with self.db.write() as session:
            row = runs.get(session, run_id, lock=True)
            given = [(one, group) for group in step.groups for one in group.rollouts]
            scored = _scored_items(session, ((one.completion, one) for one, _ in given))
            sampled = [(group.prompt, group.rubric, one.completion, one.item_id) for one, group in given]
            rollouts = [
                one.model_dump(include={"advantage", "tokens", "truncated", "logprob_sum"})
                | place
                | _reward_columns(one, scored, row.judge_id)
                for (one, _), place in zip(given, self._join(session, row, sampled, scored), strict=True)
            ]
            runs.write_step(session, row.id, step.step, {**step.metrics, "step": step.step}, rollouts)
            runs.report(session, row)
            return _summaries(session, [row])[0]

    def record_evaluation(self, run_id: int, evaluation: RunEvaluation) -> StoredRun:
        """Record an evaluation with its completions, in place of the one of its step or of its baseline.

        Raises:
            NotFoundError: There is no such run, or no item of a reward.
            InvalidError: An item of a reward has scored another completion.
        """
        with self.db.write() as session:
            row = runs.get(session, run_id, lock=True)
            given = [(one, group) for group in evaluation.groups for one in group.completions]
            scored = _scored_items(session, ((one.completion, each) for one, _ in given for each in one.rewards))
            sampled = []
            for one, group in given:  # the rubric version of the training reward is the one of the run's rollouts
                item_id = next((each.item_id for each in one.rewards if each.score == REWARD), None)
                sampled.append((group.prompt, group.rubric, one.completion, item_id))
            joined = zip(given, self._join(session, row, sampled, scored), strict=True)
            runs.write_evaluation(
                session,
                row.id,
                name=evaluation.name,
                step=evaluation.step,
                line=dict(evaluation.line),
                completions=[
                    one.model_dump(include={"greedy", "tokens", "truncated"}) | place for (one, _), place in joined
                ],
                rewards=[
                    {"place": place, "score": each.score}
                    | _reward_columns(each, scored, row.judge_id if each.score == REWARD else None)
                    for place, (one, _) in enumerate(given)
                    for each in one.rewards
                ],
            )
            runs.report(session, row)
            return _summaries(session, [row])[0]

    def heartbeat(self, run_id: int, heartbeat: RunHeartbeat) -> StoredRun:
        """Report that a run goes on, or its new state. ``stop_requested`` says whether it should stop."""
        with self.db.write() as session:
            row = runs.get(session, run_id)
            runs.report(session, row, heartbeat.state, heartbeat.reason)
            return _summaries(session, [row])[0]

    def stop(self, run_id: int) -> StoredRun:
        """Ask a run to stop after its current step, with a checkpoint.

        Raises:
            NotFoundError: There is no such run.
            ConflictError: It is not running.
        """
        with self.db.write() as session:
            row = runs.get(session, run_id)
            if (state := runs.status(row, database_time(session))) not in runs.LIVE:
                hint = f"`rubricsvc runs show {row.id}`"
                raise ConflictError(f"run {row.id} is {state}: there is nothing to stop", hint=hint)
            row.stop_requested = True
            session.flush()
            return _summaries(session, [row])[0]

    def delete(self, run_id: int) -> None:
        """Delete a run with its metrics, rollouts and evaluations. Prompts, rubrics, completions and jobs stay.

        Raises:
            NotFoundError: There is no such run.
            ConflictError: It is running.
        """
        with self.db.write() as session:
            row = runs.get(session, run_id)
            if (state := runs.status(row, database_time(session))) in runs.LIVE:
                hint = f"stop it first: `rubricsvc runs stop {row.id}`"
                raise ConflictError(f"run {row.id} is {state}", hint=hint)
            runs.remove(session, row)

    def get(self, run_id: int) -> StoredRun:
        """Get a run with its counts of rollouts, its first and last rewards and its configuration.

        Raises:
            NotFoundError: There is no such run.
        """
        with self.db.read() as session:
            row = runs.get(session, run_id)
            rollouts, unscored = runs.rollout_counts(session, row.id)
            rewards = [one.reward for one in runs.steps(session, row.id, limit=MOST_ROWS)]
            tenth = max(1, len(rewards) // 10)
            ends = {"reward_first": mean_known(rewards[:tenth]), "reward_last": mean_known(rewards[-tenth:])}
            more = {"rollouts": rollouts, "unscored": unscored, **ends}
            return _summaries(session, [row])[0].model_copy(update={**more, "config": row.config})

    @takes(RunFilters)
    def page(self, query: RunFilters) -> Page[StoredRun]:
        """List runs, oldest first, with how far each of them is."""
        with self.db.read() as session:
            rows = page_of(session, RunRow, query.after, query.limit + 1, key=query.key)
            return Page.cut(_summaries(session, rows), query.limit)

    @takes(Paging)
    def steps(self, run_id: int, query: Paging) -> Page[StoredStep]:
        """List the metrics of steps. ``after`` and ``next`` are numbers of steps."""
        with self.db.read() as session:
            rows = runs.steps(session, runs.get(session, run_id).id, after=query.after, limit=query.limit + 1)
        data = [_of(StoredStep, row) for row in rows]
        more = len(rows) > query.limit
        return Page(data=tuple(data[: query.limit]), next=data[query.limit - 1].step if more else None)

    @takes(RolloutFilters)
    def rollouts(self, run_id: int, query: RolloutFilters) -> Page[StoredRollout]:
        """List rollouts with their rewards and verdicts, oldest first."""
        selection = query.model_dump(exclude={"verdicts"}) | {"limit": query.limit + 1}
        with self.db.read() as session:
            rows = runs.rollouts(session, runs.get(session, run_id).id, **selection)
            return Page.cut(_rollouts(session, rows, verdicts=query.verdicts), query.limit)

    @takes(EvaluationFilters)
    def evaluations(self, run_id: int, query: EvaluationFilters) -> Page[StoredEvaluation]:
        """List the evaluations of a run and of its baselines, in the order in which they were recorded."""
        with self.db.read() as session:
            row, limit = runs.get(session, run_id), query.limit + 1
            rows = page_of(session, EvaluationRow, query.after, limit, run_id=row.id, name=query.name)
            return Page.cut([_of(StoredEvaluation, row) for row in rows], query.limit)

    @takes(EvaluationCompletionFilters)
    def evaluation_completions(
        self, run_id: int, query: EvaluationCompletionFilters
    ) -> Page[StoredEvaluationCompletion]:
        """List the completions of evaluations with their rewards and verdicts, oldest first."""
        selection = query.model_dump(exclude={"verdicts"}) | {"limit": query.limit + 1}
        with self.db.read() as session:
            rows = runs.evaluation_completions(session, runs.get(session, run_id).id, **selection)
            return Page.cut(_completions(session, rows, verdicts=query.verdicts), query.limit)

    def report(self, run_id: int) -> RunReport:
        """Return what is known of a run: metrics, evaluations, samples with their verdicts, alarms with examples."""
        run = self.get(run_id)
        with self.db.read() as session:
            steps = [row.metrics for row in runs.steps(session, run.id, limit=MOST_ROWS)]
            stored = page_of(session, EvaluationRow, 0, MOST_ROWS, run_id=run.id)
            newest = max([one for one in stored if one.name == STEP] or stored, key=lambda one: one.id, default=None)
            setup = newest.line.get("setup") if newest is not None else None
            current = [one for one in stored if one.line.get("setup") == setup]  # other prompts have their own
            evaluations = sorted((one for one in current if one.name == STEP), key=lambda one: one.step)
            known = {one.name: one for one in (*current, *(one for one in stored if one.name in OTHER))}
            baselines = [known[name] for name in BASELINES if name in known]
            lines = [one.line for one in evaluations]
            return RunReport(
                name=str(run.id),
                status=run.status,
                config=run.config or {},
                steps=tuple(steps),
                evaluations=tuple(lines),
                baselines=tuple(one.line for one in baselines),
                alarms=tuple(self._with_examples(session, run.id, one) for one in alarms(steps, lines)),
                highest=_highest(session, run.id),
                **_samples_of(session, run.id, evaluations, baselines),
            )

    def _with_examples(self, session: Session, run_id: int, alarm: Alarm) -> Alarm:
        """Return an alarm with rollouts of its step that have its sign, those with most of it first."""
        if alarm.step is None or alarm.sign is None:
            return alarm
        rows = runs.rollouts(session, run_id, step=alarm.step, limit=MOST_ROWS)
        texts, asked = _texts(session, rows)
        if (sign := self._signs().get(alarm.sign)) is not None:
            found = [(sign(asked[row.prompt_id], texts[row.completion_id]), row) for row in rows]
            known = [(value, row) for value, row in found if value is not None]
            rows = [row for _, row in sorted(known, key=lambda pair: -pair[0])]
        examples = [
            _sample(
                row,
                (texts, asked),
                f"step {row.step}, rollout {row.id}, completion {row.completion_id}",
                {"training reward": row.reward},
            )
            for row in rows[:EXAMPLES]
        ]
        return alarm.model_copy(update={"examples": tuple(examples)})

    def _join(
        self,
        session: Session,
        run: RunRow,
        sampled: Sequence[tuple[Prompt, Rubric, Completion, int | None]],
        scored: Mapping[int, ItemRow],
    ) -> list[dict[str, int]]:
        """Return the ids of prompt, completion and rubric of what a policy sampled; what is new is stored.

        Those of a completion that a job scored are its item's.
        """
        for rubric in {rubric.digest: rubric for _, rubric, *_ in sampled}.values():
            self._check_rubric(rubric)
        edit = Edit(run.name, policy=self._approval)
        prompt_ids = prompts.add_many(session, ((prompt, None) for prompt, *_ in sampled))
        rubric_ids: dict[tuple[int, str], int] = {}
        for prompt, rubric, *_ in sampled:
            prompt_id, digest = prompt_ids[prompt.digest, None], rubric.digest
            if (prompt_id, digest) not in rubric_ids:  # the prompt's stored version before others; stored if new
                row = authored(session, digest, prompt_id)
                row = row or add_version(session, rubric, edit, name=f"rubric-{digest[:12]}").row
                rubric_ids[prompt_id, digest] = row.id
        new = [(prompt_ids[prompt.digest, None], one) for prompt, _, one, item_id in sampled if item_id is None]
        new_ids = iter(completions.add_many(session, new))
        joined = []
        for prompt, rubric, _, item_id in sampled:
            prompt_id = prompt_ids[prompt.digest, None]
            if item_id is None:
                ids = next(new_ids), rubric_ids[prompt_id, rubric.digest]
            else:
                ids = scored[item_id].completion_id, scored[item_id].rubric_id
            joined.append({"prompt_id": prompt_id, "completion_id": ids[0], "rubric_id": ids[1]})
        return joined


def _scored_items(session: Session, rewarded: Iterable[tuple[Completion, Rewarded]]) -> Mapping[int, ItemRow]:
    """Return the items of rewards, which have scored these completions."""
    given = [(one, each.item_id) for one, each in rewarded if each.item_id is not None]
    found = jobs.scored_items(session, {item_id for _, item_id in given})
    for completion, item_id in given:
        if item_id not in found:
            raise NotFoundError(f"no item {item_id} has scored a completion")
        if found[item_id].completion.digest != completion.digest:
            message = f"item {item_id} has scored another completion than the one recorded"
            raise InvalidError(message, hint="give each completion the item of its own", path="item_id")
    return found


def _reward_columns(one: Rewarded, scored: Mapping[int, ItemRow], judge_id: int | None) -> dict[str, Any]:
    """Return the columns of a reward: a job's item has its verdicts and its judge, another one is by ``judge_id``."""
    item = scored[one.item_id] if one.item_id is not None else None
    judged_by = judge_id if item is None or item.judge_id is None else item.judge_id
    own = one.verdicts if item is None else ()
    return {
        "reward": one.reward,
        "null_reason": one.null_reason and one.null_reason[:MAX_REASON_CHARS],
        "item_id": one.item_id,
        "judge_id": judged_by,
        "verdicts": [each.model_dump(mode="json", exclude_defaults=True) for each in own],
    }


M = TypeVar("M", bound=BaseModel)


def _of(model: type[M], row: object, **fields: Any) -> M:
    """Return a value of a model: ``fields``, and attributes of a row; what is in neither has its default."""
    names = [name for name in model.model_fields if name not in fields and hasattr(row, name)]
    return model.model_validate({name: getattr(row, name) for name in names} | fields)


def _summaries(session: Session, rows: Sequence[RunRow]) -> list[StoredRun]:
    """Return how far each of these runs is."""
    now, newest = database_time(session), runs.newest_steps(session, [row.id for row in rows])
    found = []
    for row in rows:
        steps, metrics = newest.get(row.id, (0, None))
        seen, status = max(0.0, now - row.seen_at), runs.status(row, now)
        more = {"steps": steps, "metrics": metrics, "seen_seconds": seen, "config": None, "status": status}
        found.append(_of(StoredRun, row, **more))
    return found


def _rollouts(session: Session, rows: Sequence[RolloutRow], *, verdicts: bool = True) -> list[StoredRollout]:
    by_item = for_items(session, [row.item_id for row in rows if verdicts and row.item_id is not None])
    found = []
    for row in rows:
        known = (by_item.get(row.item_id, ()) if row.item_id else row.verdicts) if verdicts else ()
        found.append(_of(StoredRollout, row, rubric=row.rubric.ref, verdicts=known))
    return found


def _completions(
    session: Session, rows: Sequence[EvaluationCompletionRow], *, verdicts: bool
) -> list[StoredEvaluationCompletion]:
    rewards = runs.evaluation_rewards(session, rows)
    item_ids = [each.item_id for found in rewards.values() for each in found if each.item_id is not None]
    by_item = for_items(session, item_ids) if verdicts else {}
    found = []
    for row in rows:
        of_row = []
        for each in rewards[row.evaluation_id, row.place]:
            known = by_item.get(each.item_id, ()) if each.item_id is not None else each.verdicts
            of_row.append(_of(StoredEvaluationReward, each, verdicts=known if verdicts else ()))
        found.append(_of(StoredEvaluationCompletion, row, rubric=row.rubric.ref, rewards=of_row))
    return found


Texts = tuple[Mapping[int, Completion], Mapping[int, str]]
"""Completions, and the texts of prompts, by id."""


def _texts(session: Session, rows: Sequence[Any]) -> Texts:
    """Return the completions of rows, and the texts of their prompts."""
    found = by_id(session, CompletionRow, {row.completion_id for row in rows})
    asked = by_id(session, PromptRow, {row.prompt_id for row in rows})
    return {id_: one.value for id_, one in found.items()}, {id_: one.value.text for id_, one in asked.items()}


def _sample(row: Any, texts: Texts, where: str, scores: Mapping[str, float | None], **more: Any) -> Sample:
    """Return the completion of a row of rollouts or evaluations as it is read in a report."""
    one, asked = texts[0][row.completion_id], texts[1][row.prompt_id]
    shown = {"text": one.text, "messages": one.messages, "truncated": row.truncated}
    return Sample(prompt=asked, where=where, scores=dict(scores), **shown, **more)


def _highest(session: Session, run_id: int) -> tuple[Sample, ...]:
    """Return rollouts with the highest rewards, each text once, of as many prompts as there are."""
    rows = runs.rollouts(session, run_id, limit=_LOOKED_AT, best=True)
    texts = _texts(session, rows)
    unique = list({texts[0][row.completion_id].text: row for row in reversed(rows)}.values())[::-1]
    distinct = of_several_prompts(unique, lambda row: row.prompt_id)
    return tuple(
        _sample(
            row,
            texts,
            f"step {row.step}, rubric {row.rubric.ref}",
            {"training reward": row.reward},
            verdicts=one.verdicts,
        )
        for row, one in zip(distinct, _rollouts(session, distinct), strict=True)
    )


def _samples_of(
    session: Session, run_id: int, evaluations: Sequence[EvaluationRow], baselines: Sequence[EvaluationRow]
) -> dict[str, Any]:
    """Return the fields of a report with completions of evaluations to read, with their verdicts."""
    if not evaluations:
        return {}
    named = {one.name: one for one in baselines}
    samples: dict[str, list[Sample]] = {}
    for evaluation in filter(None, (named.get(BEFORE), *evaluations, named.get(EQUAL_COMPUTE[1]))):
        column = column_of(evaluation.line)
        rows = runs.evaluation_completions(session, run_id, evaluation_id=evaluation.id, limit=MOST_ROWS)
        texts = _texts(session, rows)
        samples[column] = [
            _sample(
                row,
                texts,
                f"{column}, {'greedy' if row.greedy else 'sampled'}, rubric {row.rubric}",
                {one.score: one.reward for one in row.rewards},
                greedy=row.greedy,
                evaluation_row=row.id,
            )
            for row in _completions(session, rows, verdicts=False)
        ]
    after_start = [one for evaluation in evaluations[1:] for one in samples[column_of(evaluation.line)]]
    widest = above_gold(str(evaluations[-1].line["gold"]), after_start)
    by_prompt: dict[str, dict[str, Sample]] = {}
    for name, each in samples.items():
        for one in each:  # the greedy one, else the first
            of_prompt = by_prompt.setdefault(one.prompt, {})
            if name not in of_prompt or one.greedy:
                of_prompt[name] = one
    side_by_side = dict(list(by_prompt.items())[:SHOWN_PROMPTS])
    shown = [*widest, *(one for each in side_by_side.values() for one in each.values())]
    ids = [one.evaluation_row for one in shown if one.evaluation_row is not None]
    read = _completions(session, runs.evaluation_completions(session, run_id, ids=ids, limit=MOST_ROWS), verdicts=True)
    verdicts = {row.id: each.verdicts for row in read for each in row.rewards if each.score == REWARD}

    def judged(one: Sample) -> Sample:
        return one.model_copy(update={"verdicts": verdicts.get(one.evaluation_row or 0, ())})

    return {
        "widest": tuple(map(judged, widest)),
        "columns": tuple(samples),
        "samples": {prompt: {name: judged(one) for name, one in each.items()} for prompt, each in side_by_side.items()},
    }


def above_gold(gold: str, samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples whose training reward is furthest above the score ``gold``, each text once."""
    sized: list[tuple[float, Sample]] = []
    for one in samples:
        reward, value = one.scores.get(REWARD), one.scores.get(gold)
        if reward is not None and value is not None and reward > value:
            sized.append((reward - value, one))
    unique = {one.text: one for _, one in sorted(sized, key=lambda pair: pair[0])}  # the last of a text is kept
    ranked = sorted(unique.values(), key=lambda one: (one.scores[gold] or 0.0) - (one.scores[REWARD] or 0.0))
    return of_several_prompts(ranked, lambda one: one.prompt)


def of_several_prompts(ranked: Iterable[T], prompt: Callable[[T], Hashable]) -> list[T]:
    """Return the first of each prompt, then the second of each, and so on: an easy prompt must not hide others."""
    places: Counter[Hashable] = Counter()
    rounds: list[tuple[int, T]] = []
    for one in ranked:
        rounds.append((places[prompt(one)], one))
        places[prompt(one)] += 1
    return [one for _, one in sorted(rounds, key=lambda pair: pair[0])][:SHOWN]


def check_references(db: Database, judge_names: Mapping[str, str], rubric_refs: Mapping[str, str]) -> None:
    """Check that judges and rubrics are stored, given by the fields that name them.

    Raises:
        NotFoundError: Names all that are not, each with its field.
        InvalidError: The same, where one of them is not missing but may not be used.
    """
    problems: list[tuple[str, RubricsvcError]] = []
    with db.read() as session:
        for names, get in ((judge_names, judges.get), (rubric_refs, rubrics.get)):
            for path, name in names.items():
                try:
                    get(session, name)
                except RubricsvcError as error:
                    problems.append((path, error))
    if problems:
        kind = NotFoundError if all(isinstance(error, NotFoundError) for _, error in problems) else InvalidError
        hints = dict.fromkeys(error.hint for _, error in problems)
        message = "\n".join(f"{path}: {error}" for path, error in problems)
        raise kind(message, hint="; ".join(filter(None, hints)), path=problems[0][0])


def agreement_on_record(db: Database, judge: Judge, digests: Collection[str]) -> tuple[CriterionAgreement | None, str]:
    """Return how a stored judge agrees with labels on prompts of these digests, else on all; and which these are."""
    from rubricsvc.stats.agreement import pooled_agreement

    with db.read() as session:
        rows = labels.judged_labels(session, judges.get(session, judge.name).id)
        own = prompts.ids_of(session, digests) if rows else set[int]()
    found = pooled_agreement(judge, [row for row in rows if row.prompt_id in own])
    if found is not None:
        return found, "on these prompts"
    return pooled_agreement(judge, rows), "on all prompts"


def reject_drafts(db: Database, used: Iterable[Rubric]) -> None:
    """Raise a NotApprovedError if some of these rubrics are stored as drafts."""
    digests = {rubric.digest for rubric in used}
    with db.read() as session:
        rubrics.reject_drafts(session, [row.id for row in rubrics.only_drafts(session, digests)])
