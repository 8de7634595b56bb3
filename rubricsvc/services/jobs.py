"""`Jobs`: batches of work, completions to score or prompts to give rubrics. `Rewards`: jobs that store what is new."""

import logging
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from itertools import zip_longest
from typing import TypeVar

from sqlalchemy.orm import Session

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import OF_REPLY, TRANSIENT, Reason
from rubricsvc.errors import (
    ConflictError,
    InvalidError,
    NotApprovedError,
    NotFoundError,
    UnavailableError,
    at_path,
    cut,
)
from rubricsvc.queries import BestOfNQuery, CompareQuery, ItemFilters, JobFilters, JobQuery, RescoreQuery, RewardsQuery
from rubricsvc.schemas import jobs as wire
from rubricsvc.schemas.base import Page, takes
from rubricsvc.services import best_of_n, comparing, exporting, lazy
from rubricsvc.services.deletion import Deletable
from rubricsvc.services.versions import Edit, add_named
from rubricsvc.settings import get_settings
from rubricsvc.store import completions, jobs, judges, leases, rubrics
from rubricsvc.store.completions import verdicts_of_items
from rubricsvc.store.session import AWAY, PUBLISHED, Database, by_id, every, page_of
from rubricsvc.store.tables import CompletionRow, JobRow, RubricRow
from rubricsvc.waiting import WAIT_SECONDS, Notify, OnProgress, polling

ItemKey = tuple[int, int]  # completion id and rubric id: a job holds each pair once


def select(session: Session, new: wire.NewJob) -> tuple[list[ItemKey], int]:
    """Pair completions with rubrics: those of ``new.items``, of ``new.completions``, or all stored ones.

    Without ``new.rubric`` a completion has the one that its item names, or the newest approved versions of all rubrics
    of its prompt. ``new.limit`` is the maximum number of completions that have one. The second value counts those that
    have none.

    It is a NotApprovedError if a rubric that is named, or that an item needs, has no approved version, or if nothing is
    selected and there are drafts; an InvalidError if the prompt of an item has no rubric, or nothing is selected.
    """
    one = rubrics.get(session, new.rubric, allow_drafts=new.allow_drafts) if new.rubric is not None else None

    @cache
    def rubric_ids(prompt_id: int) -> list[int]:
        if one is None:
            return [row.id for row in rubrics.for_prompt(session, prompt_id, allow_drafts=new.allow_drafts)]
        return [one.id] if one.prompt_id in (None, prompt_id) else []

    candidates: Iterable[tuple[int, int, int | None]]  # completion, its prompt, and the rubric that is named for it
    if (given := new.completions if new.items is None else new.items) is not None:
        ids: dict[int | str | None, int] = {}
        for ref in {item.rubric for item in given if item.rubric is not None}:
            ids[ref] = rubrics.get(session, ref, allow_drafts=new.allow_drafts).id
        owners = completions.prompt_ids(session, {item.completion_id for item in given}, policy=new.policy)
        for item in given if new.policy is None else ():
            if item.completion_id not in owners:
                completions.get(session, item.completion_id)  # raises NotFoundError
        theirs = ((item.completion_id, ids.get(item.rubric)) for item in given if item.completion_id in owners)
        candidates = ((id_, owners[id_], rubric_id) for id_, rubric_id in theirs)
    else:
        stored = every(page_of, session, table=CompletionRow, policy=new.policy)
        candidates = ((row.id, row.prompt_id, None) for row in stored)
    pairs: list[ItemKey] = []
    without: list[int] = []
    selected = 0
    for number, (completion_id, prompt_id, named) in enumerate(candidates):
        if found := [named] if named is not None and one is None else rubric_ids(prompt_id):
            pairs += ((completion_id, rubric_id) for rubric_id in found)
            selected += 1
        elif new.items is not None:
            with at_path(f"items.{number}"):
                raise no_rubric(session, f"the prompt of completion {completion_id} has no rubric", [prompt_id])
        else:
            without.append(prompt_id)
        if selected == new.limit:
            break
    if pairs:
        return pairs, len(without)
    none = "nothing to score: no completion" + (f" of policy {new.policy!r}" if new.policy is not None else "")
    if one is None or one.prompt_id is None:
        raise no_rubric(session, f"{none} has a rubric", dict.fromkeys(without))
    owner = completions.get_prompt(session, one.prompt_id).external_id or one.prompt_id
    hint = "leave --rubric out, or name a rubric of the prompt of the completions"
    raise InvalidError(f"{none} is of prompt {owner!r}, to which rubric {one.ref} belongs", hint=hint)


