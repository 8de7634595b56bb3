"""Rubrics: named, versioned, never changed. Identical content under a name is the same version.

The state of a version's review (`services.versions`) decides what its name refers to: the newest approved version.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import chain
from typing import Any

from sqlalchemy import ColumnElement, Select, String, case, cast, delete, func, literal, select, tuple_
from sqlalchemy.orm import Session, aliased

from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.fingerprint import NEAR, hash64, sketch
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.reward import FORMULAS, FormulaError, check_formula, example_reward_errors
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.rubric_analysis import RubricTest
from rubricsvc.core.states import APPROVED, DRAFT, IMPORTED, NOT_APPROVED, OF_MODELS, RETIRED, RubricOrigin, RubricState
from rubricsvc.errors import ConflictError, InvalidError, NotApprovedError, cut
from rubricsvc.store import tables
from rubricsvc.store.session import add_new, batched, by_id, find, id_of, missing, name_of, page_of, rows_with
from rubricsvc.store.tables import EvolutionRow, EvolutionStepRow, PromptRow, RubricEventRow, RubricRow, RubricTestRow

MAX_SIMILAR = 1000  # names that are compared with an unknown one


def add(
    session: Session,
    rubric: Rubric,
    *,
    name: str,
    prompt_id: int | None = None,
    origin: RubricOrigin = IMPORTED,
    state: RubricState = APPROVED,
    parent_id: int | None = None,
    added_by: str | None = None,
) -> RubricRow:
    """Add ``rubric`` as the next version of ``name``, or return the version that has this content already, unchanged.

    ``parent_id`` is the version that it was edited from. `services.versions` looks for conflicting edits, and decides
    which ``state`` it has.

    Raises:
        ConflictError: The name's newest version with a prompt has another, and no parent says that this is meant.
        InvalidError: The name, the formula or an example is invalid.
    """
    name_of("a rubric's name", name)
    if "@" in name or name != name.strip() or name.isdecimal():
        hint = "no '@', no blanks around it, not a bare number"
        raise InvalidError(f"{cut(repr(name), 80)} cannot name a rubric", hint=hint)
    try:
        check_formula(rubric)
    except FormulaError as error:
        hint = f"give it other weights, or another of the formulas {', '.join(sorted(FORMULAS))}"
        raise InvalidError(str(error), hint=hint, path="formula") from error
    for path, message in example_reward_errors(rubric):
        raise InvalidError(message, hint="correct the example", path=".".join(map(str, path)))
    if origin in OF_MODELS:
        add_model_texts(session, rubric.texts, name, prompt_id, parent_id)
    same = select(RubricRow).where(RubricRow.name == name, RubricRow.digest == rubric.digest)
    while (row := session.scalars(same).first()) is None:
        of_name = select(RubricRow).where(RubricRow.name == name).order_by(RubricRow.version.desc()).limit(1)
        newest = session.scalars(of_name).first()
        other = session.scalars(of_name.where(RubricRow.prompt_id.is_not(None))).first()
        if other is not None and parent_id is None and prompt_id is not None:
            _reject_other_prompt(session, other, prompt_id)
        version = (newest.version if newest is not None else 0) + 1
        values = {"name": name, "version": version, "prompt_id": prompt_id, "origin": origin, "state": state}
        values |= {"digest": rubric.digest, "content": rubric.model_dump(mode="json")}
        values |= {"parent_id": parent_id, "added_by": added_by}
        add_new(session, RubricRow, [values])  # a version just taken by someone else is no error: look, take the next
    if prompt_id is not None:
        _reject_other_prompt(session, row, prompt_id)
    return row


def _reject_other_prompt(session: Session, row: RubricRow, prompt_id: int | None) -> None:
    """Raise a ConflictError unless this version is for the prompt; it shows both prompts, and the ways out."""
    if row.prompt_id == prompt_id:
        return
    own, given = (session.get(PromptRow, id_) if id_ else None for id_ in (row.prompt_id, prompt_id))
    texts = [cut(" ".join(one.value.text.split()), 80) if one else "" for one in (own, given)]
    hint = "give the other prompt's rubric another name (`name` in the file, or --name); or, if it is meant as the next"
    hint += f" version, name its parent: --parent {row.ref}"
    whose = f"the prompt {texts[0]!r}, and this one is for {texts[1]!r}" if own else "no prompt"
    if own and given and own.external_id is not None and own.external_id == given.external_id:
        differing = ", ".join(name for name in Prompt.model_fields if own.content.get(name) != given.content.get(name))
        whose += f": {own.external_id!r} is stored with other {differing}"
        hint = f"a changed prompt is a new prompt: give it another id. For its rubric, {hint}"
    raise ConflictError(f"rubric {row.ref} belongs to {whose}", hint=hint, path="name")


def get(session: Session, ref: int | str, *, allow_drafts: bool = False) -> RubricRow:
    """Return a rubric by id, ``name`` (its newest approved version), ``name@version``, or 8 digits of the digest.

    With ``allow_drafts``, a name without an approved version refers to its newest draft.
    """
    text = str(ref)
    if (found := find(session, RubricRow, ref)) is not None:
        return found
    name, _, version = text.partition("@")
    query = select(RubricRow).where(RubricRow.name == name)
    if version:
        query = query.where(RubricRow.version == (id_of(version) or -1))
    else:
        query = query.where(RubricRow.state.in_((APPROVED, *NOT_APPROVED) if allow_drafts else (APPROVED,)))
    row = session.scalars(query.order_by(_rank(RubricRow).desc(), RubricRow.version.desc()).limit(1)).first()
    if row is None and len(text) >= 8 and set(text) <= set("0123456789abcdef"):
        digests = select(RubricRow).where(RubricRow.digest.startswith(text))
        row = session.scalars(digests.order_by(_rank(RubricRow).desc(), RubricRow.id).limit(1)).first()
    if row is not None:
        return row
    if versions := [] if version else page_of(session, RubricRow, limit=None, name=name):
        listed = cut(", ".join(f"{one.ref} ({one.state.replace('_', ' ')})" for one in versions[-20:]), 400)
        newest = versions[-1]
        shown = "" if newest.state == RETIRED else f"; `rubricsvc rubrics show {newest.ref}` shows it"
        message = f"no version of rubric {name!r} is approved: {listed}"
        raise NotApprovedError(message, hint=approval_hint(newest) + shown)
    begins = RubricRow.name.startswith(name[:1], autoescape=True)
    names = session.scalars(select(RubricRow.name).where(begins).distinct().limit(MAX_SIMILAR)).all()
    hint = ""
    if close := get_close_matches(name[:MAX_NAME_LENGTH], names, n=1):
        highest = session.scalar(select(func.max(RubricRow.version)).where(RubricRow.name == close[0]))
        hint = f"did you mean '{close[0]}@{highest}'?"
    raise missing("rubric", ref, hint)


def _rank(row: Any) -> ColumnElement[int]:
    """Return what orders versions before their number: approved ones are above others."""
    return case((row.state == APPROVED, 1), else_=0)


def approval_hint(row: RubricRow) -> str:
    """Return how to approve this version, or to use it without approval."""
    submit = f"`rubricsvc rubrics review {row.ref} submit`, then " if row.state == DRAFT else ""
    tested = f"`rubricsvc rubrics test {row.ref} --judge NAME`, then " if row.content.get("examples") else ""
    exactly = f"name it exactly: {row.ref}"
    draft = "let jobs and runs use drafts: --allow-drafts, over HTTP allow_drafts"
    approve = f"`rubricsvc rubrics review {row.ref} approve`"
    return f"approve it: {tested}{submit}{approve}; or {exactly if row.state == RETIRED else draft}"


def reject_drafts(session: Session, ids: Sequence[int] | Select[int]) -> None:
    """Raise NotApprovedError if one of these versions is a draft or in review."""
    query = select(RubricRow).where(RubricRow.id.in_(ids), RubricRow.state.in_(NOT_APPROVED))
    if rows := session.scalars(query.order_by(RubricRow.id).limit(6)).all():
        listed = ", ".join(row.ref for row in rows[:5]) + (", …" if len(rows) > 5 else "")
        raise NotApprovedError(f"not approved: {cut(listed, 400)}", hint=approval_hint(rows[0]))


def only_drafts(session: Session, digests: Iterable[str]) -> list[RubricRow]:
    """Return the versions whose content is among these and is stored as a draft, and approved nowhere."""
    other, query = aliased(RubricRow), select(RubricRow).where(RubricRow.state.in_(NOT_APPROVED))
    seen = select(other.id).where(other.digest == RubricRow.digest, other.state.not_in(NOT_APPROVED)).exists()
    query = query.where(~seen).order_by(RubricRow.id)
    return [row for (row,) in rows_with(session, query, RubricRow.digest, sorted(set(digests)))]


def approved_texts(session: Session, name: str, prompt_id: int | None, parent_id: int | None) -> set[str]:
    """Return the texts of criteria of the parent, and of versions of this name or prompt that were ever approved."""
    same = (RubricRow.name == name) | (RubricRow.prompt_id == (-1 if prompt_id is None else prompt_id))
    query = select(RubricRow).where((same & RubricRow.state.not_in(NOT_APPROVED)) | (RubricRow.id == parent_id))
    return set[str]().union(*(row.value.texts for row in session.scalars(query)))


def add_model_texts(session: Session, texts: set[str], name: str, prompt_id: int | None, parent_id: int | None) -> None:
    """Keep sketches of criteria that a model wrote, without the `approved_texts`."""
    unread = texts - approved_texts(session, name, prompt_id, parent_id)
    rows = ({"band": band, "text": hash64(one)} for one in unread for band in sketch(one))
    add_new(session, tables.ModelTextRow, rows)


def near_model_texts(session: Session, texts: Iterable[str]) -> dict[str, set[int]]:
    """Return for each text the hashes of models' that it shares `NEAR` bands with, unless a person approved it."""
    if session.scalar(select(tables.ModelTextRow.text).limit(1)) is None:
        return {}
    sketches, known = {one: (hash64(one), *sketch(one)) for one in {*texts}}, defaultdict[int, list[int]](list)
    query, bands = select(tables.ModelTextRow.band, tables.ModelTextRow.text), {*chain.from_iterable(sketches.values())}
    for band, text in rows_with(session, query, tables.ModelTextRow.band, bands):
        known[band].append(text)
    unread = {text: bands for text, (own, *bands) in sketches.items() if own not in known}
    counts = ((text, Counter(chain.from_iterable(known[band] for band in one))) for text, one in unread.items())
    return {text: near for text, one in counts if (near := {id_ for id_, n in one.items() if n >= NEAR})}


