"""Rubrics: named, versioned, never changed. Identical content under a name is the same version.

The state of a version's review (`reviews`) decides what its name refers to: the newest approved version.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, String, case, cast, func, literal, select, tuple_
from sqlalchemy.orm import Session, aliased

from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.reward import FORMULAS, FormulaError, check_formula, example_reward_errors
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.rubric_analysis import RubricTest
from rubricsvc.core.states import APPROVED, DRAFT, IMPORTED, NOT_APPROVED, OF_MODELS, RETIRED, RubricOrigin, RubricState
from rubricsvc.errors import ConflictError, InvalidError, NotApprovedError, cut
from rubricsvc.store.session import add_new, added, by_id, find, id_of, missing, name_of, page_of, rows_with
from rubricsvc.store.tables import EvolutionRow, EvolutionStepRow, PromptRow, RubricEventRow, RubricRow, RubricTestRow

MAX_SIMILAR = 1000  # names that are compared with an unknown one


class Gate(NamedTuple):
    """Who approves, and whether that must be somebody else than the author."""

    by: str | None = None
    four_eyes: bool = False


DRAFTS = "drafts"  # key in ``Session.info``: the id of a version that is not approved, None if there is none


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
    gate: Gate | None = None,
) -> RubricRow:
    """Add ``rubric`` as the next version of ``name``, or return the version that has this content already, unchanged.

    ``parent_id`` is the version that it was edited from; `services.versions` looks for conflicting edits. What is to be
    approved and does not pass the ``gate`` stays a draft, with a comment that says why.

    Raises:
        ConflictError: The name's newest version is for another prompt, and no parent says that this is meant.
        InvalidError: The name, the formula or an example is invalid.
    """
    name_of("a rubric's name", name)
    if "@" in name or name != name.strip() or name.isdecimal():
        raise InvalidError(
            f"{cut(repr(name), 80)} cannot name a rubric", hint="no '@', no blanks around it, not a bare number"
        )
    try:
        check_formula(rubric)
    except FormulaError as error:
        hint = f"give it other weights, or another of the formulas {', '.join(sorted(FORMULAS))}"
        raise InvalidError(str(error), hint=hint, path="formula") from error
    for path, message in example_reward_errors(rubric):
        raise InvalidError(message, hint="correct the example", path=".".join(map(str, path)))
    same = select(RubricRow).where(RubricRow.name == name, RubricRow.digest == rubric.digest)
    added_now = False
    while (row := session.scalars(same).first()) is None:
        order = RubricRow.version.desc()
        newest = session.scalars(select(RubricRow).where(RubricRow.name == name).order_by(order).limit(1)).first()
        if newest is not None and parent_id is None and None not in (prompt_id, newest.prompt_id):
            _reject_other_prompt(session, newest, prompt_id)
        version, first = (newest.version if newest is not None else 0) + 1, DRAFT if state == APPROVED else state
        values = {"name": name, "version": version, "prompt_id": prompt_id, "origin": origin, "state": first}
        values |= {"digest": rubric.digest, "content": rubric.model_dump(mode="json")}
        values |= {"parent_id": parent_id, "added_by": added_by}
        before = added(session)["rubrics"]
        add_new(session, RubricRow, [values])  # a version just taken by someone else is no error: look, take the next
        added_now = added(session)["rubrics"] > before
    if added_now and state == APPROVED:
        approve(session, [row], gate or Gate())
    if row.state in NOT_APPROVED:
        session.info[DRAFTS] = row.id
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


def approve(
    session: Session, rows: Sequence[RubricRow], gate: Gate, comment: str | None = None
) -> dict[int, ConflictError]:
    """Approve the versions that pass the gate, and return what the others lack, by id. Only this writes the state.

    A version passes if the newest measured test of its examples, where it has some, passed, and with four eyes if
    somebody else than its author approves it. A draft is a new version: it is approved as it arrives, without an event,
    or gets a comment that says what it lacks. The others are steps of a review.
    """
    refused: dict[int, ConflictError] = {}
    for row in rows:
        arrives = row.state == DRAFT
        if (error := _lacking(session, row, gate)) is not None:
            refused[row.id] = error
            if arrives:
                note = f"added as a draft: {error.message}; {error.hint}"
                record_event(session, row, DRAFT, by=gate.by or "unknown", comment=note)
            continue
        if not arrives or comment is not None:
            event = {"from_state": row.state, "to_state": APPROVED, "by": gate.by or "unknown", "comment": comment}
            session.add(RubricEventRow(rubric_id=row.id, **event))
        row.state = APPROVED
    session.info.pop(DRAFTS, None)
    session.flush()
    return refused


def _lacking(session: Session, row: RubricRow, gate: Gate) -> ConflictError | None:
    """Return why a version does not pass the gate, with what to do; None if it passes."""
    rubric = row.value
    newest = newest_test(session, row.digest) if rubric.examples else None
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
    if gate.four_eyes and gate.by in (None, row.added_by):
        message = f"{row.ref} was added by {row.added_by or 'somebody unnamed'}, who may not approve it"
        return ConflictError(message, hint="ask another person to approve it (four eyes)", path="by")
    return None


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


def reject_lacking(session: Session, by_digest: Mapping[str, Rubric]) -> None:
    """Raise NotApprovedError if one of these that is not stored would not pass the gate; without prompts."""
    stored = {digest for (digest,) in rows_with(session, select(RubricRow.digest), RubricRow.digest, sorted(by_digest))}
    for digest in by_digest.keys() - stored:
        content = by_digest[digest].model_dump(mode="json")
        row = RubricRow(name=f"rubric-{digest[:12]}", version=1, digest=digest, content=content)
        if (error := _lacking(session, row, Gate())) is not None:
            raise NotApprovedError(error.message, hint=f"import it, and {error.hint}; or run it with --allow-drafts")


def only_drafts(session: Session, digests: Iterable[str]) -> list[RubricRow]:
    """Return the versions whose content is among these and is stored as a draft, and approved nowhere."""
    if DRAFTS not in session.info:  # asked once a session: most databases have none, and imports are long
        session.info[DRAFTS] = session.scalar(select(RubricRow.id).where(RubricRow.state.in_(NOT_APPROVED)).limit(1))
    if session.info[DRAFTS] is None:
        return []
    found: list[RubricRow] = []
    approved: set[str] = set()
    for (row,) in rows_with(session, select(RubricRow).order_by(RubricRow.id), RubricRow.digest, sorted(set(digests))):
        if row.state in NOT_APPROVED:
            found.append(row)
        else:
            approved.add(row.digest)
    return [row for row in found if row.digest not in approved]


def written_by_model(
    session: Session, rubric: Rubric, *, name: str, prompt_id: int | None, parent: RubricRow | None
) -> RubricRow | None:
    """Return the version whose text this rubric seems to have: one that a model wrote, not approved yet.

    It has a criterion of it that no version has that was ever approved, of its name or its prompt; or it is the next
    version of its name, without any parent.
    """
    same = RubricRow.name == name
    if prompt_id is not None:
        same |= RubricRow.prompt_id == prompt_id
    rows = session.scalars(select(RubricRow).where(same).order_by(RubricRow.version)).all()
    drafts = [row for row in rows if row.state in NOT_APPROVED and row.origin in OF_MODELS]
    newest = next((row for row in reversed(rows) if row.name == name), None)
    if parent is None and newest in drafts:
        return newest
    read = {one.text for row in rows if row.state not in NOT_APPROVED for one in row.value.criteria}
    new = {one.text for one in rubric.criteria} - read
    return next((row for row in drafts if new & {one.text for one in row.value.criteria}), None)


def prompts_with_model_drafts(session: Session, prompt_ids: Iterable[int | None]) -> set[int]:
    """Return the prompts that have a version that a model wrote and that is not approved."""
    query = select(RubricRow.prompt_id).where(RubricRow.state.in_(NOT_APPROVED), RubricRow.origin.in_(OF_MODELS))
    return {id_ for (id_,) in rows_with(session, query, RubricRow.prompt_id, {*prompt_ids} - {None})}


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
    query = select(RubricRow).where(
        RubricRow.name == row.name,
        RubricRow.version < row.version,
        RubricRow.state != RETIRED,
        (RubricRow.parent_id == parent.id) | unknown,
    )
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
    superseded = (
        select(newer.id)
        .where(newer.name == RubricRow.name, newer.prompt_id == prompt_id, newer.state.in_(states), above)
        .exists()
    )
    query = select(RubricRow).where(RubricRow.prompt_id == prompt_id, RubricRow.state.in_(states), ~superseded)
    of_run = select(EvolutionStepRow.id).join(written, written.id == EvolutionStepRow.target_id)
    of_run = of_run.join(EvolutionStepRow.evolution).where(EvolutionRow.run.is_not(None))
    of_run = of_run.where(EvolutionRow.prompt_id == RubricRow.prompt_id, written.name == RubricRow.name)
    search = select(EvolutionRow.id).where(EvolutionRow.run.is_(None))
    search = search.where(RubricRow.name == literal("evolution-") + cast(EvolutionRow.id, String))
    return list(session.scalars(query.where(~(of_run.exists() | search.exists())).order_by(RubricRow.id)))


def record_event(session: Session, row: RubricRow, to: RubricState, *, by: str, comment: str | None) -> None:
    """Set another state than approved (see `approve`), and add the event; with the same state it is a comment, once."""
    newest = select(RubricEventRow).where(RubricEventRow.rubric_id == row.id).order_by(RubricEventRow.id.desc())
    last = session.scalars(newest.limit(1)).first() if to == row.state else None
    if last is not None and (last.to_state, last.by, last.comment) == (to, by, comment):
        return
    session.add(RubricEventRow(rubric_id=row.id, from_state=row.state, to_state=to, by=by, comment=comment))
    row.state = to
    session.info.pop(DRAFTS, None)
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
        {"name": name, "digest": rubric.digest, "prompt_id": prompt_id, "content": rubric.model_dump(mode="json")}
        | shared
        for rubric, name, prompt_id in given
        if name in new
    ]
    if not rows:
        return []
    add_new(session, RubricRow, rows)
    digests = {row["name"]: row["digest"] for row in rows}
    found = session.scalars(select(RubricRow).where(RubricRow.name.in_(digests)))
    return [row for row in found if digests[row.name] == row.digest]