def no_rubric(session: Session, message: str, prompt_ids: Iterable[int]) -> InvalidError | NotApprovedError:
    """Return the error that prompts have no rubric that may be used: only drafts, or none at all."""
    drafts = [row for id_ in prompt_ids for row in rubrics.for_prompt(session, id_, allow_drafts=True)]
    if drafts:
        listed = cut(", ".join(row.ref for row in drafts), 400)
        return NotApprovedError(f"{message}, only drafts: {listed}", hint=rubrics.approval_hint(drafts[0]))
    hint = "see `rubricsvc rubrics show` and `rubricsvc completions show`, or name a rubric with --rubric"
    return InvalidError(message, hint=hint)


def veto_warning(judge: Judge, required: Sequence[str]) -> str | None:
    """Return a warning if a comparative judge judges ``required`` criteria: it vetoes about half of each group."""
    if judge.mode != "comparative" or not required:
        return None
    more = f" and {len(required) - 1} more" if len(required) > 1 else ""
    return (
        f"{required[0]}{more} is required, and judge {judge.name} is comparative: its values are relative, so"
        " about half of each group is vetoed. Use `required` with checks, or with a readout or written judge."
    )


OPEN = ("queued", "in_progress")
POLL_SECONDS = 0.3


def unfinished(db: Database, ids: Iterable[int]) -> set[int]:
    """Return which of these jobs have not ended; those that do not exist have."""
    with db.read() as session:
        return {row.id for row in by_id(session, JobRow, ids).values() if row.status in OPEN}


Result = TypeVar("Result")


def answered(query: Callable[[], Result], notify: Notify) -> Result:
    """Return the result of a query, which is repeated while the database does not answer; say so once.

    After `Settings.outage_seconds` it is an UnavailableError.
    """
    end: float | None = None
    while True:
        try:
            result = query()
        except AWAY as error:
            limit, now = get_settings().outage_seconds, time.monotonic()
            away = UnavailableError.of_database(error)
            if now >= (now + limit if end is None else end):
                raise away from error
            if end is None:
                end = now + limit
                notify(f"{away}; retrying for {limit:g} s")
            time.sleep(POLL_SECONDS)
        else:
            if end is not None:
                notify("the database answers again")
            return result


@contextmanager
def reachable() -> Iterator[None]:
    """Raise an UnavailableError where the database does not answer."""
    try:
        yield
    except AWAY as error:
        raise UnavailableError.of_database(error) from error


_FIXES = tomllib.loads(files("rubricsvc.services").joinpath("fixes.toml").read_text(encoding="utf-8"))
FIXES: dict[Reason, str] = {Reason(name): fix for name, fix in _FIXES["fixes"].items()}
"""What to do about each reason of a failure."""


def failure_hints(reasons: Mapping[str, int], judge: Judge, job_id: int) -> Iterator[str]:
    """Yield how to see the failed verdicts of a job, and what to do about them: one line for each fix."""
    sampled = [leaf.sampling for leaf in judge.leaf_judges if leaf.mode != "readout"]
    is_repeatable = all(one.temperature == 0 or one.seed is not None for one in sampled)
    retried = TRANSIENT if is_repeatable else TRANSIENT | OF_REPLY
    yield f"`rubricsvc verdicts list --job {job_id} --outcome failed` lists the failed verdicts"
    by_fix: dict[str, list[str]] = {}
    for reason, count in sorted(reasons.items(), key=lambda one: one[0] not in retried):
        fix = f": `rubricsvc jobs retry {job_id}` asks again"
        if reason not in retried:
            again = _FIXES["then"].get(reason)
            then = f", then run `rubricsvc jobs {again} {job_id}`" if again else ""
            fix = f" would fail again: {FIXES[Reason(reason)]}{then}"
        by_fix.setdefault(fix, []).append(f"{reason} ×{count}")
    for fix, counts in by_fix.items():
        yield ", ".join(counts) + fix


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in numbers.items())


