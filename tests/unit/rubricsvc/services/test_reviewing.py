"""Reviews of rubric versions, and edits of one version by two people."""

import json
import threading
from io import BytesIO
from typing import Any

import pytest

from rubricsvc.core.evolution import BufferedCriterion, EvolutionRound
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, NumberRange, Rubric, RubricExample
from rubricsvc.core.rubric_analysis import ExampleTest, RubricTest, VerdictTest
from rubricsvc.core.states import ReviewAction, RubricOrigin
from rubricsvc.errors import ConflictError, InvalidError, NotApprovedError, NotFoundError
from rubricsvc.formats import InputFile, Record
from rubricsvc.formats.writing import plain
from rubricsvc.schemas.jobs import NewItem, NewJob
from rubricsvc.services.evolutions import Evolutions
from rubricsvc.services.importing import Imports
from rubricsvc.services.jobs import Jobs, select
from rubricsvc.services.rubrics import Rubrics
from rubricsvc.services.versions import Addition, Edit, add_version
from rubricsvc.store import completions, jobs, judges, rubrics
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import RubricEventRow, RubricRow
from tests.rows import add_completion


def rubric(text: str, weight: float = 1.0) -> Rubric:
    return Rubric(criteria=(Criterion(key="a", text=text, weight=weight), Criterion(key="b", text="Says b.")))


def add(db: Database, text: str, *, name: str = "r", origin: RubricOrigin = "imported", **edit: Any) -> Addition:
    with db.write() as session:
        return add_version(session, rubric(text), Edit(**{"by": "ann", **edit}), name=name, origin=origin)


def act(db: Database, ref: int | str, *actions: ReviewAction, by: str = "bob", comment: str | None = None) -> str:
    for action in actions:
        row = Rubrics(db, Edit(by=by)).review(ref, action=action, comment=comment)
    return row.state


def resolved(db: Database, ref: int | str, **options: Any) -> str:
    with db.read() as session:
        return rubrics.get(session, ref, **options).ref


def test_add_version_begins_in_the_state_of_the_policy(db: Database) -> None:
    cases: list[tuple[Any, RubricOrigin, bool, str]] = [
        ("generated", "imported", False, "approved"),
        ("generated", "imported", True, "draft"),
        ("generated", "generated", False, "draft"),
        ("all", "imported", False, "draft"),
        ("none", "generated", False, "approved"),
    ]
    for policy, origin, draft, state in cases:
        text = f"{policy} {origin} {draft}."
        assert add(db, text, origin=origin, policy=policy, draft=draft).row.state == state, text


def test_get_resolves_a_name_to_the_newest_approved_version(each_db: Database) -> None:
    add(each_db, "One.", draft=True)
    with each_db.read() as session, pytest.raises(NotApprovedError) as caught:
        rubrics.get(session, "r")
    assert "r@1 (draft)" in caught.value.message and "rubrics review r@1 submit" in caught.value.hint
    assert resolved(each_db, "r", allow_drafts=True) == resolved(each_db, "r@1") == "r@1"

    act(each_db, "r", "submit", "approve")
    add(each_db, "Two.", draft=True)
    assert resolved(each_db, "r") == resolved(each_db, "r", allow_drafts=True) == "r@1"
    act(each_db, "r@2", "submit", "approve")
    assert resolved(each_db, "r") == "r@2"
    act(each_db, "r@2", "retire")
    assert resolved(each_db, "r") == "r@1"
    act(each_db, "r@1", "retire")
    with each_db.read() as session, pytest.raises(NotApprovedError):
        rubrics.get(session, "r", allow_drafts=True)
    act(each_db, "r@1", "approve")
    assert resolved(each_db, "r") == "r@1"
    with each_db.read() as session, pytest.raises(NotFoundError):
        rubrics.get(session, "s")


def test_review_records_who_when_and_why(each_db: Database) -> None:
    id_ = add(each_db, "One.", draft=True).row.id
    assert act(each_db, id_, "submit", by="ann", comment="Ready.") == "in_review"
    assert act(each_db, id_, "reject", comment="Two questions.") == "draft"
    assert act(each_db, id_, "comment", by="ann", comment="True.") == "draft"
    assert act(each_db, id_, "submit", "approve") == "approved"
    events = Rubrics(each_db).history("r").data
    assert [(row.from_state, row.to_state, row.by, row.comment) for row in events] == [
        ("draft", "in_review", "ann", "Ready."),
        ("in_review", "draft", "bob", "Two questions."),
        ("draft", "draft", "ann", "True."),
        ("draft", "in_review", "bob", None),
        ("in_review", "approved", "bob", None),
    ]


