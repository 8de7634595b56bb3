"""`Runs`: training runs, which trainers record and people read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from rubricsvc.core.judge import Judge
from rubricsvc.core.panel import mean_known
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import ApprovalPolicy
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError, NotFoundError
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
from rubricsvc.services.editing import Edit, add_version
from rubricsvc.stats.run_alarms import alarms
from rubricsvc.store import completions, items, judges, prompts, runs
from rubricsvc.store.base import database_time
from rubricsvc.store.evolutions import authored
from rubricsvc.store.verdicts import for_items

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.passport import Passport
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import EvaluationCompletionRow, RolloutRow, RunRow

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
            sampled = [(group.prompt, group.rubric, one.completion, one.item_id) for one, group in given]
            rollouts = [
                {
                    **one.model_dump(include={"item_id", "reward", "advantage", "tokens", "truncated", "logprob_sum"}),
                    "null_reason": one.null_reason and one.null_reason[:MAX_REASON_CHARS],
                    "prompt_id": place.prompt_id,
                    "completion_id": place.completion_id,
                    "rubric_id": place.rubric_id,
                    "judge_id": row.judge_id if place.judge_id is None else place.judge_id,
                    "verdicts": [] if one.item_id is not None else _plain(one.verdicts),
                }
                for (one, _), place in zip(given, self._join(session, row, sampled), strict=True)
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
            sampled = []
            for one, group in given:  # the rubric version of the training reward is the one of the run's rollouts
                item_id = next((each.item_id for each in one.rewards if each.score == REWARD), None)
                sampled.append((group.prompt, group.rubric, one.completion, item_id))
            joined = self._join(session, row, sampled)
            scored = _scored_items(
                session, ((one.completion, each.item_id) for one, _ in given for each in one.rewards)
            )
            rewards = [
                {
                    **each.model_dump(include={"score", "reward", "item_id"}),
                    "place": place,
                    "null_reason": each.null_reason and each.null_reason[:MAX_REASON_CHARS],
                    "judge_id": scored[each.item_id].judge_id
                    if each.item_id is not None
                    else row.judge_id
                    if each.score == REWARD
                    else None,
                    "verdicts": [] if each.item_id is not None else _plain(each.verdicts),
                }
                for place, (one, _) in enumerate(given)
                for each in one.rewards
            ]
            rows = [
                {
                    **one.model_dump(include={"greedy", "tokens", "truncated"}),
                    "prompt_id": of.prompt_id,
                    "completion_id": of.completion_id,
                    "rubric_id": of.rubric_id,
                }
                for (one, _), of in zip(given, joined, strict=True)
            ]
            runs.write_evaluation(
                session,
                row.id,
                name=evaluation.name,
                step=evaluation.step,
                line=dict(evaluation.line),
                completions=rows,
                rewards=rewards,
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
        """Ask a run to stop after its current step, with a checkpoint. ConflictError if it is not running."""
        with self.db.write() as session:
            return _summaries(session, [runs.request_stop(session, run_id)])[0]

    def delete(self, run_id: int) -> None:
        """Delete a run with its metrics, rollouts and evaluations. Prompts, rubrics, completions and jobs stay.

        ConflictError if it is running.
        """
        with self.db.write() as session:
            runs.remove(session, run_id)

    def get(self, run_id: int) -> StoredRun:
        """Get a run with its counts of rollouts, its first and last rewards and its configuration."""
        with self.db.read() as session:
            row = runs.get(session, run_id)
            rollouts, unscored = runs.rollout_counts(session, row.id)
            first, last = first_and_last([one.reward for one in runs.steps(session, row.id, limit=MOST_ROWS)])
            more = {"rollouts": rollouts, "unscored": unscored, "reward_first": first, "reward_last": last}
            return _summaries(session, [row])[0].model_copy(update={**more, "config": row.config})

    @takes(RunFilters)
    def page(self, query: RunFilters) -> Page[StoredRun]:
        """List runs, oldest first, with how far each of them is."""
        with self.db.read() as session:
            rows = runs.page(session, after=query.after, limit=query.limit + 1, key=query.key)
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
        selection = query.model_dump() | {"limit": query.limit + 1}
        with self.db.read() as session:
            return Page.cut(_evaluations(session, runs.get(session, run_id).id, **selection), query.limit)

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
            steps = [row.metrics for row in runs.steps(session, run.id, last=MOST_ROWS)]
            evaluations, baselines = _comparable(_evaluations(session, run.id, limit=MOST_ROWS))
            lines, passport = [one.line for one in evaluations], _passport(session, run)
            samples = _samples_of(session, run.id, evaluations, baselines)
            if highest := _highest(session, run.id):
                samples["highest"] = tuple(highest)
            return RunReport(
                name=str(run.id),
                status=run.status,
                config=run.config or {},
                steps=tuple(steps),
                evaluations=tuple(lines),
                baselines=tuple(one.line for one in baselines),
                passport=passport if not isinstance(passport, str) else None,
                passport_missing=passport if isinstance(passport, str) else "",
                alarms=tuple(self._with_examples(session, run.id, one) for one in alarms(steps, lines)),
                **samples,
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
        examples = (
            Sample(
                prompt=asked[row.prompt_id],
                text=texts[row.completion_id].text,
                where=f"step {row.step}, rollout {row.id}, completion {row.completion_id}",
                scores={"training reward": row.reward},
                truncated=row.truncated,
                messages=texts[row.completion_id].messages,
            )
            for row in rows[:EXAMPLES]
        )
        return alarm.model_copy(update={"examples": tuple(examples)})

    def _join(
        self, session: Session, run: RunRow, sampled: Sequence[tuple[Prompt, Rubric, Completion, int | None]]
    ) -> list[_Joined]:
        """Return the rows of prompts, rubrics and completions of a run, with items of jobs; what is new is stored.

        Raises:
            NotFoundError: There is no such item.
            InvalidError: An item has scored another completion.
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
        scored = _scored_items(session, ((one, item_id) for _, _, one, item_id in sampled))
        new = [(prompt_ids[prompt.digest, None], one) for prompt, _, one, item_id in sampled if item_id is None]
        new_ids = iter(completions.add_many(session, new))
        joined = []
        for prompt, rubric, _, item_id in sampled:
            prompt_id = prompt_ids[prompt.digest, None]
            if item_id is None:
                joined.append(_Joined(prompt_id, next(new_ids), rubric_ids[prompt_id, rubric.digest], None))
            else:
                item = scored[item_id]
                joined.append(_Joined(prompt_id, item.completion_id, item.rubric_id, item.judge_id))
        return joined


