"""How a version of a rubric is added, in which state, beside whose edits; and what differs between two."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.orm import Session

from rubricsvc.core import strict_json
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import APPROVED, DRAFT, IMPORTED, NOT_APPROVED, RubricOrigin
from rubricsvc.errors import ConflictError, cut
from rubricsvc.services import reviewing
from rubricsvc.services.comparing import match_criteria
from rubricsvc.services.reviewing import Edit
from rubricsvc.store import rubrics
from rubricsvc.store.session import added, page_of
from rubricsvc.store.tables import RubricRow

MAX_CHANGES = 12  # changes of each side that a conflict lists


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
    that is not approved (the parent, else the newest of the name), text of a model that no person has approved, and
    what does not pass the approval checks. An edit whose parent was edited by somebody else is kept as a draft, with a
    conflict. The same edit again gives the same result.

    Raises:
        NotFoundError: there is no such parent.
        NotApprovedError: the parent is a name without an approved version.
        InvalidError, ConflictError: as of `rubrics.add`.
    """
    parent = rubrics.get(session, edit.parent) if edit.parent is not None else None
    of = name, prompt_id, parent.id if parent is not None else None
    state, note, unread = edit.state(origin), "", set[str]()
    if edit.policy != "none":
        unread, note = reviewing.unread(session, rubric, *of)
        versions = page_of(session, RubricRow, limit=None, name=name) if parent is None else [parent]
        same = (row for row in rubrics.only_drafts(session, [rubric.digest]) if row.name != name)
        if versions and versions[-1].state in NOT_APPROVED:
            what = "the newest version of its name" if parent is None else "its parent"
            note = f"{what}, {versions[-1].ref}, is not approved"
        elif (other := next(same, None)) is not None:
            note = f"it has the same content as {other.ref}"
    before = added(session)["rubrics"]
    given: dict[str, Any] = {"name": name, "prompt_id": prompt_id, "parent_id": of[-1], "added_by": edit.by}
    row = rubrics.add(session, rubric, origin=origin, state=DRAFT, **given)
    is_new, by, conflict = added(session)["rubrics"] > before, edit.person, None
    if unread:
        rubrics.add_model_texts(session, unread, *of)
    if is_new and note and state == APPROVED:
        rubrics.record_event(session, row, DRAFT, by=by, comment=f"added as a draft: {note}")
    elif is_new and state == APPROVED:
        reviewing.approve(session, [row], edit)
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
        reviewing.approve(session, [row], edit, branch)
    return Addition(row, is_new, conflict)


def add_named(
    session: Session, rubric: Rubric, edit: Edit, name: str, prompt_id: int | None, *, origin: RubricOrigin = IMPORTED
) -> RubricRow:
    """Add a rubric under the name that it came with, for its prompt, so that an import of the same file finds it.

    Without a name it is named ``rubric-`` with the first digits of its digest, and is for any prompt. So it is if a
    version has the name already, which stays that of its rubric.
    """
    if not name or page_of(session, RubricRow, limit=1, name=name):
        name, prompt_id = f"rubric-{rubric.digest[:12]}", None
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
    reviewing.approve(session, rows, edit)
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