def hints(job: JobRow, judge: Judge | None, progress: wire.JobProgress, summary: wire.JobSummary) -> Iterator[str]:
    """Yield a line for whatever of a job needs attention, with the command that helps."""
    exhausted, lost = job.status == "budget_exhausted", summary.reserved.lost
    if exhausted or lost:
        spent = f"${job.spent:.4g} of the budget of ${job.budget:g} is spent"
        killed = f" (${lost:.4g} of it reserved by workers that were killed)" if lost else ""
        fits = "the maximum cost of one call must fit into it"
        more = f"; raise it with `rubricsvc jobs retry {job.id} --budget DOLLARS`: {fits}" if exhausted else ""
        yield f"{spent}{killed}{more}"
    if (made := summary.generation) is not None:
        if made.reasons and not exhausted:
            without = f"prompts without a rubric: {sum(made.reasons.values())} ({_counts(made.reasons)})"
            yield f"{without}; `rubricsvc jobs items {job.id}` shows why; `jobs retry {job.id}` tries again"
        if made.refused_by:
            seen = "`rubricsvc rubrics show NAME --provenance` shows what it found"
            yield f"refused by the gate ({_counts(made.refused_by)}): {seen}"
        if made.drafts:
            yield f"drafts to review: {made.drafts}; `rubricsvc rubrics show --state draft`, `rubrics review`"
        return
    if judge is None:
        yield f"{job.judge.error}"
    elif progress.failed_verdicts and not exhausted:
        yield from failure_hints(summary.reasons, judge, job.id)
    elif job.status == "completed_with_failures":  # a worker died, or the result could not be recorded
        yield f"`rubricsvc jobs export {job.id}` shows null_reason; `jobs retry` scores again what failed"
    if summary.vetoed:
        share = f"{sum(summary.vetoed.values())} of {summary.rewards} rewards are vetoed by a required criterion"
        yield f"{share} ({_counts(summary.vetoed)}); `rubricsvc jobs export {job.id}` shows which"
    if summary.quotes and summary.quotes_not_found:
        share = f"{summary.quotes_not_found} of {summary.quotes} quotes"
        required = judge is not None and judge.require_evidence
        fails = "" if required else "; `require_evidence` in a judge file fails such verdicts"
        yield f"{share} ({summary.quotes_not_found / summary.quotes:.0%}) are not in the completions{fails}"


log = logging.getLogger(__name__)


