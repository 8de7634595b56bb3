"""`Jobs`: batches of work, as completions to score or prompts to give rubrics."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

from pydantic import Field
from sqlalchemy.exc import IntegrityError

from rubricsvc.core.jobs import GenerationSummary, JobProgress, JobSummary
from rubricsvc.core.judge import Judge
from rubricsvc.core.states import RETIRED
from rubricsvc.core.verdict import OF_REPLY, TRANSIENT, Reason
from rubricsvc.errors import InvalidError, NotApprovedError, UnavailableError, at_path, cut
from rubricsvc.queries import ItemFilters, JobFilters, JobQuery, RescoreQuery
from rubricsvc.schemas import Item, NewJob, Page, RetriedJob, RetryRequest, StoredJob
from rubricsvc.schemas.jobs import WAIT_SECONDS, JobComparison, Notify, OnProgress, PairedBy, polling
from rubricsvc.schemas.methods import takes
from rubricsvc.services import comparing
from rubricsvc.settings import get_settings
from rubricsvc.store import completions, items, jobs, judges, leases, prompts, rubrics
from rubricsvc.store.session import AWAY, PUBLISHED, Database, by_id, every, page_of
from rubricsvc.store.tables import CompletionRow, JobRow, RubricRow
from rubricsvc.store.verdicts import for_items

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.schemas import NewItem
    from rubricsvc.schemas.jobs import ExportCounts, ExportQuery
    from rubricsvc.services.importing import ImportResult
    from rubricsvc.stats import OnProgress as OnCount


class Selection(NamedTuple):
    """Pairs of completion id and rubric id, how many completions have no rubric, and the drafts of their prompts."""

    pairs: list[tuple[int, int]]
    no_rubric: int = 0
    drafts: Sequence[str] = ()


def select(session: Session, new: NewJob, imported: ImportResult | None = None) -> Selection:
    """Return (completion id, rubric id) of an import or of all stored completions, and how many have no rubric.

    Without ``new.rubric`` it is the one that the record names, or the newest approved versions of all rubrics of the
    prompt. ``new.limit`` is the maximum number of completions that have one.

    Raises:
        NotFoundError: No such rubric.
        NotApprovedError: The rubric has no approved version; or nothing is selected, and there are drafts.
        InvalidError: Nothing is selected.
    """
    one = rubrics.get(session, new.rubric, allow_drafts=new.allow_drafts) if new.rubric is not None else None
    without: dict[int, None] = {}

    @cache
    def rubric_ids(prompt_id: int) -> list[int]:
        if one is None:
            return [row.id for row in rubrics.for_prompt(session, prompt_id, allow_drafts=new.allow_drafts)]
        return [one.id] if one.prompt_id in (None, prompt_id) else []

    found: Iterable[tuple[int, int, int | None]]
    if imported is None:
        stored = every(page_of, session, table=CompletionRow, policy=new.policy)
        found = ((row.id, row.prompt_id, None) for row in stored)
    else:
        of_policy = [each for each in imported.completions if new.policy in (None, each.policy)]
        found = dict.fromkeys((each.id, each.prompt_id, each.rubric_id) for each in of_policy)
    pairs: list[tuple[int, int]] = []
    selected = no_rubric = 0
    for completion_id, prompt_id, named in found:
        if ids := rubric_ids(prompt_id) if one is not None or named is None else [named]:
            pairs += ((completion_id, rubric_id) for rubric_id in ids)
            selected += 1
        else:
            no_rubric += 1
            without[prompt_id] = None
        if selected == new.limit:
            break
    prompt_ids = without if one is None and not new.allow_drafts else ()
    drafts = [row for id_ in prompt_ids for row in rubrics.for_prompt(session, id_, allow_drafts=True)]
    if not pairs:
        raise _only_drafts("nothing to score", drafts) if drafts else _nothing_selected(session, one, without, new)
    return Selection(pairs, no_rubric, [row.ref for row in drafts])


def _nothing_selected(session: Session, one: RubricRow | None, prompt_ids: Iterable[int], new: NewJob) -> InvalidError:
    """Return why no completion has a rubric: the ``one`` that is named is of another prompt, or all are retired."""
    of = f" of policy {new.policy!r}" if new.policy is not None else ""
    message = f"nothing to score: no completion{of} has a rubric"
    hint = "see `rubricsvc rubrics show` and `rubricsvc completions show`, or name a rubric with --rubric"
    retired = [row for id_ in prompt_ids for row in page_of(session, RubricRow, prompt_id=id_, state=RETIRED)]
    if one is not None and one.prompt_id is not None:
        owner = prompts.get(session, one.prompt_id).external_id or one.prompt_id
        message = f"nothing to score: no completion{of} is of prompt {owner!r}, to which rubric {one.ref} belongs"
        hint = "leave --rubric out, or name a rubric of the prompt of the completions"
    elif retired:
        message += f": {cut(', '.join(row.ref for row in retired), 400)} is retired"
        hint = f"name it exactly: --rubric {retired[-1].ref}"
    return InvalidError(message, hint=hint)


def _only_drafts(what: str, drafts: Sequence[RubricRow]) -> NotApprovedError:
    message = f"{what}: only drafts: {cut(', '.join(row.ref for row in drafts), 400)}"
    return NotApprovedError(message, hint=rubrics.approval_hint(drafts[0]))


def own_rubrics(
    session: Session, prompt_id: int, what: str = "the prompt", *, allow_drafts: bool = False
) -> list[RubricRow]:
    """Return the newest approved version of each rubric of a prompt, which errors name as ``what``.

    Raises:
        NotApprovedError: None is approved.
        InvalidError: The prompt has no rubric.
    """
    rows = rubrics.for_prompt(session, prompt_id, allow_drafts=allow_drafts)
    if not rows and (drafts := rubrics.for_prompt(session, prompt_id, allow_drafts=True)):
        raise _only_drafts(what, drafts)
    if not rows:
        raise InvalidError(f"{what} has no rubric", hint="name a rubric, or store one with the prompt's id")
    return rows


def with_rubrics(session: Session, items: Sequence[NewItem], *, allow_drafts: bool = False) -> list[tuple[int, int]]:
    """Return (completion id, rubric id) for items; without a rubric as in `select`.

    Raises:
        NotFoundError: No such rubric; or no such completion, where its rubric is None.
        NotApprovedError: A rubric has no approved version.
        InvalidError: The prompt of a completion has no rubric.
    """
    given = {one.rubric for one in items if one.rubric is not None}
    by_ref = {ref: rubrics.get(session, ref, allow_drafts=allow_drafts).id for ref in given}
    owners = completions.prompt_ids(session, {one.completion_id for one in items if one.rubric is None})
    own: dict[int, list[int]] = {}
    pairs: list[tuple[int, int]] = []
    for number, one in enumerate(items):
        id_ = one.completion_id
        if one.rubric is not None:
            pairs.append((id_, by_ref[one.rubric]))
            continue
        prompt_id = owners[id_] if id_ in owners else completions.get(session, id_).prompt_id  # raises NotFoundError
        if prompt_id not in own:
            with at_path(f"items.{number}"):
                rows = own_rubrics(session, prompt_id, f"the prompt of completion {id_}", allow_drafts=allow_drafts)
            own[prompt_id] = [row.id for row in rows]
        pairs += ((id_, rubric_id) for rubric_id in own[prompt_id])
    return pairs


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

Result = TypeVar("Result")


@contextmanager
def ensure_worker(
    db: Database, job_id: int, start_worker: Callable[[Judge], AbstractContextManager[None]], notify: Notify
) -> Iterator[None]:
    """Run a worker for an open job inside the block, if the broker stays in this process.

    Raises:
        NotFoundError: no such job.
    """
    with db.read() as session:
        job = jobs.get(session, job_id)
        is_open = job.status in OPEN
        judge = job.judge.value if is_open and db.on_commit is None else None
    if judge is not None:
        with start_worker(judge):
            yield
        return
    if is_open:
        try:
            from rubricsvc.broker import check_broker  # Celery, which other commands do not need

            check_broker(get_settings().broker_url)
        except UnavailableError as error:
            notify(f"{error.message}; job {job_id} is stored and waits for a worker")
            notify(f"hint: start it, or score here: RUBRICSVC_BROKER_URL=memory:// rubricsvc jobs wait {job_id}")
    yield


def answered(query: Callable[[], Result], notify: Notify, *, hint: str = "") -> Result:
    """Return the result of a query, which is repeated while the database does not answer; say so once.

    Raises:
        UnavailableError: the database did not answer for `Settings.outage_seconds`; with this ``hint``.
    """
    end: float | None = None
    while True:
        try:
            result = query()
        except AWAY as error:
            limit, now = get_settings().outage_seconds, time.monotonic()
            if now >= (now + limit if end is None else end):
                raise _no_answer(error, hint) from error
            if end is None:
                end = now + limit
                notify(f"{_no_answer(error).message}; retrying for {limit:g} s")
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
        raise _no_answer(error) from error


def _no_answer(error: Exception, hint: str = "") -> UnavailableError:
    reason = str(getattr(error, "orig", error)).splitlines()[0]
    return UnavailableError(f"the database does not answer: {reason}", hint=hint)


_START = "start the server, or correct its URL (it usually ends in /v1)"
_STRONGER = "use a stronger model, or a judge with `--mode readout`"
_OTHER_RUBRIC = "correct the rubric and import it"
FIXES = {
    Reason.UNREACHABLE: _START,
    Reason.UNAVAILABLE: _START,
    Reason.TIMEOUT: "the server is slow or does not respond; allow more time with endpoint.timeout_s in a judge file",
    Reason.RATE_LIMITED: "try again later, or with a lower endpoint.concurrency in a judge file",
    Reason.SERVER_ERROR: "see the server's own log",
    Reason.BUDGET: "allow a larger budget",
    Reason.REFUSED: "correct the model, the URL, or the API key in the variable of --api-key-env (in a judge file:"
    " api_key_env)",
    Reason.ENGINE_ERROR: "correct what the verdict's detail names; `rubricsvc doctor` checks the installation",
    Reason.NO_SANDBOX: "install bubblewrap on the workers",
    Reason.TRUNCATED: "raise sampling.max_tokens in the judge's file",
    Reason.UNPARSEABLE: _STRONGER,
    Reason.WRONG_CRITERIA: _STRONGER,
    Reason.CONTRADICTORY: _STRONGER,
    Reason.TEMPLATE_COPIED: _STRONGER,
    Reason.OUT_OF_RANGE: _STRONGER,
    Reason.NO_EVIDENCE: "use a stronger model, or a judge without require_evidence",
    Reason.NO_ANSWER: "use a judge with `--mode written`",
    Reason.NO_LOGPROBS: "the server returns no log-probabilities: use a judge with `--mode written` (comparative and"
    " trajectory judges can write too, see docs/judges.md)",
    Reason.DECLINED: "use another model",
    Reason.TOO_LONG: "use a model with a longer context",
    Reason.CHECK_ERROR: _OTHER_RUBRIC,
    Reason.NO_VARIABLE: _OTHER_RUBRIC,
    Reason.NOT_JSON: _OTHER_RUBRIC,
}
"""What to do about each reason of a failure."""

_THEN = {
    Reason.REFUSED: "retry",
    Reason.NO_SANDBOX: "retry",
    **{reason: "rescore" for reason, fix in FIXES.items() if fix is _OTHER_RUBRIC},
}
"""The command that scores a job again after the fix; where the fix is another judge, a new job does."""


def split(reasons: Mapping[str, int], judge: Judge) -> tuple[dict[Reason, int], dict[Reason, int]]:
    """Return the failures that may succeed when asked again, and those that would fail again."""
    counts = {Reason(name): count for name, count in reasons.items()}
    sampled = (leaf.sampling for leaf in judge.leaf_judges if leaf.mode != "readout")
    retried = (
        TRANSIENT if all(one.temperature == 0 or one.seed is not None for one in sampled) else TRANSIENT | OF_REPLY
    )
    again = {reason: count for reason, count in counts.items() if reason in retried}
    return again, {reason: count for reason, count in counts.items() if reason not in again}


def failure_hints(
    reasons: Mapping[str, int], judge: Judge, job_id: int, *, null_coverage: float | None = None
) -> Iterator[str]:
    """Yield how to see the failed verdicts of a job, and what to do about them: one line for each fix.

    ``null_coverage`` is the highest coverage of a completion without a reward.
    """
    again, lasting = split(reasons, judge)
    yield f"`rubricsvc verdicts list --job {job_id} --outcome failed` lists the failed verdicts"
    by_fix: dict[str, list[str]] = {}
    for reason, count in again.items():
        by_fix.setdefault(f": `rubricsvc jobs retry {job_id}` asks again", []).append(f"{reason} ×{count}")
    for reason, count in lasting.items():
        then = f", then run `rubricsvc jobs {_THEN[reason]} {job_id}`" if reason in _THEN else ""
        by_fix.setdefault(f" would fail again: {FIXES[reason]}{then}", []).append(f"{reason} ×{count}")
    for fix, counts in by_fix.items():
        yield ", ".join(counts) + fix
    coverage = min(0.8, math.floor(100 * (null_coverage or 0.0)) / 100)
    if lasting and coverage:
        yield (
            f"`rubricsvc jobs rescore {job_id} --min-coverage {coverage:g}` computes rewards where at least"
            f" {coverage:.0%} of the weight is judged, and asks nothing"
        )


def hints(session: Session, job: JobRow, progress: JobProgress, summary: JobSummary) -> Iterator[str]:
    """Yield a line for whatever of a job needs attention, with the command that helps."""
    exhausted, lost = job.status == "budget_exhausted", summary.reserved.lost
    generates = summary.generation is not None
    if exhausted or (lost and not generates):
        spent = f"${job.spent:.4g} of the budget of ${job.budget:g} is spent"
        killed = f" (${lost:.4g} of it reserved by workers that were killed)" if lost and not generates else ""
        message = jobs.budget_message(session, job.id) if exhausted and not generates else None
        worst = f"; {message}: the worst case of one call must fit into it" if message else ""
        more = f"; raise it with `rubricsvc jobs retry {job.id} --budget DOLLARS`" if exhausted else ""
        yield f"{spent}{killed}{worst}{more}"
    if summary.generation is not None:
        yield from _generation_hints(job.id, summary.generation, exhausted=exhausted)
        return
    judge = job.judge.valid
    if judge is None:
        yield f"{job.judge.error}"
    elif progress.failed_verdicts and not exhausted:
        yield from failure_hints(summary.reasons, judge, job.id, null_coverage=items.unrewarded(session, job.id)[1])
    elif job.status == "completed_with_failures":  # a worker died, or the result could not be recorded
        yield f"`rubricsvc jobs export {job.id}` shows null_reason; `jobs retry` scores again what failed"
    if summary.vetoed:
        criteria = ", ".join(f"{key} {count}" for key, count in summary.vetoed.items())
        yield (
            f"{sum(summary.vetoed.values())} of {summary.rewards} rewards are vetoed by a required criterion"
            f" ({criteria}); `rubricsvc jobs export {job.id}` shows which"
        )
    if summary.quotes and summary.quotes_not_found:
        share = f"{summary.quotes_not_found} of {summary.quotes} quotes"
        required = judge is not None and judge.require_evidence
        fails = "" if required else "; `require_evidence` in a judge file fails such verdicts"
        yield f"{share} ({summary.quotes_not_found / summary.quotes:.0%}) are not in the completions{fails}"
    if summary.voting.get("saved", 0.0) < 0:
        yield "the cascade cost more than its last judge alone: add one with a narrower `band`, or use the last judge"


_MISSING = {
    "no_trajectory": "import completions with tool calls (`rubricsvc completions import FILE`)",
    "no_rubrics": "import a second rubric of the prompt (`rubricsvc rubrics import FILE`)",
}
"""What to add for prompts that lack what the method needs, by the reason."""


def _generation_hints(job_id: int, made: GenerationSummary, *, exhausted: bool) -> Iterator[str]:
    if made.reasons and not exhausted:
        reasons = ", ".join(f"{reason} {count}" for reason, count in made.reasons.items())
        missing = dict.fromkeys(_MISSING[reason] for reason in made.reasons if reason in _MISSING)
        again = f"`jobs retry {job_id}` asks again, but for the replies that are stored"
        if missing:
            again = f"{', '.join(missing)}, then `jobs retry {job_id}`"
        without = f"prompts without a rubric: {sum(made.reasons.values())}"
        yield f"{without} ({reasons}); `rubricsvc jobs items {job_id}` shows why; {again}"
    if made.refused_by:
        reasons = ", ".join(f"{reason} {count}" for reason, count in made.refused_by.items())
        yield f"refused by the gate ({reasons}): `rubricsvc rubrics show NAME --provenance` shows what it found"
    if made.drafts:
        yield f"drafts to review: {made.drafts}; `rubricsvc rubrics show --state draft`, `rubrics review`"


log = logging.getLogger(__name__)


By = Annotated[PairedBy | None, Field(description="What to pair; by default completions, else prompts.")]


@dataclass(frozen=True, slots=True)
class Submission:
    """A job, whether it is new, and what was left out of it."""

    job_id: int
    is_new: bool
    notes: tuple[str, ...]


@dataclass(eq=False)
class Jobs:
    """Jobs, by id."""

    db: Database

    @takes(NewJob)
    def submit(self, new: NewJob) -> StoredJob:
        """Submit completions for scoring. The same key, or without one the same judge and items, give the same job.

        Raises:
            NotFoundError: The judge, a rubric or a completion is unknown.
            NotApprovedError: A rubric is not approved, and ``allow_drafts`` is not set.
            ConflictError: The key belongs to another job, or the job exists with another budget.
        """
        try:
            with self.db.write() as session:
                submitted = self.submit_in(session, new)
        except IntegrityError:
            with self.db.read() as session:
                for item in new.items or ():
                    completions.get(session, item.completion_id)  # raises NotFoundError for an unknown one
            raise
        return self.submitted(submitted)

    def submit_in(self, session: Session, new: NewJob, imported: ImportResult | None = None) -> Submission:
        """Submit completions in a session to write in, those of a file if it was imported there; see `submit`."""
        judge = judges.get(session, new.judge)
        if new.items is not None:
            found = Selection(with_rubrics(session, new.items, allow_drafts=new.allow_drafts))
        else:
            found = select(session, new, imported)
        notes = []
        if found.no_rubric:
            why = f"rubric {new.rubric!r} is for another prompt" if new.rubric else "no approved rubric of their prompt"
            notes.append(f"completions left out: {found.no_rubric}, {why}")
        if found.drafts:
            notes.append(f"not approved: {cut(', '.join(found.drafts), 200)}; use such rubrics with --allow-drafts")
        if judge.value.mode == "comparative":
            used = by_id(session, RubricRow, (rubric_id for _, rubric_id in found.pairs)).values()
            vetoes = ((row, one) for row in used for one in row.value.criteria if one.required and not one.check)
            required = [f"{one.key!r} of {row.ref}" for row, one in vetoes]
            if warning := veto_warning(judge.value, required):
                notes.append(f"warning: {warning}")
        options = new.model_dump(include={"key", "name", "budget", "min_coverage", "allow_drafts"})
        job = jobs.submit(session, judge_id=judge.id, items=found.pairs, **options)
        return Submission(job.id, PUBLISHED in session.info, tuple(notes))  # only a new job is published

    def submitted(self, submission: Submission) -> StoredJob:
        """Return the job of a submission, once its session is committed."""
        job = self._load(submission.job_id, is_new=submission.is_new)
        return job.model_copy(update={"notes": submission.notes})

    @takes(JobQuery)
    def get(self, job_id: int, query: JobQuery) -> StoredJob:
        """Get a job with its progress, and with its summary once it is finished."""
        return self._load(job_id, summary=query.summary)

    def wait(
        self,
        job_id: int,
        timeout: float | None = WAIT_SECONDS,
        on_progress: OnProgress | None = None,
        notify: Notify = log.warning,
    ) -> StoredJob:
        """Wait until a job is finished, and return it. ``on_progress`` is called with the job at each poll.

        Raises:
            TimeoutError: The job is not finished after ``timeout`` seconds (None: no limit). It goes on.
            UnavailableError: The database did not answer for `Settings.outage_seconds`.
        """
        polls = polling(job_id, timeout, on_progress, notify, longest=POLL_SECONDS)
        delay = next(polls)
        while True:
            time.sleep(delay)
            job = answered(partial(self._load, job_id), notify)
            try:
                delay = polls.send(job)
            except StopIteration:
                return job

    @takes(JobFilters)
    def page(self, query: JobFilters) -> Page[StoredJob]:
        """List jobs, oldest first, with their progress."""
        with self.db.read() as session:
            rows = page_of(session, JobRow, query.after, query.limit + 1, status=query.status)
            progress = jobs.progress_of(session, [row.id for row in rows])
            found = [StoredJob.of(row, judge=row.judge.name, progress=progress[row.id]) for row in rows]
            return Page.cut(found, query.limit)

    @takes(ItemFilters)
    def items(self, job_id: int, query: ItemFilters) -> Page[Item]:
        """List items: one reward per completion, with its verdicts; or one rubric per prompt."""
        selection = query.model_dump(exclude={"verdicts"}) | {"limit": query.limit + 1}
        with self.db.read() as session:
            jobs.get(session, job_id)
            rows = items.rewards(session, job_id, **selection)
            by_item = for_items(session, [row.id for row in rows]) if query.verdicts else {}
        found = [Item.model_validate({**row._asdict(), "verdicts": by_item.get(row.id, ())}) for row in rows]
        return Page.cut(found, query.limit)

    def compare(
        self,
        a: int,
        b: int,
        *,
        by: By = None,
    ) -> JobComparison:
        """Compare job ``b`` with job ``a`` on the completions, or else the prompts, that both scored."""
        with self.db.read() as session:
            return comparing.compare(session, a, b, by=by)

    def report(self, job_id: int, *, completions: int = 10, on_progress: OnCount = lambda *_: None) -> str:
        """Return the report of a job, an HTML page with so many ``completions`` in each list."""
        from rubricsvc.services.job_results import read_results
        from rubricsvc.web.jobs import render_job

        return render_job(read_results(self.db, job_id, extremes=completions, on_progress=on_progress))

    def export(self, job_id: int, query: ExportQuery, counts: ExportCounts) -> Iterator[list[dict[str, Any]]]:
        """Yield rows of rewards and verdicts, or examples for trainers, in pages; ``counts`` counts them."""
        from rubricsvc.services import exporting

        return exporting.pages(self.db, job_id, query, counts)

    def cancel(self, job_id: int) -> StoredJob:
        """Cancel a job. Scored items keep their rewards."""
        with self.db.write() as session:
            jobs.cancel(session, job_id)
        return self._load(job_id)

    @takes(RescoreQuery)
    def rescore(self, job_id: int, query: RescoreQuery) -> StoredJob:
        """Score a job's completions under the newest approved version of its rubrics, as a new job.

        Stored verdicts are reused: after a change of weights or of ``min_coverage`` no judge is asked.
        """
        with self.db.write() as session:
            _ = jobs.get(session, job_id).judge.value  # an invalid judge raises before a job is stored
            job = jobs.rescore(session, job_id, **query.model_dump())
            is_new = job.id != job_id and PUBLISHED in session.info
        return self._load(job.id, is_new=is_new)

    @takes(RetryRequest)
    def retry(self, job_id: int, query: RetryRequest) -> RetriedJob:
        """Score failed and cancelled items again. Scored verdicts are kept and not asked again."""
        with self.db.write() as session:
            _ = jobs.get(session, job_id).judge.value  # an invalid judge raises before an item is reopened
            reopened = jobs.retry(session, job_id, budget=query.budget)
        return RetriedJob(reopened=reopened, job=self._load(job_id))

    def _load(self, job_id: int, *, summary: bool = False, is_new: bool = False) -> StoredJob:
        """Return a job with its progress. A summary reads every verdict: not inside a write transaction."""
        with self.db.read() as session:
            job = jobs.get(session, job_id)
            results = jobs.summary(session, job_id) if summary or job.finished_at else None
            progress = jobs.progress(session, job_id)
            return StoredJob.of(
                job,
                judge=job.judge.name,
                workers=None if job.finished_at else leases.running_workers(session),
                progress=progress,
                summary=results,
                is_new=is_new,
                hints=() if results is None else tuple(hints(session, job, progress, results)),
            )
