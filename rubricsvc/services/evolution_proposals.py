"""Proposals of a model for an evolution: what is asked, and which failures end the work for now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rubricsvc.core.evolution import Objective, Operator, ProposalRequest
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import RubricsvcError, UnavailableError
from rubricsvc.services.evolution_evidence import read_evidence
from rubricsvc.services.evolution_jobs import BudgetExhaustedError
from rubricsvc.services.evolution_operators import PROPOSED

if TYPE_CHECKING:
    from rubricsvc.core.rubric import Rubric
    from rubricsvc.services.evolution_columns import VerdictColumns
    from rubricsvc.services.evolution_data import Labelled
    from rubricsvc.stats.evolution.selection import Parent
    from rubricsvc.store.session import Database

SHARE = 1 / 3
"""Share of the children that a proposer makes, if there is one."""


class Proposer(Protocol):
    """A model that changes the criteria of rubrics."""

    def propose(self, requests: Sequence[ProposalRequest], /) -> list[Rubric | RubricsvcError]:
        """Return the changed rubrics in order, with an error where there is none."""


class Proposals:
    """Asks a proposer about candidates of an evolution."""

    def __init__(
        self, db: Database, evolution_id: int, proposer: Proposer, labelled: Labelled, columns: VerdictColumns
    ) -> None:
        self._db, self._id, self._proposer = db, evolution_id, proposer
        self._labelled, self._columns = labelled, columns

    def request(
        self, random: np.random.Generator, number: int, parent: Parent, objective: Objective
    ) -> ProposalRequest:
        """Return what is asked for child ``number``: an operator, a criterion, and cases that are decided wrong."""
        rubric = parent.candidate.rubric
        judged = [one.key for one in rubric.criteria if one.check is None]
        choices: tuple[Operator, ...] = ("reword",) if objective == "verdicts" else PROPOSED if judged else ("pitfall",)
        operator = choices[int(random.integers(len(choices)))]
        keys = judged or [one.key for one in rubric.criteria]
        key = keys[int(random.integers(len(keys)))]
        with self._db.read() as session:
            evidence = read_evidence(
                session,
                random,
                ids=self._labelled.completions,
                target=self._labelled.target.of_rows(self._labelled.search),
                outcome=self._columns.outcome(parent.candidate),
                objective=objective,
                key=key,
            )
        return ProposalRequest(operator=operator, rubric=rubric, key=key, evidence=evidence, sample=number)

    def ask(self, requests: Sequence[ProposalRequest]) -> list[Rubric | str]:
        """Return the changed rubrics in order, with a reason where there is none.

        Raises:
            BudgetExhaustedError, UnavailableError: A proposal failed for a reason that may pass. Stored replies are not
                asked for again.
        """
        found = self._proposer.propose(requests)
        for one in found:
            if isinstance(one, RubricsvcError):
                self._reject_passing(one)
        return [str(one) if isinstance(one, RubricsvcError) else one for one in found]

    def _reject_passing(self, error: RubricsvcError) -> None:
        """Raise an error that may pass: the child is asked for when the evolution continues."""
        reason = getattr(error, "reason", "")
        if not reason:
            raise error
        if reason == Reason.BUDGET:
            hint = f"continue: rubricsvc evolve start --resume {self._id} --budget DOLLARS"
            raise BudgetExhaustedError(error.message, hint=hint) from error
        if reason in set(Reason) and Reason(reason).transient:
            hint = f"continue: rubricsvc evolve start --resume {self._id}"
            raise UnavailableError(f"the proposer does not answer: {error.message}", hint=hint) from error