def test_review_rejects_steps_from_other_states_and_steps_without_a_comment(db: Database) -> None:
    wrong = {"draft": ("approve", "retire"), "approved": ("submit", "reject"), "retired": ("submit",)}
    for state, actions in wrong.items():
        with db.write() as session:
            rubrics.add(session, rubric(f"Is {state}."), name=state, state=state)  # type: ignore[arg-type]
        for action in actions:
            with pytest.raises(ConflictError) as caught:
                act(db, f"{state}@1", action, comment="Because.")  # type: ignore[arg-type]
            with db.read() as session:
                assert caught.value.path == "action" and rubrics.get(session, f"{state}@1").state == state
                assert not page_of(session, RubricEventRow, 0, 9)
    act(db, "draft@1", "submit")
    for action, comment in (("reject", None), ("reject", "  "), ("comment", None), ("comment", "  ")):
        with pytest.raises(InvalidError) as missing:
            act(db, "draft@1", action, comment=comment)  # type: ignore[arg-type]
        assert missing.value.path == "comment"


def test_add_version_refuses_the_second_edit_and_keeps_it(each_db: Database) -> None:
    add(each_db, "One.")
    first = add(each_db, "Two.", parent="r@1")
    again = add(each_db, "Two.", parent="r@1")
    assert (first.conflict, again.conflict, again.row.id, again.is_new) == (None, None, first.row.id, False)
    for _ in range(2):  # a request that is sent again has the same answer
        second = add(each_db, "Three.", parent="r@1", by="bob")
        assert second.conflict is not None and (second.conflict.path, second.conflict.code) == ("parent", "conflict")
        for part in ("r@2", "by ann", "“One.” → “Two.”", "“One.” → “Three.”", "draft r@3"):
            assert part in second.conflict.message
        assert "--parent r@2" in second.conflict.hint and "--force" in second.conflict.hint
    assert (second.row.ref, second.row.state, second.row.value) == ("r@3", "draft", rubric("Three."))
    assert resolved(each_db, "r") == "r@2"
    third = add(each_db, "Four.", parent="r@1", by="eve").conflict
    assert third is not None and "--parent r@2" in third.hint, "the accepted edit, not the refused one"

    rebased = add(each_db, "Two and three.", parent="r@2", by="bob")
    assert (rebased.conflict, rebased.row.state, resolved(each_db, "r")) == (None, "approved", "r@5")
    branch = add(each_db, "Three.", parent="r@1", by="bob", force=True)
    assert (branch.conflict, branch.row.ref, branch.row.state) == (None, "r@3", "approved")
    assert resolved(each_db, "r") == "r@5"
    assert add(each_db, "Five.", parent="r@1", by="bob", force=True).row.state == "approved"