def remove_model_texts(session: Session, texts: Iterable[str]) -> None:
    """Forget what a model wrote letter by letter as these texts, which a person has approved, and remember these."""
    for chunk in batched(map(hash64, near_model_texts(session, texts))):
        session.execute(delete(tables.ModelTextRow).where(tables.ModelTextRow.text.in_(chunk)))
        add_new(session, tables.ModelTextRow, ({"band": one, "text": one} for one in chunk))


def notes(session: Session, ids: Iterable[int]) -> dict[int, str]:
    """Return the newest comment on each of these versions that has one: why it is a draft, if it is one."""
    query = select(RubricEventRow.rubric_id, RubricEventRow.comment).where(RubricEventRow.comment.is_not(None))
    return dict(map(tuple, rows_with(session, query.order_by(RubricEventRow.id), RubricEventRow.rubric_id, ids)))


def of_content(session: Session, digest: str, prompt_id: int) -> RubricRow | None:
    """Return the version with this content that may score the prompt: approved ones first, of several the oldest."""
    may_score = (RubricRow.prompt_id == prompt_id) | RubricRow.prompt_id.is_(None)
    query = select(RubricRow).where(RubricRow.digest == digest, may_score, RubricRow.state != RETIRED)
    return session.scalars(query.order_by(_rank(RubricRow).desc(), RubricRow.id).limit(1)).first()


