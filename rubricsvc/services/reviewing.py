"""The review of a rubric version: draft, in review, approved, retired; with comments."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rubricsvc.core.states import APPROVED, DRAFT, IN_REVIEW, RETIRED, ReviewAction, RubricState
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.store import rubrics
from rubricsvc.store.base import id_of

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.store.tables import RubricRow


class Step(NamedTuple):
    """A change of state: the states that it starts from, the usual one first, and the new one."""

    before: tuple[RubricState, ...]
    after: RubricState
    participle: str


STEPS: dict[ReviewAction, Step] = {
    "submit": Step((DRAFT,), IN_REVIEW, "submitted"),
    "approve": Step((IN_REVIEW, RETIRED), APPROVED, "approved"),
    "reject": Step((IN_REVIEW,), DRAFT, "rejected"),
    "retire": Step((APPROVED,), RETIRED, "retired"),
}
_NEEDS_COMMENT = ("reject", "comment")


def review(session: Session, ref: int | str, action: ReviewAction, *, by: str, comment: str | None = None) -> RubricRow:
    """Change the state of a version, or comment on it; return it. Doing the same again changes nothing.

    Args:
        session: The session to write in.
        ref: The version. A name means its only version that the action can start from.
        action: What is done. Rejecting and commenting need a comment.
        by: Name of the person or API key.
        comment: Stored with the event.

    Raises:
        NotFoundError: There is no such version.
        ConflictError: The version has a state that the action does not start from; or it is to be approved, has
            examples, and its newest test did not pass.
        InvalidError: The comment is missing, or several versions of the name could be meant.
    """
    comment = (comment or "").strip() or None
    if comment is None and action in _NEEDS_COMMENT:
        raise InvalidError(
            f"to {action} needs a comment",
            hint="say why in `comment` (on the command line --comment TEXT)",
            path="comment",
        )
    row = _version(session, ref, action)
    rubrics.lock(session, row)
    after = STEPS[action].after if action in STEPS else row.state
    if after == row.state:
        last = rubrics.last_event(session, row.id)
        repeated = last is not None and (last.to_state, last.by, last.comment) == (after, by, comment)
        if comment is None or repeated:
            return row
    elif row.state not in STEPS[action].before:
        raise _wrong_state(row, action)
    if action == "approve":
        _require_tests(session, row)
    rubrics.record_event(session, row, after, by=by, comment=comment)
    return row


def _version(session: Session, ref: int | str, action: ReviewAction) -> RubricRow:
    """Return the version that is meant; a name means its only version that waits for this action."""
    name = str(ref)
    versions = rubrics.of_name(session, name) if id_of(ref) is None and "@" not in name else []
    if not versions or action not in STEPS:
        return rubrics.get(session, ref, allow_drafts=True)
    waiting = [row for row in versions if row.state == STEPS[action].before[0]]
    if len(waiting) > 1:
        listed = ", ".join(row.ref for row in waiting)
        message = f"{len(waiting)} versions of {name!r} can be {STEPS[action].participle}: {listed}"
        raise InvalidError(message, hint=f"name one of them: {waiting[-1].ref}", path="ref")
    return waiting[0] if waiting else versions[-1]


def _require_tests(session: Session, row: RubricRow) -> None:
    """Raise a ConflictError unless the newest measured test of a version with examples passed, by whatever judge."""
    if not row.value.examples:
        return
    hint = f"run `rubricsvc rubrics test {row.ref} --judge NAME`, then approve it"
    newest = rubrics.newest_test(session, row.id)
    if newest is None:
        raise ConflictError(f"{row.ref} has examples, and no test of them is stored", hint=hint, path="tests")
    if newest.outcome != "passed":
        failed = [one.example for one in newest.test.examples if one.passed is False]
        what = (
            f"{len(failed)} of {len(newest.test.examples)} examples ({', '.join(failed[:5])})" if failed else "faults"
        )
        judge = f"judge {newest.test.judge!r}"
        message = f"{row.ref} fails its own tests: {what}, by {judge}"
        raise ConflictError(
            message, hint=f"correct the rubric or its examples; or, by another judge, {hint}", path="tests"
        )


def _wrong_state(row: RubricRow, action: ReviewAction) -> ConflictError:
    step = STEPS[action]
    allowed = " or ".join(state.replace("_", " ") for state in step.before)
    state = row.state.replace("_", " ")
    hint = f"list the versions with `rubricsvc rubrics list --name {row.name}`"
    if action == "approve":
        hint = f"submit it for review first: `rubricsvc rubrics submit {row.ref}`"
    message = f"{row.ref} is {state}; what can be {step.participle} is {allowed}"
    return ConflictError(message, hint=hint, path="action")


def history_of(session: Session, ref: int | str) -> dict[int, RubricRow]:
    """Return the versions whose history ``ref`` means, by id: all those of a name, else the one.

    Raises:
        NotFoundError: There is none.
    """
    versions = rubrics.of_name(session, str(ref)) if id_of(ref) is None else []
    return {row.id: row for row in versions or [rubrics.get(session, ref)]}