@dataclass(eq=False)
class Jobs(Deletable):
    """Jobs, by id. A caller ``on_machine`` scores what of a new job needs no question, else the workers do."""

    db: Database
    on_machine: bool = True

    @takes(wire.NewJob)
    def submit(self, new: wire.NewJob) -> wire.StoredJob:
        """Submit completions for scoring. The same key, or without one the same judge and items, give the same job.

        404 if the judge, a rubric or a completion is unknown; 409 if a rubric is not approved, and ``allow_drafts`` is
        not set, if the key belongs to another job, or if the job exists with another budget.
        """
        notes = []
        with self.db.write() as session:
            judge = judges.get(session, new.judge)
            pairs, left_out = select(session, new)
            if left_out:
                why = "no approved rubric of their prompt; --allow-drafts uses drafts"
                why = f"rubric {new.rubric!r} is for another prompt" if new.rubric else why
                notes.append(f"completions left out: {left_out}, {why}")
            if judge.value.mode == "comparative":
                used = by_id(session, RubricRow, (rubric_id for _, rubric_id in pairs)).values()
                vetoes = ((row, one) for row in used for one in row.value.criteria if one.required and not one.check)
                required = [f"{one.key!r} of {row.ref}" for row, one in vetoes]
                if warning := veto_warning(judge.value, required):
                    notes.append(f"warning: {warning}")
            options = new.model_dump(include={"key", "name", "budget", "min_coverage", "allow_drafts"})
            job = jobs.submit(session, judge_id=judge.id, items=pairs, **options)
            is_new = PUBLISHED in session.info  # only a new job is published
        return self._load(job.id, is_new, tuple(notes))

    @takes(JobQuery)
    def get(self, job_id: int, query: JobQuery) -> wire.StoredJob:
        """Get a job with its progress, and with its summary once it is finished."""
        return self._load(job_id, summary=query.summary)

    def wait(
        self,
        job_id: int,
        timeout: float | None = WAIT_SECONDS,
        on_progress: OnProgress | None = None,
        notify: Notify = log.warning,
    ) -> wire.StoredJob:
        """Wait until a job is finished, and return it. ``on_progress`` is called with the job at each poll.

        It is a TimeoutError if the job, which goes on, is not finished after ``timeout`` seconds (None: no limit), and
        an UnavailableError if the database did not answer, or a worker of this process could not write to it, for
        `Settings.outage_seconds`.
        """
        next_delay = polling(job_id, timeout, on_progress, notify, longest=POLL_SECONDS)
        while True:
            job = answered(partial(self._load, job_id), notify)
            if (delay := next_delay(job)) is None:
                return job
            if (outage := self.db.outage) and time.monotonic() - outage[0] >= get_settings().outage_seconds:
                raise outage[1]
            time.sleep(delay)

    @takes(JobFilters)
    def page(self, query: JobFilters) -> Page[wire.StoredJob]:
        """List jobs, oldest first, with their progress."""
        with self.db.read() as session:
            rows = page_of(session, JobRow, query.after, query.limit + 1, status=query.status)
            progress = jobs.progress_of(session, [row.id for row in rows])
            found = [wire.StoredJob.of(row, judge=row.judge.name, progress=progress[row.id]) for row in rows]
            return Page.cut(found, query.limit)

    @takes(ItemFilters)
    def items(self, job_id: int, query: ItemFilters) -> Page[wire.Item]:
        """List items: one reward per completion, with its verdicts; or one rubric per prompt."""
        selection = query.model_dump(exclude={"verdicts"}) | {"limit": query.limit + 1, "text_chars": 200}
        with self.db.read() as session:
            jobs.get(session, job_id)
            rows = jobs.rewards(session, job_id, **selection)
            by_item = verdicts_of_items(session, [row.id for row in rows]) if query.verdicts else {}
        found = [wire.Item.model_validate({**row._asdict(), "verdicts": by_item.get(row.id, ())}) for row in rows]
        return Page.cut(found, query.limit)

    @takes(CompareQuery)
    def compare(self, a: int, query: CompareQuery) -> wire.JobComparison:
        """Compare job ``b`` with job ``a`` on the completions, or else the prompts, that both scored."""
        with self.db.read() as session:
            return comparing.compare(session, a, query)

    @takes(BestOfNQuery)
    def best_of_n(self, query: BestOfNQuery) -> wire.BestOfN:
        """Estimate what the best of n stored samples is worth by a gold score, if judges choose it by their rewards."""
        with self.db.read() as session:
            return best_of_n.best_of_n(session, query)

    @takes(wire.ExportQuery)
    def export(self, job_id: int, query: wire.ExportQuery) -> wire.Export:
        """Read a page of the rewards and verdicts with their texts, or of examples for TRL's trainers."""
        with self.db.read() as session:
            return exporting.export(session, job_id, query)

    def report(self, job_id: int, *, completions: int = 10) -> str:
        """Return the report of a job, an HTML page with so many ``completions`` in each list."""
        from rubricsvc.services.job_results import read_results
        from rubricsvc.web.jobs import render_job

        return render_job(read_results(self.db, job_id, extremes=completions))

    def cancel(self, job_id: int) -> wire.StoredJob:
        """Cancel a job. Scored items keep their rewards."""
        with self.db.write() as session:
            jobs.cancel(session, job_id)
        return self._load(job_id)

    @takes(RescoreQuery)
    def rescore(self, job_id: int, query: RescoreQuery) -> wire.StoredJob:
        """Score a job's completions under the newest approved version of its rubrics, as a new job.

        Stored verdicts are reused: after a change of weights or of ``min_coverage`` no judge is asked.
        """
        with self.db.write() as session:
            _ = jobs.get(session, job_id).judge.value  # an invalid judge raises before a job is stored
            job = jobs.rescore(session, job_id, **query.model_dump())
            is_new = job.id != job_id and PUBLISHED in session.info
        if self.on_machine:
            lazy.complete_answered(self.db, job.id)
        return self._load(job.id, is_new=is_new)

    @takes(wire.RetryRequest)
    def retry(self, job_id: int, query: wire.RetryRequest) -> wire.RetriedJob:
        """Score failed and cancelled items again. Scored verdicts are kept and not asked again."""
        with self.db.write() as session:
            _ = jobs.get(session, job_id).judge.value  # an invalid judge raises before an item is reopened
            reopened = jobs.retry(session, job_id, budget=query.budget)
        return wire.RetriedJob(reopened=reopened, job=self._load(job_id))

    def _load(
        self, job_id: int, is_new: bool = False, notes: tuple[str, ...] = (), *, summary: bool = False
    ) -> wire.StoredJob:
        """Return a job with its progress. A summary reads every verdict: not inside a write transaction."""
        with self.db.read() as session:
            job = jobs.get(session, job_id)
            results = jobs.summary(session, job_id) if summary or job.finished_at else None
            progress = jobs.progress(session, job_id)
            return wire.StoredJob.of(
                job,
                judge=job.judge.name,
                workers=None if job.finished_at else leases.running_workers(session),
                progress=progress,
                summary=results,
                is_new=is_new,
                notes=notes,
                hints=() if results is None else tuple(hints(job, job.judge.valid, progress, results)),
            )


