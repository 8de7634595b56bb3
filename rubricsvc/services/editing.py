"""Add versions of rubrics: as drafts or approved, and as edits of a version that somebody else may have edited too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rubricsvc.core.states import (
    APPROVED,
    DRAFT,
    GENERATED,
    IMPORTED,
    ApprovalPolicy,
    RubricOrigin,
    RubricState,
)
from rubricsvc.errors import ConflictError
from rubricsvc.services.rubric_changes import changes
from rubricsvc.store import rubrics
from rubricsvc.store.session import added

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.rubric import Rubric
    from rubricsvc.store.tables import RubricRow

MAX_CHANGES = 12
"""Changes of each side that a conflict lists."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Who adds rubrics, and how.

    Attributes:
        by: A person or an API key.
        parent: The version that the text was edited from: id, name, name@version or digest.
        force: Add it even if somebody else edited the same parent.
        draft: Add it as a draft.
        policy: Which rubrics are drafts when they are added.
    """

    by: str | None = None
    parent: int | str | None = None
    force: bool = False
    draft: bool = False
    policy: ApprovalPolicy = "generated"

    def state(self, origin: RubricOrigin) -> RubricState:
        """Return the state in which a rubric of this origin is added."""
        review = self.draft or self.policy == "all" or (self.policy == "generated" and origin == GENERATED)
        return DRAFT if review else APPROVED


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

    Content that is stored as a draft and approved nowhere is a draft under any name, and so are content whose newest
    test failed and the edit of a version that is not approved. An edit whose parent was edited by somebody else is kept
    as a draft, with a conflict. Sending the same edit again gives the same result.

    Raises:
        NotFoundError: there is no such parent.
        NotApprovedError: the parent is a name without an approved version.
        InvalidError, ConflictError: as of `rubrics.add`.
    """
    parent = rubrics.get(session, edit.parent) if edit.parent is not None else None
    state, why = edit.state(origin), ""
    if state == APPROVED and edit.policy != "none":
        why = _why_draft(session, rubric, name, parent)
        state = DRAFT if why else state
    before = added(session)["rubrics"]
    row = rubrics.add(
        session,
        rubric,
        name=name,
        prompt_id=prompt_id,
        origin=origin,
        state=state,
        parent_id=parent.id if parent is not None else None,
        added_by=edit.by,
    )
    is_new = added(session)["rubrics"] > before
    if is_new and why:
        _note(session, row, edit, state, f"added as a draft: {why}")
    # Versions of a name are added one after another, so that all older ones can be seen here.
    if parent is None or row.parent_id != parent.id or not (is_new or row.state == DRAFT):
        return Addition(row, is_new)
    other = rubrics.edited_before(session, row, parent)
    if other is None:
        return Addition(row, is_new)
    if edit.force:
        if is_new or state != row.state:
            _note(session, row, edit, state, f"a branch of {parent.ref} beside {other.ref}")
        return Addition(row, is_new)
    if is_new:
        row.state = DRAFT
        _note(session, row, edit, DRAFT, f"refused: {parent.ref} had been edited as {other.ref}")
    return Addition(row, is_new, _conflict(parent, other, row))


def add_derived(
    session: Session,
    rubric: Rubric,
    start: RubricRow,
    *,
    origin: RubricOrigin,
    name: str | None = None,
    by: str | None = None,
    force: bool = False,
) -> Addition:
    """Add what was computed from a version, as a draft whose parent is that version, whatever the settings say.

    ``name`` is that of the start by default. If somebody has edited the start in the meantime, the addition has a
    conflict, unless ``force`` is set.
    """
    edit = Edit(by=by, parent=start.id, draft=True, force=force)
    return add_version(session, rubric, edit, name=name or start.name, prompt_id=start.prompt_id, origin=origin)


def _why_draft(session: Session, rubric: Rubric, name: str, parent: RubricRow | None) -> str:
    """Return why content cannot be approved at once; empty if it can."""
    if parent is not None and parent.state in rubrics.NOT_APPROVED:
        return f"its parent {parent.ref} is {parent.state.replace('_', ' ')}"
    drafts = rubrics.only_drafts(session, [rubric.digest])
    same = next((row for row in drafts if row.name != name), None)
    if same is not None:
        return f"it has the same content as {same.ref}"
    failing = rubrics.failing_tests(session, rubric.digest) if rubric.examples else None
    return f"its content fails its own tests, as {failing.ref}" if failing is not None else ""


def _note(session: Session, row: RubricRow, edit: Edit, state: RubricState, comment: str) -> None:
    rubrics.record_event(session, row, state, by=edit.by or "unknown", comment=comment)


def _conflict(parent: RubricRow, other: RubricRow, row: RubricRow) -> ConflictError:
    sides = [(f"{other.ref} changed", other), (f"your edit, stored as the draft {row.ref}, changes", row)]
    parts = []
    for title, version in sides:
        found = changes(parent.value, version.value)
        more = [f"… and {len(found) - MAX_CHANGES} more"] if len(found) > MAX_CHANGES else []
        lines = [*(str(change) for change in found[:MAX_CHANGES]), *more] or ["nothing"]
        parts.append("\n".join([f"{title}:", *(f"  {line}" for line in lines)]))
    by = f" by {other.added_by}" if other.added_by else ""
    message = f"{parent.ref} has been edited already, as {other.ref}{by}\n" + "\n".join(parts)
    again = f"add your changes to {other.ref} and name it as the parent: --parent {other.ref}"
    branch = f"or send the same again with --force (over HTTP: force), which makes {row.ref} a branch"
    return ConflictError(message, hint=f"{again}; {branch}", path="parent")
