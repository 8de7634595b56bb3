"""`Runs`: training runs, which trainers record and people read; and what a trainer reads before it starts one."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from rubricsvc.core.estimate import mean_known
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError
from rubricsvc.queries import EvaluationCompletionFilters, EvaluationFilters, Paging, RolloutFilters, RunFilters
from rubricsvc.schemas import runs as wire
from rubricsvc.schemas.base import Page, takes
from rubricsvc.services import lazy
from rubricsvc.services.deletion import Deletable
from rubricsvc.services.versions import Edit, add_named
from rubricsvc.stats.reports import CriterionAgreement
from rubricsvc.store import completions, jobs, judges, labels, runs
from rubricsvc.store.completions import verdicts_of_items
from rubricsvc.store.evolutions import authored
from rubricsvc.store.leases import REASON_CHARS, database_time
from rubricsvc.store.session import Database, by_id, get_or_add, ids_by_digest, page_of
from rubricsvc.store.tables import CompletionRow, EvaluationCompletionRow, EvaluationRow, PromptRow, RolloutRow, RunRow

T = TypeVar("T")

REPORT_SECONDS = runs.REPORT_SECONDS
MOST_ROWS = 1_000_000
SHOWN = 5  # samples of a report with the highest reward, and as many with the largest gap
SHOWN_PROMPTS = 8
EXAMPLES = 2  # rollouts of an alarm
_LOOKED_AT = 500


@dataclass(eq=False)
class Runs(Deletable):
    """Training runs, by id; an unknown id is a NotFoundError.

    ``edit`` says which new rubrics are drafts.
    """

    db: Database
    edit: Edit = field(default_factory=Edit)

    def create(self, new: wire.NewRun) -> wire.StoredRun:
        """Begin a run, or continue that of the same key after ``done`` steps; later ones on record are deleted."""
        values: dict[str, Any] = new.model_dump(mode="json", exclude={"key", "judge_digest", "done"})
        with self.db.write() as session:
            judge = judges.find(session, new.judge) if new.judge is not None else None
            known = judge is not None and new.judge_digest in (None, judge.digest)
            values |= {"judge_id": judge.id if judge is not None and known else None}
            values |= {"state": "running", "seen_at": database_time(session)}
            row, is_new = get_or_add(session, RunRow, {"key": new.key}, **values)
            if not is_new:
                for name, value in (values | {"reason": None, "finished_at": None, "stop_requested": False}).items():
                    setattr(row, name, value)
                runs.remove_steps(session, row, after=new.done)
            return _summaries(session, [row])[0]

    def record(self, run_id: int, step: wire.RunStep) -> wire.StoredRun:
        """Record a step with its rollouts, in place of what is on record of it.

        422 if the item of a rollout has scored another completion.
        """
        with self.db.write() as session:
            row = runs.get(session, run_id, lock=True)
            given = [(one, group) for group in step.groups for one in group.rollouts]
            stored = self._store(session, row, [(group, one.completion, {wire.REWARD: one}) for one, group in given])
            fields = {"advantage", "tokens", "truncated", "logprob_sum"}
            rollouts = [
                one.model_dump(include=fields) | ids | rewards[wire.REWARD]
                for (one, _), (ids, rewards) in zip(given, stored, strict=True)
            ]
            runs.write_step(session, row.id, step.step, {**step.metrics, "step": step.step}, rollouts)
            runs.report(session, row)
            return _summaries(session, [row])[0]

    def record_evaluation(self, run_id: int, evaluation: wire.RunEvaluation) -> wire.StoredRun:
        """Record an evaluation with its completions, in place of the one of its step or of its baseline.

        422 if the item of a reward has scored another completion.
        """
        with self.db.write() as session:
            row = runs.get(session, run_id, lock=True)
            given = [(one, group) for group in evaluation.groups for one in group.completions]
            rewarded = [(group, one.completion, {each.score: each for each in one.rewards}) for one, group in given]
            stored = self._store(session, row, rewarded)
            fields = {"greedy", "tokens", "truncated"}
            runs.write_evaluation(
                session,
                row.id,
                name=evaluation.name,
                step=evaluation.step,
                line=dict(evaluation.line),
                completions=[
                    one.model_dump(include=fields) | ids for (one, _), (ids, _) in zip(given, stored, strict=True)
                ],
                rewards=[
                    {"place": place, "score": score} | columns
                    for place, (_, rewards) in enumerate(stored)
                    for score, columns in rewards.items()
                ],
            )
            runs.report(session, row)
            return _summaries(session, [row])[0]

    def heartbeat(self, run_id: int, heartbeat: wire.RunHeartbeat) -> wire.StoredRun:
        """Report that a run goes on, or its new state. ``stop_requested`` says whether it should stop."""
        with self.db.write() as session:
            row = runs.get(session, run_id)
            runs.report(session, row, heartbeat.state, heartbeat.reason)
            return _summaries(session, [row])[0]

    def stop(self, run_id: int) -> wire.StoredRun:
        """Ask a run to stop after its current step, with a checkpoint. 409 if it is not running."""
        with self.db.write() as session:
            row = runs.get(session, run_id)
            if (state := runs.status(row, database_time(session))) not in runs.LIVE:
                hint = f"`rubricsvc runs show {row.id}`"
                raise ConflictError(f"run {row.id} is {state}: there is nothing to stop", hint=hint)
            row.stop_requested = True
            session.flush()
            return _summaries(session, [row])[0]

    def get(self, run_id: int) -> wire.StoredRun:
        """Get a run with its counts of rollouts, its first and last rewards and its configuration."""
        with self.db.read() as session:
            row = runs.get(session, run_id)
            rollouts, unscored = runs.rollout_counts(session, row.id)
            rewards = [one.reward for one in runs.steps(session, row.id, limit=MOST_ROWS)]
            tenth = max(1, len(rewards) // 10)
            ends = {"reward_first": mean_known(rewards[:tenth]), "reward_last": mean_known(rewards[-tenth:])}
            more = {"rollouts": rollouts, "unscored": unscored, **ends}
            return _summaries(session, [row])[0].model_copy(update={**more, "config": row.config})

    @takes(RunFilters)
    def page(self, query: RunFilters) -> Page[wire.StoredRun]:
        """List runs, oldest first, with how far each of them is."""
        with self.db.read() as session:
            rows = page_of(session, RunRow, query.after, query.limit + 1, key=query.key)
            return Page.cut(_summaries(session, rows), query.limit)

    @takes(Paging)
    def steps(self, run_id: int, query: Paging) -> Page[wire.StoredStep]:
        """List the metrics of steps. ``after`` and ``next`` are numbers of steps."""
        with self.db.read() as session:
            rows = runs.steps(session, runs.get(session, run_id).id, after=query.after, limit=query.limit + 1)
        return Page.cut([wire.StoredStep.of(row) for row in rows], query.limit, by="step")

    @takes(RolloutFilters)
    def rollouts(self, run_id: int, query: RolloutFilters) -> Page[wire.StoredRollout]:
        """List rollouts with their rewards and verdicts, oldest first."""
        selection = query.model_dump(exclude={"verdicts"}) | {"limit": query.limit + 1}
        with self.db.read() as session:
            rows = runs.rollouts(session, runs.get(session, run_id).id, **selection)
            return Page.cut(_rollouts(session, rows, verdicts=query.verdicts), query.limit)

    @takes(EvaluationFilters)
    def evaluations(self, run_id: int, query: EvaluationFilters) -> Page[wire.StoredEvaluation]:
        """List the evaluations of a run and of its baselines, in the order in which they were recorded."""
        with self.db.read() as session:
            row, limit = runs.get(session, run_id), query.limit + 1
            rows = page_of(session, EvaluationRow, query.after, limit, run_id=row.id, name=query.name)
            return Page.cut([wire.StoredEvaluation.of(row) for row in rows], query.limit)

    @takes(EvaluationCompletionFilters)
    def evaluation_completions(
        self, run_id: int, query: EvaluationCompletionFilters
    ) -> Page[wire.StoredEvaluationCompletion]:
        """List the completions of evaluations with their rewards and verdicts, oldest first."""
        selection = query.model_dump(exclude={"verdicts"}) | {"limit": query.limit + 1}
        with self.db.read() as session:
            rows = runs.evaluation_completions(session, runs.get(session, run_id).id, **selection)
            return Page.cut(_completions(session, rows, verdicts=query.verdicts), query.limit)

    def report(self, run_id: int) -> wire.RunReport:
        """Return what is known of a run: metrics, evaluations, samples with their verdicts, alarms with examples."""
        run = self.get(run_id)
        with self.db.read() as session:
            steps = [row.metrics for row in runs.steps(session, run.id, limit=MOST_ROWS)]
            stored = page_of(session, EvaluationRow, 0, MOST_ROWS, run_id=run.id)
            of_steps = [one for one in stored if one.name == wire.STEP]
            newest = max(of_steps or stored, key=lambda one: one.id, default=None)
            setup = newest.line.get("setup") if newest is not None else None
            current = [one for one in stored if one.line.get("setup") == setup]  # other prompts have their own
            evaluations = sorted((one for one in current if one.name == wire.STEP), key=lambda one: one.step)
            known = {one.name: one for one in (*current, *(one for one in stored if one.name in wire.OTHER))}
            baselines = [known[name] for name in wire.BASELINES if name in known]
            lines = [one.line for one in evaluations]
            return wire.RunReport(
                name=str(run.id),
                status=run.status,
                config=run.config or {},
                steps=tuple(steps),
                evaluations=tuple(lines),
                baselines=tuple(one.line for one in baselines),
                alarms=tuple(self._with_examples(session, run.id, one) for one in lazy.alarms(steps, lines)),
                highest=_highest(session, run.id),
                **_samples_of(session, run.id, evaluations, baselines),
            )

    def _with_examples(self, session: Session, run_id: int, alarm: wire.Alarm) -> wire.Alarm:
        """Return an alarm with rollouts of its step that have its sign, those with most of it first."""
        if alarm.step is None or alarm.sign is None:
            return alarm
        rows = runs.rollouts(session, run_id, step=alarm.step, limit=MOST_ROWS)
        texts = by_id(session, CompletionRow, {row.completion_id for row in rows})
        asked = by_id(session, PromptRow, {row.prompt_id for row in rows})
        given = [(asked[row.prompt_id].value.text, texts[row.completion_id].value) for row in rows]
        found = [(lazy.sign(alarm.sign, *one), row) for one, row in zip(given, rows, strict=True)]
        known = [(value, row) for value, row in found if value is not None]
        rows = [row for _, row in sorted(known, key=lambda pair: -pair[0])]
        examples = [
            {
                "where": f"step {row.step}, rollout {row.id}, completion {row.completion_id}",
                "scores": {"training reward": row.reward},
            }
            for row in rows[:EXAMPLES]
        ]
        shown = _samples(session, list(zip(rows, examples, strict=False)))
        return alarm.model_copy(update={"examples": tuple(shown)})

    def _store(
        self,
        session: Session,
        run: RunRow,
        sampled: Sequence[tuple[wire.PromptGroup, Completion, Mapping[str, wire.Rewarded]]],
    ) -> list[tuple[dict[str, int], dict[str, dict[str, Any]]]]:
        """Store what is new of completions that a policy sampled; return the columns of each, and of its rewards.

        What a job's item has scored is the item's: completion and rubric version by the training reward, which are
        the run's own otherwise, verdicts and judge of each reward.
        """
        given = [(one, each.item_id) for _, one, rewards in sampled for each in rewards.values()]
        scored = jobs.scored_items(session, {item_id for _, item_id in given if item_id is not None})
        for completion, item_id in given:
            if item_id is not None and item_id not in scored:
                raise NotFoundError(f"no item {item_id} has scored a completion")
            if item_id is not None and scored[item_id].completion.digest != completion.digest:
                message = f"item {item_id} has scored another completion than the one recorded"
                raise InvalidError(message, hint="give each completion the item of its own", path="item_id")
        for rubric in {group.rubric.digest: group.rubric for group, *_ in sampled}.values():
            lazy.check_rubric(rubric)
        edit = replace(self.edit, by=run.name)
        prompt_ids = completions.add_prompts(session, ((one.prompt, one.prompt_name or None) for one, *_ in sampled))
        rubric_ids: dict[tuple[int, str], int] = {}
        trained = [rewards.get(wire.REWARD) for *_, rewards in sampled]
        items_of = [scored.get(one.item_id or 0) if one is not None else None for one in trained]
        new: list[tuple[int, Completion]] = []
        for (group, completion, _), item in zip(sampled, items_of, strict=True):
            prompt_id, digest = prompt_ids[group.prompt.digest, None], group.rubric.digest
            if (prompt_id, digest) not in rubric_ids:  # the prompt's stored version before others; stored if new
                row = authored(session, digest, prompt_id)
                row = row or add_named(session, group.rubric, edit, group.rubric_name, prompt_id)
                rubric_ids[prompt_id, digest] = row.id
            if item is None:
                new.append((prompt_id, completion))
        new_ids = iter(completions.add_many(session, new))
        stored = []
        for (group, _, rewards), item in zip(sampled, items_of, strict=True):
            prompt_id = prompt_ids[group.prompt.digest, None]
            ids = {
                "prompt_id": prompt_id,
                "completion_id": next(new_ids) if item is None else item.completion_id,
                "rubric_id": rubric_ids[prompt_id, group.rubric.digest] if item is None else item.rubric_id,
            }
            columns = {}
            for score, each in rewards.items():
                own = scored.get(each.item_id or 0)
                judge_id = run.judge_id if score == wire.REWARD else None
                columns[score] = {
                    "reward": each.reward,
                    "null_reason": each.null_reason and each.null_reason[:REASON_CHARS],
                    "item_id": each.item_id,
                    "judge_id": judge_id if own is None else own.judge_id,
                    "verdicts": [one.model_dump(mode="json", exclude_defaults=True) for one in each.verdicts]
                    if own is None
                    else [],
                }
            stored.append((ids, columns))
        return stored


def _summaries(session: Session, rows: Sequence[RunRow]) -> list[wire.StoredRun]:
    """Return how far each of these runs is."""
    now, newest = database_time(session), runs.newest_steps(session, [row.id for row in rows])
    found = []
    for row in rows:
        steps, metrics = newest.get(row.id, (0, None))
        seen = {"seen_seconds": max(0.0, now - row.seen_at), "status": runs.status(row, now)}
        found.append(wire.StoredRun.of(row, steps=steps, metrics=metrics, config=None, **seen))
    return found


def _rollouts(session: Session, rows: Sequence[RolloutRow], *, verdicts: bool = True) -> list[wire.StoredRollout]:
    by_item = verdicts_of_items(session, [row.item_id for row in rows if verdicts and row.item_id is not None])
    found = []
    for row in rows:
        known = (by_item.get(row.item_id, ()) if row.item_id else row.verdicts) if verdicts else ()
        found.append(wire.StoredRollout.of(row, rubric=row.rubric.ref, verdicts=known))
    return found


def _completions(
    session: Session, rows: Sequence[EvaluationCompletionRow], *, verdicts: bool
) -> list[wire.StoredEvaluationCompletion]:
    rewards = runs.evaluation_rewards(session, rows)
    item_ids = [each.item_id for found in rewards.values() for each in found if each.item_id is not None]
    by_item = verdicts_of_items(session, item_ids) if verdicts else {}
    found = []
    for row in rows:
        of_row = []
        for each in rewards[row.evaluation_id, row.place]:
            known = by_item.get(each.item_id, ()) if each.item_id is not None else each.verdicts
            of_row.append(wire.StoredEvaluationReward.of(each, verdicts=known if verdicts else ()))
        found.append(wire.StoredEvaluationCompletion.of(row, rubric=row.rubric.ref, rewards=of_row))
    return found


def _samples(session: Session, rows: Sequence[tuple[Any, dict[str, Any]]]) -> list[wire.Sample]:
    """Return completions as a report shows them: of rows of rollouts or evaluations, with further fields of each."""
    texts = by_id(session, CompletionRow, {row.completion_id for row, _ in rows})
    asked = by_id(session, PromptRow, {row.prompt_id for row, _ in rows})
    found = []
    for row, fields in rows:
        one = texts[row.completion_id].value
        shown = {"text": one.text, "messages": one.messages, "truncated": row.truncated}
        found.append(wire.Sample(prompt=asked[row.prompt_id].value.text, **shown, **fields))
    return found


def _highest(session: Session, run_id: int) -> tuple[wire.Sample, ...]:
    """Return rollouts with the highest rewards, each text once, of as many prompts as there are."""
    rows = runs.rollouts(session, run_id, limit=_LOOKED_AT, best=True)
    shown = [
        (row, {"where": f"step {row.step}, rubric {row.rubric.ref}", "scores": {"training reward": row.reward}})
        for row in rows
    ]
    unique: dict[str, tuple[RolloutRow, wire.Sample]] = {}
    for row, one in zip(rows, _samples(session, shown), strict=True):
        unique.setdefault(one.text, (row, one))
    chosen = of_several_prompts(unique.values(), lambda pair: pair[0].prompt_id)
    read = _rollouts(session, [row for row, _ in chosen])
    pairs = zip(chosen, read, strict=True)
    return tuple(one.model_copy(update={"verdicts": each.verdicts}) for (_, one), each in pairs)


def _samples_of(
    session: Session, run_id: int, evaluations: Sequence[EvaluationRow], baselines: Sequence[EvaluationRow]
) -> dict[str, Any]:
    """Return the fields of a report with completions of evaluations to read, with their verdicts."""
    if not evaluations:
        return {}
    named = {one.name: one for one in baselines}
    samples: dict[str, list[wire.Sample]] = {}
    for evaluation in filter(None, (named.get(wire.BEFORE), *evaluations, named.get(wire.EQUAL_COMPUTE[1]))):
        column = wire.column_of(evaluation.line)
        rows = runs.evaluation_completions(session, run_id, evaluation_id=evaluation.id, limit=MOST_ROWS)
        shown = []
        for row, read in zip(rows, _completions(session, rows, verdicts=False), strict=True):
            where = f"{column}, {'greedy' if row.greedy else 'sampled'}, rubric {read.rubric}"
            scores = {each.score: each.reward for each in read.rewards}
            more = {"greedy": row.greedy, "evaluation_row": row.id}
            shown.append((row, {"where": where, "scores": scores, **more}))
        samples[column] = _samples(session, shown)
    gold = str(evaluations[-1].line["gold"])
    gaps: dict[str, tuple[float, wire.Sample]] = {}  # how far the reward of a text is above the gold score
    for one in (one for evaluation in evaluations[1:] for one in samples[wire.column_of(evaluation.line)]):
        reward, value = one.scores.get(wire.REWARD), one.scores.get(gold)
        if reward is not None and value is not None and reward - value > gaps.get(one.text, (0.0, one))[0]:
            gaps[one.text] = reward - value, one
    ranked = [one for _, one in sorted(gaps.values(), key=lambda pair: -pair[0])]
    widest = of_several_prompts(ranked, lambda one: one.prompt)
    by_prompt: dict[str, dict[str, wire.Sample]] = {}
    for name, each in samples.items():
        for one in each:  # the greedy one, else the first
            of_prompt = by_prompt.setdefault(one.prompt, {})
            if name not in of_prompt or one.greedy:
                of_prompt[name] = one
    ends = [wire.column_of(one) for one in (evaluations[0].line, wire.result_of([one.line for one in evaluations]))]
    changes: dict[str, float | None] = {}
    for prompt, found in by_prompt.items():
        before, after = (found[end].scores.get(gold) if end in found else None for end in ends)
        changes[prompt] = after - before if before is not None and after is not None else None
    mean = mean_known(changes.values()) or 0.0  # the prompts that changed as most did come first
    ordered = sorted(by_prompt, key=lambda one: math.inf if (change := changes[one]) is None else abs(change - mean))
    side_by_side = {prompt: by_prompt[prompt] for prompt in ordered[:SHOWN_PROMPTS]}
    visible = [*widest, *(one for each in side_by_side.values() for one in each.values())]
    ids = [one.evaluation_row for one in visible if one.evaluation_row is not None]
    rows = runs.evaluation_completions(session, run_id, ids=ids, limit=MOST_ROWS)
    judged_rows = _completions(session, rows, verdicts=True)
    verdicts = {row.id: each.verdicts for row in judged_rows for each in row.rewards if each.score == wire.REWARD}
    judged = {
        one.evaluation_row: one.model_copy(update={"verdicts": verdicts.get(one.evaluation_row or 0, ())})
        for one in visible
    }
    return {
        "widest": tuple(judged[one.evaluation_row] for one in widest),
        "columns": tuple(samples),
        "samples": {
            prompt: {name: judged[one.evaluation_row] for name, one in each.items()}
            for prompt, each in side_by_side.items()
        },
    }


def of_several_prompts(ranked: Iterable[T], prompt: Callable[[T], Hashable]) -> list[T]:
    """Return the first of each prompt, then the second of each, and so on: an easy prompt must not hide others."""
    places: Counter[Hashable] = Counter()
    rounds: list[tuple[int, T]] = []
    for one in ranked:
        rounds.append((places[prompt(one)], one))
        places[prompt(one)] += 1
    return [one for _, one in sorted(rounds, key=lambda pair: pair[0])][:SHOWN]


def agreement_on_record(db: Database, judge: Judge, digests: Collection[str]) -> tuple[CriterionAgreement | None, str]:
    """Return how a stored judge agrees with labels on prompts of these digests, else on all; and which these are."""
    from rubricsvc.stats.agreement import pooled_agreement

    with db.read() as session:
        rows = labels.judged_labels(session, judges.get(session, judge.name).id)
        own = {*ids_by_digest(session, PromptRow, digests).values()} if rows else set[int]()
    found = pooled_agreement(judge, [row for row in rows if row.prompt_id in own])
    if found is not None:
        return found, "on these prompts"
    return pooled_agreement(judge, rows), "on all prompts"