MAX_COMPLETIONS = 10_000


@dataclass(eq=False)
class Rewards:
    """Rewards of the completions of a job; new rubrics are added as an ``edit`` says."""

    db: Database
    edit: Edit

    @takes(wire.NewRewards)
    def submit(self, new: wire.NewRewards) -> wire.Rewards:
        """Store what is new of a batch, submit it as one job, and wait ``timeout`` seconds for it.

        The same completion of a prompt twice is one item. A rubric that is stored for a prompt, or for any, is used
        under its name. After an error nothing is stored: see POST /v1/rewards.
        """
        job_id, keys = submit_rewards(self, new)
        return rewards_of(keys, self.get(job_id, timeout=new.timeout))

    @takes(RewardsQuery)
    def get(self, job_id: int, query: RewardsQuery) -> wire.Rewards:
        """Get the rewards of a job by item id, after at most ``timeout`` seconds of waiting for its end."""
        if query.timeout:
            with suppress(TimeoutError):
                Jobs(self.db).wait(job_id, query.timeout)
        with self.db.read() as session:
            job = jobs.scoring(session, job_id)
            rewards = tuple(map(wire.Item.model_validate, (row._asdict() for row in jobs.rewards(session, job_id))))
            running = None if job.finished_at else leases.running_workers(session)
            return wire.Rewards.of(job, job_id=job_id, judge=job.judge.name, workers=running, rewards=rewards)

    def _store(self, session: Session, new: wire.NewRewards) -> list[ItemKey]:
        """Store what is new of a batch; return the item of each completion, in order."""
        named = zip_longest(new.prompts, new.prompt_names)
        added = completions.add_prompts(session, ((one, id_ or None) for one, id_ in named if isinstance(one, Prompt)))
        prompt_ids: list[int] = []
        for place, one in enumerate(new.prompts):
            with at_path(f"prompts.{place}"):
                id_ = added[one.digest, None] if isinstance(one, Prompt) else completions.get_prompt(session, one).id
                prompt_ids.append(id_)
        known: dict[object, RubricRow] = {}
        rubric_ids: list[int] = []
        for place, prompt_id in enumerate(prompt_ids):
            at = 0 if len(new.rubrics) == 1 else place
            wanted = new.rubrics[at] if new.rubrics else None
            key = (wanted.digest, prompt_id) if isinstance(wanted, Rubric) else wanted or ("own", prompt_id)
            with at_path(f"prompts.{place}" if wanted is None else f"rubrics.{at}"):
                if (row := known.get(key)) is None:
                    row = known[key] = self._rubric(session, new, at, prompt_id)
                if row.prompt_id not in (None, prompt_id):
                    hint = "score it by a rubric of its own prompt, or by one that belongs to none"
                    raise InvalidError(f"{row.ref} belongs to another prompt: {row.prompt_id}", hint=hint)
            rubric_ids.append(row.id)
        by_id = {one for group in new.completions for one in group if isinstance(one, int)}
        owners, values = completions.prompt_ids(session, by_id), list[tuple[int, Completion]]()
        keys: list[tuple[int | None, int]] = []  # None is the next of those that are new
        for number, (prompt_id, group) in enumerate(zip(prompt_ids, new.completions, strict=True)):
            for place, given in enumerate(group):
                keys.append((given if isinstance(given, int) else None, rubric_ids[number]))
                if not isinstance(given, int):
                    values.append((prompt_id, Completion(text=given) if isinstance(given, str) else given))
                elif owners.get(given) != prompt_id:
                    with at_path(f"completions.{number}.{place}"):
                        completions.get(session, given)  # raises NotFoundError
                        hint, owner = "send it with its own prompt", owners[given]
                        raise InvalidError(f"completion {given} belongs to another prompt: {owner}", hint=hint)
        stored = iter(completions.add_many(session, values))
        return [(next(stored) if id_ is None else id_, rubric_id) for id_, rubric_id in keys]

    def _rubric(self, session: Session, new: wire.NewRewards, at: int, prompt_id: int) -> RubricRow:
        """Return the rubric that is given for a prompt, which is stored if it is new; or else the prompt's own."""
        if (given := new.rubrics[at] if new.rubrics else None) is None:
            if not (rows := rubrics.for_prompt(session, prompt_id, allow_drafts=new.allow_drafts)):
                raise no_rubric(session, "the prompt has no rubric", [prompt_id])
            if len(rows) > 1:
                listed = cut(", ".join(row.ref for row in rows), 400)
                raise InvalidError(f"the prompt has {len(rows)} rubrics: {listed}", hint="name one of them")
            return rows[0]
        if not isinstance(given, Rubric):
            return rubrics.get(session, given, allow_drafts=new.allow_drafts)
        if (row := rubrics.of_content(session, given.digest, prompt_id)) is not None:
            return row
        lazy.check_rubric(given)
        name = new.rubric_names[at] if new.rubric_names else ""
        owner = prompt_id if len(new.rubrics) == len(new.prompts) else None  # one for all is of none
        return add_named(session, given, self.edit, name, owner, origin="api")