def newest_of(session: Session, ids: Iterable[int]) -> dict[str, int]:
    """Return for each name of these versions the id of the newest one among them and the approved ones."""
    used = by_id(session, RubricRow, ids)
    newest = {row.name: (row.version, row.id) for row in sorted(used.values(), key=lambda row: row.version)}
    query = select(RubricRow.name, RubricRow.version, RubricRow.id).where(RubricRow.state == APPROVED)
    for name, *version in rows_with(session, query, RubricRow.name, sorted(newest)):
        newest[name] = max(newest[name], tuple(version))
    return {name: id_ for name, (_, id_) in newest.items()}


def edited_before(session: Session, row: RubricRow, parent: RubricRow) -> RubricRow | None:
    """Return the version of the name, older than ``row``, that another editor made from ``parent``.

    That is one with this parent; or one without any parent, newer than this one. Retired versions do not count. Of
    several it is the newest approved one, else the oldest: the drafts after it were refused as later edits.
    """
    unknown = RubricRow.parent_id.is_(None) & (RubricRow.version > parent.version)
    older = select(RubricRow).where(RubricRow.name == row.name, RubricRow.version < row.version)
    query = older.where(RubricRow.state != RETIRED, (RubricRow.parent_id == parent.id) | unknown)
    order = case((RubricRow.state == APPROVED, RubricRow.version), else_=-RubricRow.version)
    return session.scalars(query.order_by(_rank(RubricRow).desc(), order.desc()).limit(1)).first()