def test_add_version_refuses_one_of_two_concurrent_edits(each_db: Database) -> None:
    add(each_db, "One.")
    start, results = threading.Barrier(4), list[Addition]()

    def edit(text: str) -> None:
        start.wait()
        results.append(add(each_db, text, parent="r@1", by=text))

    threads = [threading.Thread(target=edit, args=[f"Edit {n}."]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.row.version for one in results) == [2, 3, 4, 5]
    assert [one.row.version for one in results if one.conflict is None] == [2]
    with each_db.read() as session:
        assert {row.value.criteria[0].text for row in page_of(session, RubricRow, name="r")} == {"One."} | {
            f"Edit {n}." for n in range(4)
        }
    assert resolved(each_db, "r") == "r@2"


class Shop:
    """A prompt with a completion and a judge."""

    def __init__(self, db: Database) -> None:
        with db.write() as session:
            self.judge = judges.add(session, Judge(name="j", model="m")).id
            self.prompt = completions.add_prompt(session, Prompt.of("Why?")).id
            self.completion = add_completion(session, Completion(text="Because."), self.prompt).id

    def add(self, db: Database, text: str, name: str = "r", **edit: Any) -> int:
        with db.write() as session:
            return add_version(session, rubric(text), Edit(**edit), name=name, prompt_id=self.prompt).row.id


def test_jobs_refuse_drafts_unless_allowed(each_db: Database) -> None:
    shop = Shop(each_db)
    draft = shop.add(each_db, "One.", draft=True)
    items = [(shop.completion, draft)]
    with pytest.raises(NotApprovedError), each_db.write() as session:
        jobs.submit(session, judge_id=shop.judge, items=items)
    for fields in (
        {},
        {"rubric": "r"},
        {"rubric": "r@1"},
        {"items": (NewItem(completion_id=shop.completion),)},
        {"items": (NewItem(completion_id=shop.completion, rubric="r"),)},
    ):
        with pytest.raises(NotApprovedError, match="r@1") as caught:
            Jobs(each_db).submit(NewJob(judge="j", **fields))
        assert "rubrics review r@1 submit" in caught.value.hint
    with each_db.write() as session:
        for given in ({}, {"items": (NewItem(completion_id=shop.completion),)}):
            assert select(session, NewJob(judge="j", allow_drafts=True, **given))[0] == items
    job = Jobs(each_db).submit(judge="j", allow_drafts=True).id
    with each_db.write() as session:
        assert jobs.submit(session, judge_id=shop.judge, items=items).id == job, "the job exists: nothing new is used"
    act(each_db, draft, "submit", "approve")
    assert Jobs(each_db).submit(judge="j", key="new").is_new


def test_rescore_takes_newer_approved_versions_only(each_db: Database) -> None:
    shop = Shop(each_db)
    shop.add(each_db, "One.")
    shop.add(each_db, "Two.", draft=True)
    job = Jobs(each_db).submit(judge="j", rubric="r@2", allow_drafts=True).id
    with each_db.write() as session:
        assert jobs.rescore(session, job).id == job, "the older approved version is no newer one"
    shop.add(each_db, "Three.", draft=True)
    with pytest.raises(NotApprovedError), each_db.write() as session:
        jobs.rescore(session, job, rubric=["r@3"])
    act(each_db, "r@3", "submit", "approve")
    with each_db.write() as session:
        new = jobs.rescore(session, job).id
        assert new != job
        assert {one.rubric for one in jobs.rewards(session, new)} == {"r@3"}


def run_test(db: Database, ref: str, passed: bool | None, *, judge: str = "j") -> None:
    found = VerdictTest(criterion="a", expected=NumberRange(min=1, max=1), passed=passed)
    with db.write() as session:
        row = rubrics.get(session, ref)
        example = ExampleTest(example="e", verdicts=(found,))
        test = RubricTest(judge=judge, judge_digest="0" * 64, rubric_digest=row.digest, examples=(example,))
        rubrics.add_test(session, row.id, test, by="ann")


def test_review_approves_a_version_with_examples_only_if_its_newest_measured_test_passed(db: Database) -> None:
    cases: list[tuple[list[bool | None], bool]] = [
        ([], True),
        ([True], False),
        ([False], True),
        ([None], True),
        ([False, True], False),
        ([True, False], True),
        ([True, None], False),
        ([False, None], True),
    ]
    for number, (results, refused) in enumerate(cases, start=1):
        name, ref = f"r{number}", f"r{number}@1"
        with db.write() as session:
            content = rubric(f"{number}.").model_copy(update={"examples": (EXAMPLE,)})
            add_version(session, content, Edit(by="ann", draft=True), name=name)
        for passed in results:
            run_test(db, ref, passed)
        assert act(db, ref, "submit") == "in_review"
        if not refused:
            assert act(db, ref, "approve") == "approved", results
            continue
        with pytest.raises(ConflictError) as error:
            act(db, ref, "approve")
        assert error.value.path == "tests" and f"rubricsvc rubrics test {ref} --judge" in error.value.hint
        assert Rubrics(db).get(ref).state == "in_review"


EXAMPLE = RubricExample(key="e", text="a", verdicts={"a": NumberRange(min=1, max=1)})


def test_add_version_approves_only_what_passes_the_gate(db: Database) -> None:
    """However it comes, alone, with a parent or in a file, what does not pass is a draft that says why."""
    content, why = rubric("Says it.").model_copy(update={"examples": (EXAMPLE,)}), "rubricsvc rubrics test"
    for policy in ("generated", "none"):
        for name, parent in (("new", None), ("edited", add(db, "One.", name="base").row.id)):
            with db.write() as session:
                edit = Edit("ann", parent, policy=policy)  # type: ignore[arg-type]
                own = content.model_copy(update={"formula": "mean" if parent else "weighted_mean"})
                row = add_version(session, own, edit, name=f"{name}-{policy}").row
                assert row.state == "draft" and why in rubrics.notes(session, [row.id])[row.id]
    own = content.model_copy(update={"min_coverage": 0.5})
    data = [plain(Record(None, one, name=f"file-{n}")) for n, one in enumerate((own, rubric("Names {item.doctor}.")))]
    file = InputFile("f.jsonl", stream=BytesIO("\n".join(map(json.dumps, data)).encode()))
    done = Imports(db, Edit("ann")).create(file)
    assert done.not_approved == {"file-0@1": "draft"} and why in done.draft_notes["file-0@1"]
    act(db, "file-0@1", "submit")
    with pytest.raises(ConflictError):
        act(db, "file-0@1", "approve")


def test_add_version_without_the_examples_of_the_one_before_is_a_draft_that_says_so(db: Database) -> None:
    for policy in ("generated", "none", "all"):
        for by_parent in (False, True):
            name = f"{policy}-{by_parent}"
            with db.write() as session:
                content = rubric(f"{name}.").model_copy(update={"examples": (EXAMPLE,)})
                first = add_version(session, content, Edit(), name=name).row.id
            added = add(db, f"{name} changed.", name=name, policy=policy, parent=first if by_parent else None)
            with db.read() as session:
                note = rubrics.notes(session, [added.row.id])[added.row.id]
            assert added.row.state == "draft" and f"no examples, and {name}@1 has" in note
    bare = add(db, "Bare.", name="bare").row.id
    with db.write() as session:
        content = rubric("Tested.").model_copy(update={"examples": (EXAMPLE,)})
        rubrics.add(session, content, name="bare")
    assert add(db, "Around.", name="bare", parent=bare, force=True).row.state == "draft"


def test_four_eyes_lets_somebody_else_than_the_author_approve(db: Database) -> None:
    add(db, "One.", policy="four_eyes")
    review = {by: Rubrics(db, Edit(by, policy="four_eyes")) for by in ("ann", " Ann", "bob", None)}
    assert review["ann"].review("r@1", action="submit").state == "in_review"
    for by in ("ann", " Ann", None):
        with pytest.raises(ConflictError) as error:
            review[by].review("r@1", action="approve")
        assert error.value.path == "by"
    assert review["bob"].review("r@1", action="approve").state == "approved"
    again = review["ann"].review("r@1", action="approve")
    assert again.note is not None and "approved already, by bob" in again.note


OF_MODEL = "States that the vaccines must not be used before the manufacturer has decided."
LEVELS = {"kind": "ordinal", "levels": [{"label": "Q2", "value": 0}, {"label": "Q3", "value": 1, "text": OF_MODEL}]}
OWN = {"turns": [{"role": "user", "content": f"Is it so? {OF_MODEL}"}], "labels": ["y", "n"], "passing": ["y"]}
SHOWN = [("reference", OF_MODEL), ("passages", [OF_MODEL]), ("scale", LEVELS), ("custom_prompt", OWN)]
CHANGED = "Says that these vaccines must not be used before the manufacturer has answered."


def test_add_version_keeps_the_text_of_a_model_a_draft(each_db: Database) -> None:
    """Whatever name, prompt, parent or rubric it comes under, changed a little, and after its draft was deleted."""
    shop, own = Shop(each_db), "Names the town hall as the place to ask."
    add(each_db, own, name="approved")

    def state(name: str, *texts: str, prompt_id: int | None = None, more: Any = (), **edit: Any) -> str:
        content = Rubric(criteria=tuple(Criterion(key=f"c{n}", text=one, **dict(more)) for n, one in enumerate(texts)))
        with each_db.write() as session:
            row = add_version(session, content, Edit("ann", **edit), name=name, prompt_id=prompt_id).row
            assert row.state == "approved" or rubrics.notes(session, [row.id])[row.id].startswith("added as a draft: ")
            return row.state

    def write(name: str, text: str, prompt_id: int | None) -> None:
        with each_db.write() as session:
            add_version(session, rubric(text), Edit(), name=name, prompt_id=prompt_id, origin="generated")

    for deleted in (False, True):
        write("written", OF_MODEL, shop.prompt)
        if deleted:
            Rubrics(each_db).delete("written")
        cases: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
            ("same", (OF_MODEL,), {}),
            ("capitals", (OF_MODEL.upper().rstrip("."),), {"prompt_id": shop.prompt}),
            ("changed", (CHANGED,), {}),
            ("one-of-two", (own, CHANGED), {}),
            ("merged", (f"{own} {OF_MODEL}",), {}),
            ("approved", (own, CHANGED), {"parent": "approved@1"}),
            *(("shown", ("Q1",), {"more": [one]}) for one in SHOWN),
        ]
        for name, texts, options in cases:
            assert state(name, *texts, **options) == "draft", (name, deleted)
            Rubrics(each_db).delete(name if name != "approved" else "approved@2")
    assert state("mine", own, "Is at most three sentences long.") == "approved"

    write("another", OF_MODEL, shop.prompt)
    assert state("another", "Written anew.") == "draft", "its name's newest version is a draft"
    assert (state("near", CHANGED), act(each_db, "near@1", "submit", "approve")) == ("draft", "approved")
    assert (state("near-too", own, CHANGED), state("exact", own, OF_MODEL)) == ("approved", "draft")
    act(each_db, "another@1", "submit", "approve")
    assert state("read", OF_MODEL) == "approved", "a person has approved it"

    write("variant", f"{own} Or the mayor.", None)
    assert state("approved", own, "Is polite.") == "approved", "its name has the text approved"
    assert state("elsewhere", own) == "draft"


