"""Reviews: the steps between the states of a version, and the approval checks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from rubricsvc.core import states
from rubricsvc.core.fingerprint import BANDS
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import APPROVED, BY_PEOPLE, DRAFT, GENERATED, IN_REVIEW, RETIRED, ReviewAction, RubricState
from rubricsvc.errors import ConflictError, InvalidError, NotApprovedError, cut
from rubricsvc.store import rubrics
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import RubricEventRow, RubricRow

UNKNOWN = "unknown"  # a person without a name, who approves nothing where four eyes are needed


@dataclass(frozen=True, slots=True)
class Edit:
    """Who adds rubrics, a person or an API key, and how.

    ``parent`` is the version that the text was edited from; ``force`` adds it even if somebody else edited that one
    too. ``policy`` says which rubrics are drafts, and who may approve them.
    """

    by: str | None = None
    parent: int | str | None = None
    force: bool = False
    draft: bool = False
    policy: states.ApprovalPolicy = "generated"

    @property
    def person(self) -> str:
        """The name that is recorded."""
        return self.by or UNKNOWN

    def state(self, origin: states.RubricOrigin) -> RubricState:
        """Return the state in which a rubric of this origin is added."""
        review = self.draft or self.policy in BY_PEOPLE or (self.policy == "generated" and origin == GENERATED)
        return DRAFT if review else APPROVED


STEPS: dict[ReviewAction, tuple[tuple[RubricState, ...], RubricState]] = {
    "submit": ((DRAFT,), IN_REVIEW),
    "approve": ((IN_REVIEW, RETIRED), APPROVED),
    "reject": ((IN_REVIEW,), DRAFT),
    "retire": ((APPROVED,), RETIRED),
}
"""The states that a step starts from, the usual one first, and the new one."""


def review(
    session: Session, ref: int | str, action: ReviewAction, comment: str | None, edit: Edit
) -> tuple[RubricRow, str | None]:
    """Do a step of a review, or add a comment; return the version, and a note if it had that state already.

    Raises:
        ConflictError: The step does not start from its state, or the version does not pass the approval checks.
        InvalidError: The name has several versions that the step can start from.
    """
    row = _version(session, ref, action)
    session.refresh(row, with_for_update=True)  # of two reviewers the second one sees what the first one did
    before, after = STEPS.get(action, ((), row.state))
    is_state, note = row.state.replace("_", " "), None
    if row.state not in (*before, after):
        allowed = " or ".join(state.replace("_", " ") for state in before)
        hint = f"list the versions with `rubricsvc rubrics show --name {row.name}`"
        if action == "approve":
            hint = f"submit it for review first: `rubricsvc rubrics review {row.ref} submit`"
        raise ConflictError(f"{row.ref} is {is_state}; {action} needs one that is {allowed}", hint=hint, path="action")
    if after == APPROVED != row.state:
        for error in approve(session, [row], edit, comment).values():
            raise error
        return row, None
    if before and after == row.state:
        events = page_of(session, RubricEventRow, limit=None, rubric_id=row.id, to_state=after)
        last = next((one for one in reversed(events) if one.from_state != after), None)
        who, when = (last.by, last.created_at) if last else (row.added_by or UNKNOWN, row.created_at)
        note = f"{row.ref} is {is_state} already, {'' if last else 'as it was added '}by {who}, {when:%F %R} UTC"
    if after != row.state or comment is not None:
        rubrics.record_event(session, row, after, by=edit.person, comment=comment)
    return row, note


def _version(session: Session, ref: int | str, action: ReviewAction) -> RubricRow:
    """Return the version that is meant; a name means its only version that waits for this action."""
    versions = page_of(session, RubricRow, limit=None, name=str(ref))
    if not versions or action not in STEPS:
        return rubrics.get(session, ref, allow_drafts=True)
    waiting = [row for row in versions if row.state == STEPS[action][0][0]]
    if len(waiting) > 1:
        listed = ", ".join(row.ref for row in waiting)
        message = f"{action} can start from {len(waiting)} versions of {str(ref)!r}: {listed}"
        raise InvalidError(message, hint=f"name one of them: {waiting[-1].ref}", path="ref")
    return waiting[0] if waiting else versions[-1]


def approve(
    session: Session, rows: Sequence[RubricRow], edit: Edit, comment: str | None = None
) -> dict[int, ConflictError]:
    """Approve the versions that pass the checks, and return what the others lack, by id. Only this writes the state.

    A version passes if the newest measured test of its examples, where it has some, passed, and with four eyes if
    somebody else than its author approves it. A draft is a new version: it is approved as it arrives, without an event,
    or gets a comment that says what it lacks. The others are steps of a review: a person has read the texts.
    """
    refused: dict[int, ConflictError] = {}
    for row in rows:
        arrives = row.state == DRAFT
        if (error := lacking(session, row, edit)) is not None:
            refused[row.id] = error
            if arrives:
                note = f"added as a draft: {error.message}; {error.hint}"
                rubrics.record_event(session, row, DRAFT, by=edit.person, comment=note)
            continue
        if not arrives:
            rubrics.remove_model_texts(session, row.value.texts)
        if not arrives or comment is not None:
            rubrics.record_event(session, row, APPROVED, by=edit.person, comment=comment)
        row.state = APPROVED
    session.flush()
    return refused


def lacking(session: Session, row: RubricRow, edit: Edit) -> ConflictError | None:
    """Return why a version does not pass the approval checks, with what to do; None if it passes."""
    rubric = row.value
    newest = rubrics.newest_test(session, row.digest) if rubric.examples else None
    if rubric.examples and (newest is None or newest.outcome != "passed"):
        message = f"{row.ref} has examples, and no test of them is stored"
        hint = f"run `rubricsvc rubrics test {row.ref} --judge NAME`, then approve it"
        if newest is not None:
            examples = newest.test.examples
            failed = [one.example for one in examples if one.passed is False]
            what = f"{len(failed)} of {len(examples)} examples ({', '.join(failed[:5])})" if failed else "faults"
            message = f"{row.ref} fails its own tests: {what}, by judge {newest.test.judge!r}"
            hint = f"correct the rubric or its examples; or, by another judge, {hint}"
        return ConflictError(message, hint=hint, path="tests")
    if edit.policy == "four_eyes" and edit.person in (UNKNOWN, row.added_by):
        message = f"{row.ref} was added by {row.added_by or UNKNOWN}, and {edit.person} may not approve it"
        return ConflictError(message, hint="ask another person to approve it (four eyes)", path="by")
    return None


def unread(
    session: Session, rubric: Rubric, name: str, prompt_id: int | None, parent_id: int | None
) -> tuple[set[str], str]:
    """Return the texts that a model wrote, or nearly, and that no person approved under any name; and what says so.

    A text that is only nearly a model's is a person's if a version of its name, prompt or parent has it approved.
    """
    near = rubrics.near_model_texts(session, rubric.texts)
    read = rubrics.approved_texts(session, name, prompt_id, parent_id) if near else set[str]()
    texts = {text for text, found in near.items() if BANDS in found.values() or text not in read}
    keys = cut(", ".join(one.key for one in rubric.criteria if one.text in texts), 200)
    return texts, f"a model wrote the text of {keys}, or nearly that, and no person has approved it" if texts else ""


def reject_drafts(db: Database, used: Iterable[Rubric]) -> None:
    """Raise NotApprovedError if some of these rubrics are stored as drafts, or would be once they are stored."""
    by_digest = {rubric.digest: rubric for rubric in used}
    with db.read() as session:
        rubrics.reject_drafts(session, [row.id for row in rubrics.only_drafts(session, by_digest)])
        for digest in by_digest.keys() - rubrics.stored_digests(session, by_digest):
            rubric, content = by_digest[digest], by_digest[digest].model_dump(mode="json")
            row = RubricRow(name=f"rubric-{digest[:12]}", version=1, digest=digest, content=content)
            error = lacking(session, row, Edit())
            if why := error.message if error is not None else unread(session, rubric, "", None, None)[1]:
                hint = error.hint if error is not None else "approve it"
                raise NotApprovedError(why, hint=f"import it, and {hint}; or run it with --allow-drafts")
