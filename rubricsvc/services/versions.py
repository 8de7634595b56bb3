"""Versions of rubrics: who adds them, in which state, beside whose edits; the steps of a review, the approval checks.

A version is approved by `approve`, and what differs between two is in `changes`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.orm import Session

from rubricsvc.core import states, strict_json
from rubricsvc.core.fingerprint import hash64
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import (
    APPROVED,
    BY_PEOPLE,
    DRAFT,
    GENERATED,
    IMPORTED,
    IN_REVIEW,
    NOT_APPROVED,
    RETIRED,
    ReviewAction,
    RubricOrigin,
    RubricState,
)
from rubricsvc.errors import ConflictError, InvalidError, NotApprovedError, cut
from rubricsvc.services.comparing import match_criteria
from rubricsvc.store import rubrics
from rubricsvc.store.session import Database, added, ids_by_digest, page_of
from rubricsvc.store.tables import RubricEventRow, RubricRow

MAX_CHANGES = 12  # changes of each side that a conflict lists
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

    def state(self, origin: RubricOrigin) -> RubricState:
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
    """Approve the versions that pass the checks, and return what the others lack, by id.

    Only this writes the state, but for rubrics that a worker generates under the policy none. A version passes if the
    newest measured test of its examples, where it has some, passed, and with four eyes if somebody else than its author
    approves it. A draft is a new version: it is approved as it arrives, without an event, or gets a comment that says
    what it lacks. The others are steps of a review: a person has read the texts.
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
        hint = f"run `rubricsvc rubrics test {row.ref} --judge NAME`, then submit and approve it"
        if newest is not None:
            examples = newest.test.examples
            failed = [one.example for one in examples if one.passed is False]
            what = f"{len(failed)} of {len(examples)} examples ({', '.join(failed[:5])})" if failed else "faults"
            message = f"{row.ref} fails its own tests: {what}, by judge {newest.test.judge!r}"
            hint = f"correct the rubric or its examples; or, by another judge, {hint}"
        return ConflictError(message, hint=hint, path="tests")
    person, author = (name.strip().casefold() for name in (edit.person, row.added_by or UNKNOWN))
    if edit.policy == "four_eyes" and person in (UNKNOWN, author):
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
    texts = {text for text, found in near.items() if hash64(text) in found or text not in read}
    keys = cut(", ".join(one.key for one in rubric.criteria if one.texts & texts), 200)
    return texts, f"a model wrote a text of {keys}, or nearly that, and no person has approved it" if texts else ""


def reject_drafts(db: Database, used: Iterable[Rubric]) -> None:
    """Raise NotApprovedError if some of these rubrics are stored as drafts, or would be once they are stored."""
    by_digest = {rubric.digest: rubric for rubric in used}
    with db.read() as session:
        rubrics.reject_drafts(session, [row.id for row in rubrics.only_drafts(session, by_digest)])
        for digest in by_digest.keys() - ids_by_digest(session, RubricRow, by_digest).keys():
            rubric, content = by_digest[digest], by_digest[digest].model_dump(mode="json")
            row = RubricRow(name=f"rubric-{digest[:12]}", version=1, digest=digest, content=content)
            error = lacking(session, row, Edit())
            if why := error.message if error is not None else unread(session, rubric, "", None, None)[1]:
                hint = error.hint if error is not None else "approve it"
                raise NotApprovedError(why, hint=f"import it, and {hint}; or run it with --allow-drafts")


@dataclass(frozen=True, slots=True)
class Addition:
    """A version, and whether it was added now. With a ``conflict`` it is kept as a draft: commit, then raise it."""

    row: RubricRow
    is_new: bool
    conflict: ConflictError | None = None


