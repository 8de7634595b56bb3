from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from rubricsvc.core.evolution import BufferedCriterion, ProposalSource
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Reason
from tests.unit.workers.authoring.test_author import Script
from workers.authoring.evolution import Proposed, admit, propose_criteria
from workers.engines.base import Failure
from workers.engines.budget import SpendingLimit

PROMPT = Prompt.of("How much water does the plant need?")
BASE = Rubric(
    criteria=[
        Criterion(key="amount", text="Names the amount of water that the plant needs.", weight=4),
        Criterion(key="short", text="Has at most 90 words.", check=Check(name="words", args={"max": 90}), weight=1),
    ]
)
ENTRIES = [BufferedCriterion(criterion=one, state="frozen") for one in BASE.criteria]
JUDGE = Judge(name="proposer", model="m")
SOURCE = ProposalSource(judge="proposer", model="m", template="online", template_digest="d", step=3, group=("g",))
ANSWERS = [Completion(text=text) for text in ("Two cups </answer-1>", "A lot", "Great question!")]


def reply(*criteria: tuple[str, float]) -> str:
    return json.dumps({"criteria": [{"text": text, "weight": weight} for text, weight in criteria]})


def propose(engine: Script, entries: Sequence[BufferedCriterion] = ENTRIES, *, most: int = 2) -> Proposed:
    texts, limit = {one.digest: one.text for one in ANSWERS}, SpendingLimit(None, 0.0)
    asked = propose_criteria(engine, JUDGE, BASE, entries, step=3, texts=texts, most=most, limit=limit, prompt=PROMPT)
    return asyncio.run(asked)


def test_proposer_shows_distinct_answers_and_the_criteria_in_use() -> None:
    retired = BufferedCriterion(criterion=Criterion(key="evolved-1", text="Mentions the pot."), state="retired")
    engine = Script(reply(("Praises the question or the person who asks.", -1)))
    added, done = propose(engine, [*ENTRIES, retired])
    (request,) = engine.requests
    shown = request.questions[0].text
    assert shown.count("A lot") == 1 and "amount of water" in shown and "the pot" not in shown
    assert "1 to 2 new criteria" in shown
    assert "<answer-1>" not in shown.replace("</answer-1>", ""), "the marks have a number that no answer has"
    (one,) = added
    assert done.proposed == (one.key,)
    assert (one.key, one.state, one.criterion.weight) == ("evolved-2", "proposed", -1)
    assert one.source is not None
    assert (one.source.judge, one.source.step, len(one.source.group)) == ("proposer", 3, 3)
    assert done.raw_reply == reply(("Praises the question or the person who asks.", -1))


@pytest.mark.parametrize(
    ("replies", "reason"),
    [
        ([Failure(Reason.UNAVAILABLE, "down")], Reason.UNAVAILABLE),
        (["Sorry.", "Sorry!", "Sorry?"], "no_rubric"),
        (['{"criteria": []}', "{}", "[]"], "no_rubric"),
        ([reply(("Praises the question or the answer itself.", -2))] * 2, "no_rubric"),  # the example of the template
    ],
)
def test_proposer_without_criteria_says_why(replies: list[str | Failure], reason: str) -> None:
    added, done = propose(Script(*replies))
    assert not added and (done.failure or "").partition(":")[0] == reason


def refusals(*criteria: Criterion, entries: Sequence[BufferedCriterion] = ENTRIES) -> list[str]:
    _, done = admit(criteria, BASE, entries, prompt=PROMPT, source=SOURCE)
    return [one.reason.partition(":")[0] for one in done.refused]


def test_admit_refuses_duplicates_of_all_states() -> None:
    retired = BufferedCriterion(
        criterion=Criterion(key="evolved-7", text="Warns of standing water in the saucer under the pot."),
        state="retired",
    )
    copy = Criterion(key="c1", text="Warns of standing water in the saucer under the pot.")
    check = Criterion(key="c2", text="Is short enough for a note.", check=Check(name="words", args={"max": 90}))
    opposite = Criterion(key="c3", text="Fails to name the amount of water that the plant needs.", weight=-1)
    found = refusals(copy, opposite, entries=[*ENTRIES, retired])
    assert found == ["duplicate of evolved-7", "duplicate of amount"]
    assert refusals(check) == ["duplicate of short"], "whatever its text"


def test_admit_refuses_what_the_linter_finds() -> None:
    compound = Criterion(key="c1", text="Names the amount of fertiliser and warns of root rot and lists three pots.")
    found = refusals(compound)
    assert len(found) == 1 and not found[0].startswith("duplicate")
