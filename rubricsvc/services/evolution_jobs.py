"""Jobs of an evolution: they score candidates that ask something new, through the queue, and nothing twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from rubricsvc.core.evolution import Candidate
from rubricsvc.core.states import DRAFT, EVOLVED
from rubricsvc.errors import InvalidError, UnavailableError
from rubricsvc.services.verdict_matrix import read_matrices
from rubricsvc.store import evolutions, jobs, judges, rubrics
from rubricsvc.store.labels import Selection
from rubricsvc.store.tables import CANCELLED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy.orm import Session

    from rubricsvc.core.rubric import Rubric
    from rubricsvc.services.evolution_columns import VerdictColumns
    from rubricsvc.stats.intervals import Ints
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import EvolutionRow, JobRow


class BudgetExhaustedError(InvalidError):
    """The maximum cost of an evolution is reached."""


def remaining(session: Session, row: EvolutionRow) -> float | None:
    """Return the US dollars that are left; None without a limit.

    Raises:
        BudgetExhaustedError: Nothing is left.
    """
    current = evolutions.get(session, row.id)
    if current.budget is None:
        return None
    left = current.budget - evolutions.spent(session, row.id)
    if left <= 0:
        raise BudgetExhaustedError(
            f"evolution {row.id} has used its ${current.budget:.4g}",
            hint=f"continue: rubricsvc evolve start --resume {row.id} --budget {2 * current.budget:g}",
        )
    return left


class CandidateJobs:
    """Has the judge asked what candidates need, and adds the verdicts to the columns."""

    def __init__(
        self,
        db: Database,
        row: EvolutionRow,
        columns: VerdictColumns,
        completions: Ints,
        score_job: Callable[[int], None],
    ) -> None:
        self._db, self._row, self._columns = db, row, columns
        self._completions, self._score_job = completions, score_job
        self.fence = 0
        with db.read() as session:
            known = [job.id for job in evolutions.jobs_of(session, row.id)]
        self._read(known)

    def judge(self, candidates: Iterable[Candidate], rows: NDArray[np.bool_], step: str) -> None:
        """Have the judge asked what it was not asked yet about these rows [N]; one job for each template.

        Each new question is in one rubric of the job only, so that candidates that share it do not ask it twice.

        Raises:
            BudgetExhaustedError: The evolution's budget is used up.
            InvalidError: A job was cancelled.
            UnavailableError: Most verdicts of a job failed.
        """
        by_template: dict[str | None, list[tuple[Rubric, NDArray[np.bool_]]]] = defaultdict(list)
        for asked, missing in self._columns.to_ask(candidates, rows):
            by_template[asked.template].append((asked.rubric, missing))
        for template, each in by_template.items():  # one after another: what one costs, the next cannot spend
            with self._db.write() as session:
                evolutions.check(session, self._row.id, self.fence)
                job_id = self._submit(session, template, each, step)
            self._score_job(job_id)
            self._check(job_id)
            self._read([job_id])

    def _store(
        self, session: Session, template: str | None, asked: Sequence[tuple[Rubric, NDArray[np.bool_]]]
    ) -> tuple[int, list[tuple[int, int]]]:
        """Store the rubrics as drafts, and the judge; return its id and the items of a job."""
        judge_id, name = self._row.judge_id, f"evolution-{self._row.id}"
        if template is not None:
            changed = {"template": template, "name": f"{name}-{template}"}
            judge_id = judges.add(session, self._row.judge.value.model_copy(update=changed)).id
        options = {"prompt_id": self._row.rubric.prompt_id, "origin": EVOLVED, "added_by": name}
        pairs: list[tuple[int, int]] = []
        for rubric, missing in asked:
            rubric_id = rubrics.add(session, rubric, name=name, state=DRAFT, **options).id  # type: ignore[arg-type]
            pairs += ((id_, rubric_id) for id_ in self._completions[missing].tolist())
        return judge_id, pairs

    def _submit(
        self, session: Session, template: str | None, asked: Sequence[tuple[Rubric, NDArray[np.bool_]]], step: str
    ) -> int:
        """Submit the job of this step, or continue the one that was submitted for it."""
        key = evolutions.job_key(self._row.id, f"{step}-{template or ''}")
        known = next((job for job in evolutions.jobs_of(session, self._row.id) if job.key == key), None)
        if known is not None and not known.exhausted:
            return known.id
        left = remaining(session, self._row)
        if known is not None:
            jobs.retry(session, known.id, budget=None if left is None else known.spent + left)
            return known.id
        judge_id, pairs = self._store(session, template, asked)
        options = {"key": key, "name": f"evolution {self._row.id}: {step}", "budget": left}
        return jobs.submit(session, judge_id=judge_id, items=pairs, allow_drafts=True, **options).id  # type: ignore[arg-type]

    def _check(self, job_id: int) -> None:
        with self._db.read() as session:
            job: JobRow = jobs.get(session, job_id)
            if job.exhausted:
                remaining(session, self._row)
                raise BudgetExhaustedError(
                    f"job {job_id} of evolution {self._row.id} has used its budget",
                    hint=f"continue: rubricsvc evolve start --resume {self._row.id} --budget DOLLARS",
                )
            if job.status == CANCELLED:
                raise InvalidError(
                    f"job {job_id} of evolution {self._row.id} was cancelled",
                    hint=f"rubricsvc jobs retry {job_id}, then rubricsvc evolve start --resume {self._row.id}",
                )
            progress = jobs.progress(session, job_id)
            if progress.failed_verdicts > progress.verdicts:
                raise UnavailableError(
                    f"job {job_id} of evolution {self._row.id}: {progress.failed_verdicts} verdicts failed",
                    hint=f"rubricsvc jobs retry {job_id} --wait, then rubricsvc evolve start --resume {self._row.id}",
                )

    def _read(self, job_ids: Sequence[int]) -> None:
        with self._db.read() as session:
            for job_id in job_ids:
                judge = jobs.get(session, job_id).judge
                template = None if judge.id == self._row.judge_id else judge.value.template
                for matrix in read_matrices(session, Selection(judge.id, job_id)):
                    asked = Candidate(rubric=matrix.rubric, template=template)
                    self._columns.add(asked, matrix.completions, matrix.values)