def test_text_of_a_run_that_approves_its_versions_is_not_read(db: Database) -> None:
    evolutions, base = Evolutions(db, Edit("ann")), rubric("Names the town hall.")
    (begun,) = evolutions.begin_step(run="x", step=0, approve="auto", tasks=((Prompt.of("Why?"), base, "", ""),)).data
    entry = BufferedCriterion(criterion=Criterion(key="n", text=CHANGED), state="retired")
    done = {"round": EvolutionRound(decided=True), "entries": (entry,), "rubric": rubric(OF_MODEL), "approve": "auto"}
    evolutions.record(begun.id, step=0, **done)
    assert [row.state for row in Rubrics(db).page().data] == ["approved", "approved"]
    names = {"a": OF_MODEL, "b": CHANGED, "c": "Names the town hall"}
    states = [add(db, text, name=name).row.state for name, text in names.items()]
    assert states == ["draft", "draft", "approved"]


def test_add_version_refuses_a_name_of_another_prompt(each_db: Database) -> None:
    """Unless a parent says that it is meant; what has no prompt, and content that is stored, has no conflict."""
    ids = []
    with each_db.write() as session:
        ids = [completions.add_prompt(session, Prompt.of(text)).id for text in ("Why is it warm?", "Who decides?")]

    def of_prompt(text: str, prompt_id: int | None, parent: str | None = None) -> str:
        with each_db.write() as session:
            return add_version(session, rubric(text), Edit("ann", parent), name="r", prompt_id=prompt_id).row.ref

    assert [of_prompt("One.", ids[0]), of_prompt("One.", ids[0]), of_prompt("Two.", ids[0])] == ["r@1", "r@1", "r@2"]
    for text in ("One.", "Three."):
        with pytest.raises(ConflictError) as error:
            of_prompt(text, ids[1])
        assert error.value.path == "name" and "--parent r@" in error.value.hint
        assert "Why is it warm?" in error.value.message and "Who decides?" in error.value.message
    assert [of_prompt("Three.", ids[1], "r@2"), of_prompt("Shared.", None)] == ["r@3", "r@4"]
    with pytest.raises(ConflictError):
        of_prompt("Four.", ids[0])  # r@3 is for another prompt, whatever has none since