def submit_rewards(service: Rewards, new: wire.NewRewards) -> tuple[int, list[ItemKey]]:
    """Do what `Rewards.submit` does, without a wait; return the job, and the item of each completion in order."""
    count, total = len(new.prompts), sum(map(len, new.completions))
    sizes = {"completions": (count,), "rubrics": (0, 1, count), "prompt_names": (0, count)}
    for path, allowed in (sizes | {"rubric_names": (0, len(new.rubrics))}).items():
        if (size := len(getattr(new, path))) not in allowed:
            hint = f"send {' or '.join(map(str, sorted({*allowed})))}: the order is that of the prompts"
            raise InvalidError(f"{size} {path} for {count} prompts", hint=hint, path=path)
    if total > MAX_COMPLETIONS:
        hint = f"send several requests of at most {MAX_COMPLETIONS}"
        raise InvalidError(f"{total} completions", hint=hint, path="completions")
    with service.db.write() as session:
        with at_path("judge"):
            judge = judges.get(session, new.judge)
        if new.judge_digest not in (None, judge.digest):
            raise ConflictError(
                f"judge {judge.name!r} was replaced: expected {new.judge_digest:.8}, now it is {judge.digest:.8}",
                hint="give the new judge another name and start another run; or restore the judge",
            )
        keys = service._store(session, new)
        options = new.model_dump(include={"key", "name", "budget", "min_coverage", "allow_drafts"})
        return jobs.submit(session, judge_id=judge.id, items=keys, **options).id, keys


def rewards_of(keys: Sequence[ItemKey], found: wire.Rewards) -> wire.Rewards:
    """Return the rewards of these items of a job, in this order."""
    by_key = {(one.completion_id, one.rubric_id): one for one in found.rewards}
    if deleted := [id_ for id_, rubric_id in keys if (id_, rubric_id) not in by_key]:
        raise NotFoundError(f"completion {deleted[0]} was deleted meanwhile", hint="send the others again")
    return found.model_copy(update={"rewards": tuple(by_key[key] for key in keys)})