def for_prompt(session: Session, prompt_id: int, *, allow_drafts: bool = False) -> list[RubricRow]:
    """Return the newest approved version of each rubric of this prompt.

    With ``allow_drafts`` also the newest draft of each rubric that has no approved version. The versions of training
    runs and of searches are left out: they are used where they are named.
    """
    newer, written = aliased(RubricRow), aliased(RubricRow)
    states = (APPROVED, *NOT_APPROVED) if allow_drafts else (APPROVED,)
    above = tuple_(_rank(newer), newer.version) > tuple_(_rank(RubricRow), RubricRow.version)
    superseding = select(newer.id).where(newer.name == RubricRow.name, newer.prompt_id == prompt_id, above)
    superseded = superseding.where(newer.state.in_(states)).exists()
    query = select(RubricRow).where(RubricRow.prompt_id == prompt_id, RubricRow.state.in_(states), ~superseded)
    of_run = select(EvolutionStepRow.id).join(written, written.id == EvolutionStepRow.target_id)
    of_run = of_run.join(EvolutionStepRow.evolution).where(EvolutionRow.run.is_not(None))
    of_run = of_run.where(EvolutionRow.prompt_id == RubricRow.prompt_id, written.name == RubricRow.name)
    search = select(EvolutionRow.id).where(EvolutionRow.run.is_(None))
    search = search.where(RubricRow.name == literal("evolution-") + cast(EvolutionRow.id, String))
    return list(session.scalars(query.where(~(of_run.exists() | search.exists())).order_by(RubricRow.id)))


def record_event(session: Session, row: RubricRow, to: RubricState, *, by: str, comment: str | None) -> None:
    """Set a state that `services.versions` decided, and add the event; with the same state it is a comment, once."""
    newest = select(RubricEventRow).where(RubricEventRow.rubric_id == row.id).order_by(RubricEventRow.id.desc())
    last = session.scalars(newest.limit(1)).first() if to == row.state else None
    if last is not None and (last.to_state, last.by, last.comment) == (to, by, comment):
        return
    session.add(RubricEventRow(rubric_id=row.id, from_state=row.state, to_state=to, by=by, comment=comment))
    row.state = to
    session.flush()


def add_test(session: Session, rubric_id: int, test: RubricTest, *, by: str) -> RubricTestRow:
    """Store the results of a test of a version; those of the newest test again, as of a request sent twice, are it."""
    content, newest = test.model_dump(mode="json"), select(RubricTestRow).where(RubricTestRow.rubric_id == rubric_id)
    row = session.scalar(newest.order_by(RubricTestRow.id.desc()).limit(1))
    if row is not None and (row.by, row.content) == (by, content):
        return row
    row = RubricTestRow(rubric_id=rubric_id, by=by, outcome=test.outcome, content=content)
    session.add(row)
    session.flush()
    return row


def newest_test(session: Session, digest: str) -> RubricTestRow | None:
    """Return the newest test of a version with this content that passed or failed."""
    query = select(RubricTestRow).join(RubricRow, RubricRow.id == RubricTestRow.rubric_id)
    query = query.where(RubricTestRow.outcome != "unmeasured", RubricRow.digest == digest)
    return session.scalars(query.order_by(RubricTestRow.id.desc()).limit(1)).first()


def add_many(
    session: Session, given: Sequence[tuple[Rubric, str, int | None]], *, origin: RubricOrigin, added_by: str | None
) -> list[RubricRow]:
    """Add rubrics as drafts, each with its name and prompt, whose names are new; return their rows.

    The caller has checked the formulas.
    """
    count = Counter(name for _, name, _ in given)
    plain = [name for name in count if name.isprintable() and name == name.strip() and not name.isdecimal()]
    names = [name for name in plain if count[name] == 1 and "@" not in name and 0 < len(name) <= MAX_NAME_LENGTH]
    new = set(names) - set(session.scalars(select(RubricRow.name).where(RubricRow.name.in_(names))))
    shared: dict[str, Any] = {"version": 1, "origin": origin, "state": DRAFT, "parent_id": None, "added_by": added_by}
    rows = [
        shared | {"name": name, "digest": one.digest, "prompt_id": prompt_id, "content": one.model_dump(mode="json")}
        for one, name, prompt_id in given
        if name in new
    ]
    add_new(session, RubricRow, rows)
    digests = {row["name"]: row["digest"] for row in rows}
    found = session.scalars(select(RubricRow).where(RubricRow.name.in_(digests)))
    return [row for row in found if digests[row.name] == row.digest]
