"""Examples of another judge's stored verdicts: its probabilities are the soft targets (distillation)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Criterion
from rubricsvc.core.verdict import Verdict, Vote
from rubricsvc.errors import InvalidError
from rubricsvc.services.training_data import JudgedCompletion, TrainingData
from trainer.judge_training.data.files import listed
from trainer.judge_training.examples import Example, Target


def examples_of_verdicts(
    data: TrainingData,
    judge: int | str,
    *,
    job_id: int | None = None,
    member: str | None = None,
    source: str | None = None,
    left_out: Counter[str] | None = None,
) -> Iterator[Example]:
    """Yield an example for each judged completion and rubric version, with a target for each scored verdict.

    A target's value is the verdict's probability, after calibration if the judge has one, or else its value. The levels
    are those of a readout without calibration.

    Args:
        data: The database.
        judge: The teacher, by id or name.
        job_id: Only what this job scored.
        member: The member of a panel or a cascade whose votes are learned, such as the last step of a cascade; where it
            was not asked, there is no target. By default the aggregated verdict (of a cascade: of its last asked step).
        source: The name of the data set; by default the judge's name.
        left_out: Counts the verdicts that are no target, by reason: ``failed``, ``abstained``, ``checked`` (a check
            decides the criterion), ``not_asked`` (the member).

    Raises:
        NotFoundError: No such judge or job.
        InvalidError: The judge compares, it has no such member, the job was scored by another judge, or no verdicts
            are left.
    """
    left_out = Counter() if left_out is None else left_out
    teacher = data.judge(judge)
    if teacher.mode == "comparative":
        message = f"judge {teacher.name!r} compares completions: its verdicts are true of their group only"
        raise InvalidError(message, hint="name a judge that judges completions by themselves", path="judge")
    voter = _member(teacher, member) if member is not None else None
    empty = True
    for judged in data.verdicts(judge, job_id=job_id):
        targets = tuple(_targets(judged, voter, left_out))
        if targets:
            empty = False
            yield Example(judged.prompt, judged.completion, targets, source or teacher.name)
    if empty:
        message = f"judge {teacher.name!r} has no scored verdicts to train on{listed(left_out)}"
        hint = f"score completions with it: `rubricsvc jobs submit FILE --judge {teacher.name}`"
        raise InvalidError(message, hint=hint, path="judge")


def _member(judge: Judge, name: str) -> Judge:
    members = {member.name: member for member in _members(judge)}
    if name not in members:
        known = f"its members are {', '.join(members)}" if members else "it has no members"
        raise InvalidError(f"judge {judge.name!r} has no member {name!r}", hint=known, path="member")
    return members[name]


def _members(judge: Judge) -> Iterator[Judge]:
    for member in judge.members or ():
        yield member
        yield from _members(member)


def _targets(judged: JudgedCompletion, voter: Judge | None, left_out: Counter[str]) -> Iterator[Target]:
    for verdict in judged.verdicts:
        criterion = judged.rubric.by_key[verdict.criterion]
        if criterion.check is not None:
            left_out["checked"] += 1
            continue
        if criterion.each is not None:
            left_out["by_claim"] += 1
            continue
        found = verdict if voter is None else _vote_of(verdict.votes, voter.name)
        if found is None:
            left_out["not_asked"] += 1
        elif found.value is None:
            left_out[found.outcome] += 1
        elif isinstance(found, Verdict):
            yield _target_of_verdict(criterion, found)
        else:
            yield Target(criterion, _probability(voter, criterion, found), rationale=found.rationale or "")


def _target_of_verdict(criterion: Criterion, verdict: Verdict) -> Target:
    probability = verdict.best_probability
    return Target(
        criterion,
        (verdict.value or 0.0) if probability is None else probability,
        levels=verdict.levels if verdict.calibrated is None else None,
        rationale=verdict.rationale or "",
        evidence=tuple(one.quote for one in verdict.evidence if one.start is not None),
    )


def _probability(voter: Judge | None, criterion: Criterion, vote: Vote) -> float:
    """Return a vote's probability; votes are stored without that after the member's calibration."""
    if vote.probability is None:
        return vote.value or 0.0
    calibration = voter.calibration if voter is not None else None
    return calibration.value(criterion, vote.probability) if calibration else vote.probability


def _vote_of(votes: tuple[Vote, ...], name: str) -> Vote | None:
    for vote in votes:
        if vote.by == name:
            return vote
        inner = _vote_of(vote.votes, name)
        if inner is not None:
            return inner
    return None