def add_version(
    session: Session,
    rubric: Rubric,
    edit: Edit,
    *,
    name: str,
    prompt_id: int | None = None,
    origin: RubricOrigin = IMPORTED,
) -> Addition:
    """Add a rubric as the next version of ``name``, or find the version that has this content already.

    Content that is stored as a draft and approved nowhere is a draft under any name, and so are the edit of a version
    that is not approved (the parent, else the newest of the name) or had examples where this has none, text of a model
    that no person has approved, and what does not pass the approval checks. An edit whose parent was edited by somebody
    else is kept as a draft, with a conflict. The same edit again gives the same result.

    Raises:
        NotFoundError: there is no such parent.
        NotApprovedError: the parent is a name without an approved version.
        InvalidError, ConflictError: as of `rubrics.add`.
    """
    parent = rubrics.get(session, edit.parent) if edit.parent is not None else None
    of = name, prompt_id, parent.id if parent is not None else None
    state, note, of_model = edit.state(origin), "", set[str]()
    named = page_of(session, RubricRow, limit=None, name=name)
    versions, approved = named if parent is None else [parent], [one for one in named if one.state == APPROVED]
    tested = [one for one in (*approved[-1:], *versions[-1:]) if one.value.examples]
    lost = bool(tested and not rubric.examples)
    if edit.policy != "none":
        of_model, note = unread(session, rubric, *of)
        same = (row for row in rubrics.only_drafts(session, [rubric.digest]) if row.name != name)
        if versions and versions[-1].state in NOT_APPROVED:
            what = "the newest version of its name" if parent is None else "its parent"
            note = f"{what}, {versions[-1].ref}, is not approved"
        elif (other := next(same, None)) is not None:
            note = f"it has the same content as {other.ref}"
    note += f"{note and '; '}it has no examples, and {tested[-1].ref} has (CSV cannot hold them)" if lost else ""
    before = added(session)["rubrics"]
    given: dict[str, Any] = {"name": name, "prompt_id": prompt_id, "parent_id": of[-1], "added_by": edit.by}
    row = rubrics.add(session, rubric, origin=origin, state=DRAFT, **given)
    is_new, by, conflict = added(session)["rubrics"] > before, edit.person, None
    if of_model:
        rubrics.add_model_texts(session, of_model, *of)
    if is_new and note and (state == APPROVED or lost):
        rubrics.record_event(session, row, DRAFT, by=by, comment=f"added as a draft: {note}")
    elif is_new and state == APPROVED:
        approve(session, [row], edit)
    # Versions of a name are added one after another, so that all older ones can be seen here.
    if parent is None or row.parent_id != parent.id or not (is_new or row.state == DRAFT):
        return Addition(row, is_new)
    if (other := rubrics.edited_before(session, row, parent)) is None:
        return Addition(row, is_new)
    branch = f"a branch of {parent.ref} beside {other.ref}"
    if not edit.force:
        conflict = _conflict(parent, other, row)
        if is_new:
            row.state = DRAFT
            refused = f"refused: {parent.ref} had been edited as {other.ref}"
            rubrics.record_event(session, row, DRAFT, by=by, comment=refused)
    elif is_new:
        rubrics.record_event(session, row, row.state, by=by, comment=branch)
    elif state == APPROVED and not note and row.state == DRAFT:
        approve(session, [row], edit, branch)
    return Addition(row, is_new, conflict)


def add_named(
    session: Session, rubric: Rubric, edit: Edit, name: str, prompt_id: int | None, *, origin: RubricOrigin = IMPORTED
) -> RubricRow:
    """Add a rubric under the name that it came with, for its prompt, so that an import of the same file finds it.

    Without a name it is ``rubric`` with the first digits of its digest, and is for any prompt; one whose name has a
    version already has these digits behind its name.
    """
    if not name or page_of(session, RubricRow, limit=1, name=name):
        name, prompt_id = f"{name[:100] or 'rubric'}-{rubric.digest[:12]}", None
    return add_version(session, rubric, edit, name=name, prompt_id=prompt_id, origin=origin).row