class _Joined(NamedTuple):
    """The rows of what a policy sampled; ``judge_id`` is that of the job's item, if a job has scored it."""

    prompt_id: int
    completion_id: int
    rubric_id: int
    judge_id: int | None


def _scored_items(session: Session, scored: Iterable[tuple[Completion, int | None]]) -> Mapping[int, items.ScoredItem]:
    given = [(one, item_id) for one, item_id in scored if item_id is not None]
    found = items.scored(session, {item_id for _, item_id in given})
    for completion, item_id in given:
        if item_id not in found:
            raise NotFoundError(f"no item {item_id} has scored a completion")
        if found[item_id].digest != completion.digest:
            message = f"item {item_id} has scored another completion than the one recorded"
            raise InvalidError(message, hint="give each completion the item of its own", path="item_id")
    return found


def _plain(verdicts: Iterable[Verdict]) -> list[Any]:
    return [one.model_dump(mode="json", exclude_defaults=True) for one in verdicts]


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


def first_and_last(rewards: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Return the mean reward of the first and of the last tenth of the steps."""
    tenth = max(1, len(rewards) // 10)
    return mean_known(rewards[:tenth]), mean_known(rewards[-tenth:])


def _rollouts(session: Session, rows: Sequence[RolloutRow], *, verdicts: bool = True) -> list[StoredRollout]:
    by_item = for_items(session, [row.item_id for row in rows if verdicts and row.item_id is not None])
    found = []
    for row in rows:
        known = (by_item.get(row.item_id, ()) if row.item_id else row.verdicts) if verdicts else ()
        found.append(_of(StoredRollout, row, rubric=row.rubric.ref, verdicts=known))
    return found


def _evaluations(session: Session, run_id: int, **paging: Any) -> list[StoredEvaluation]:
    return [_of(StoredEvaluation, row) for row in runs.evaluations(session, run_id, **paging)]


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


def _comparable(stored: Sequence[StoredEvaluation]) -> tuple[list[StoredEvaluation], list[StoredEvaluation]]:
    """Return the evaluations by step, and the baselines, with the setup of the newest; other prompts have their own."""
    newest = max([one for one in stored if one.name == STEP] or stored, key=lambda one: one.id, default=None)
    current = [one for one in stored if newest is not None and one.line.get("setup") == newest.line.get("setup")]
    steps = sorted((one for one in current if one.name == STEP), key=lambda one: one.step)
    baselines = [one for one in current if one.name in BASELINES and one.name not in OTHER]
    baselines += [one for one in stored if one.name in OTHER]
    return steps, sorted(baselines, key=lambda one: BASELINES.index(one.name))


def _passport(session: Session, run: StoredRun) -> Passport | str:
    """Return the passport of a run's judge, or why there is none: its name may mean another judge now."""
    row = judges.find(session, run.judge) if run.judge else None
    if row is None:
        return f"judge {run.judge or 'none'} is not stored here"
    digest: str | None
    try:
        digest = Judge.model_validate((run.config or {}).get("judge")).digest
    except ValidationError:  # the judge of a service: the run is linked to the stored one with its digest
        digest = row.digest if run.judge_id == row.id else None
    if digest != row.digest:
        asked = f"the run asked {digest[:8]}, " if digest else ""
        return f"the stored judge {run.judge} is another one: {asked}the name means {row.digest[:8]} now"
    return row.passport_value or f"judge {run.judge} has no passport"


def _texts(session: Session, rows: Iterable[Any]) -> tuple[dict[int, Completion], dict[int, str]]:
    """Return the completions of rows, and the texts of their prompts, by id."""
    rows = list(rows)
    texts = {id_: one for id_, (_, one) in completions.many(session, {row.completion_id for row in rows}).items()}
    asked = {id_: one.text for id_, one in prompts.many(session, {row.prompt_id for row in rows}).items()}
    return texts, asked


def _highest(session: Session, run_id: int) -> list[Sample]:
    """Return rollouts with the highest rewards, each text once, of as many prompts as there are."""
    rows = runs.best_rollouts(session, run_id, _LOOKED_AT)
    texts, asked = _texts(session, rows)
    unique = list({texts[row.completion_id].text: row for row in reversed(rows)}.values())[::-1]
    distinct = of_several_prompts(unique, lambda row: row.prompt_id)
    return [
        Sample(
            prompt=asked[row.prompt_id],
            text=texts[row.completion_id].text,
            where=f"step {row.step}, rubric {row.rubric.ref}",
            scores={"training reward": row.reward},
            truncated=row.truncated,
            verdicts=one.verdicts,
        )
        for row, one in zip(distinct, _rollouts(session, distinct), strict=True)
    ]


def _samples_of(
    session: Session, run_id: int, evaluations: Sequence[StoredEvaluation], baselines: Sequence[StoredEvaluation]
) -> dict[str, Any]:
    """Return the fields of a report with completions of evaluations to read, with their verdicts."""
    if not evaluations:
        return {}
    gold = str(evaluations[-1].line["gold"])
    named = {one.name: one for one in baselines}
    samples: dict[str, list[Sample]] = {}
    for evaluation in (named.get(BEFORE), *evaluations, named.get(EQUAL_COMPUTE[1])):
        if evaluation is None:
            continue
        column = column_of(evaluation.line)
        rows = runs.evaluation_completions(session, run_id, evaluation_id=evaluation.id, limit=MOST_ROWS)
        texts, asked = _texts(session, rows)
        samples[column] = [
            Sample(
                prompt=asked[row.prompt_id],
                text=texts[row.completion_id].text,
                where=f"{column}, {'greedy' if row.greedy else 'sampled'}, rubric {row.rubric}",
                scores={one.score: one.reward for one in row.rewards},
                truncated=row.truncated,
                greedy=row.greedy,
                evaluation_row=row.id,
                messages=texts[row.completion_id].messages,
            )
            for row in _completions(session, rows, verdicts=False)
        ]
    columns = [column_of(one.line) for one in evaluations]
    after_start = [one for name in columns[1:] for one in samples[name]]
    widest = [] if gold == REWARD else by_excess((REWARD, gold), after_start)
    by_prompt: dict[str, dict[str, Sample]] = {}
    for name, each in samples.items():
        for one in each:  # the greedy one, else the first
            of_prompt = by_prompt.setdefault(one.prompt, {})
            if name not in of_prompt or one.greedy:
                of_prompt[name] = one
    side_by_side = dict(list(by_prompt.items())[:SHOWN_PROMPTS])
    shown = [*widest, *(one for each in side_by_side.values() for one in each.values())]
    read = runs.evaluation_completions(
        session, run_id, ids=[one.evaluation_row for one in shown if one.evaluation_row is not None], limit=MOST_ROWS
    )
    verdicts = {
        row.id: reward.verdicts
        for row in _completions(session, read, verdicts=True)
        for reward in row.rewards
        if reward.score == REWARD
    }

    def judged(one: Sample) -> Sample:
        return one.model_copy(update={"verdicts": verdicts.get(one.evaluation_row or 0, ())})

    return {
        "highest": tuple(by_excess((REWARD,), [one for name in columns for one in samples[name]])),
        "widest": tuple(map(judged, widest)),
        "columns": tuple(samples),
        "samples": {prompt: {name: judged(one) for name, one in each.items()} for prompt, each in side_by_side.items()},
    }


def by_excess(names: Sequence[str], samples: Iterable[Sample]) -> list[Sample]:
    """Return samples with the largest first score, or the largest excess of it over the second; each text once."""

    def size(one: Sample) -> float | None:
        first, *others = (one.scores.get(name) for name in names)
        return None if first is None or None in others else first - sum(value or 0.0 for value in others)

    sized = [(value, one) for one in samples if (value := size(one)) is not None]
    ranked = sorted(sized, key=lambda pair: -pair[0])
    unique = {one.text: one for value, one in reversed(ranked) if len(names) == 1 or value > 0}
    return of_several_prompts(list(unique.values())[::-1], lambda one: one.prompt)


def of_several_prompts(ranked: Iterable[T], prompt: Callable[[T], Hashable]) -> list[T]:
    """Return the first of each prompt, then the second of each, and so on: an easy prompt must not hide others."""
    places: Counter[Hashable] = Counter()
    rounds: list[tuple[int, T]] = []
    for one in ranked:
        rounds.append((places[prompt(one)], one))
        places[prompt(one)] += 1
    return [one for _, one in sorted(rounds, key=lambda pair: pair[0])][:SHOWN]