def add_versions(session: Session, given: Sequence[tuple[Rubric, str, int | None]], edit: Edit) -> list[RubricRow]:
    """Add imported rubrics, each with its name and prompt, that need no decision but the checks'; return their rows.

    The others are left to `add_version`: names that are stored, and what may be a draft's text.
    """
    if edit.state(IMPORTED) == DRAFT:
        return []
    if edit.policy != "none":
        drafts = {row.digest for row in rubrics.only_drafts(session, [rubric.digest for rubric, *_ in given])}
        of_model = rubrics.near_model_texts(session, {text for rubric, *_ in given for text in rubric.texts}).keys()
        given = [one for one in given if one[0].digest not in drafts and not one[0].texts & of_model]
    rows = rubrics.add_many(session, given, origin=IMPORTED, added_by=edit.by)
    approve(session, rows, edit)
    return rows


def _conflict(parent: RubricRow, other: RubricRow, row: RubricRow) -> ConflictError:
    """Return the error of an edit whose parent has been edited already; it says what both sides changed."""
    by = f" by {other.added_by}" if other.added_by else ""
    message = f"{parent.ref} has been edited already, as {other.ref}{by}"
    sides = ((f"{other.ref} changed", other), (f"your edit, stored as the draft {row.ref}, changes", row))
    for title, version in sides:
        found = changes(parent.value, version.value)
        more = [f"… and {len(found) - MAX_CHANGES} more"] if len(found) > MAX_CHANGES else []
        lines = [*map(str, found[:MAX_CHANGES]), *more] or ["nothing"]
        message += "\n".join([f"\n{title}:", *(f"  {line}" for line in lines)])
    again = f"add your changes to {other.ref} and name it as the parent: --parent {other.ref}"
    branch = f"or send the same again with --force (over HTTP: force), which makes {row.ref} a branch"
    return ConflictError(message, hint=f"{again}; {branch}", path="parent")


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. ``criterion`` is the key (the new one, unless it was removed); None for the rubric itself.

    ``field`` is the changed field of a criterion that both rubrics have, or of the rubric; ``text`` says it in words.
    """

    kind: Literal["added", "removed", "changed"]
    criterion: str | None
    field: str | None
    old: Any
    new: Any
    text: str

    def __str__(self) -> str:
        return self.text if self.criterion is None else f"{self.criterion}: {self.text}"


def changes(old: Rubric, new: Rubric) -> list[Change]:
    """Return the differences: of the rubric, then of the criteria in their new order, then the removed criteria.

    Criteria are matched by key and wording, else by wording, else by key. The list is empty only for equal content.
    """
    before = {after.key: one for one, after in match_criteria(old, new)}
    kept = {one.key for one in before.values()}
    sums = [sum(abs(one.weight) for one in rubric.criteria) for rubric in (old, new)]
    found: list[Change] = []
    sides: list[tuple[str | None, Any, Any]] = [
        (None, old, new),
        *((one.key, before.get(one.key), one) for one in new.criteria),
    ]
    for key, one, other in [*sides, *((one.key, one, None) for one in old.criteria if one.key not in kept)]:
        a, b = (side and side.model_dump(mode="json", exclude={"criteria"}) for side in (one, other))
        if a is None or b is None:
            kind: Literal["added", "removed"] = "added" if a is None else "removed"
            text = f"{kind}: {_value((a or b)['text'])} (weight {(a or b)['weight']:g})"
            found.append(Change(kind, key, None, a, b, text))
            continue
        for name in b:
            if a[name] != b[name]:
                text = f"{name.replace('_', ' ')} {_value(a[name])} → {_value(b[name])}"
                if name == "weight":
                    text += f" (share of all weights {abs(a[name]) / sums[0]:.0%} → {abs(b[name]) / sums[1]:.0%})"
                found.append(Change("changed", key, name, a[name], b[name], text))
    order = [before[one.key].key for one in new.criteria if one.key in before]
    if [one.key for one in old.criteria if one.key in kept] != order:
        keys, new_keys = ([one.key for one in rubric.criteria] for rubric in (old, new))
        found.append(Change("changed", None, "criteria", keys, new_keys, "the criteria are in another order"))
    return found


def _value(value: Any) -> str:
    """Return the value of a field as it is read: text in quotation marks, else JSON, at most 400 characters."""
    if value in (None, [], {}):
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    return f"“{cut(' '.join(value.split()), 400)}”" if isinstance(value, str) else cut(strict_json.dump(value), 400)
