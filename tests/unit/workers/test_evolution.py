import asyncio
import json
from collections.abc import Sequence

import numpy as np
import pytest

from rubricsvc.core.evolution import BufferedCriterion
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Reason
from rubricsvc.stats.paired import differences, ordered
from tests.unit.workers.authoring.test_author import Script
from workers.engines.base import Failure
from workers.engines.budget import SpendingLimit
from workers.evolution import Proposed, admit, agreement, evolved_rubric, held_out_result, measured, propose_criteria

PROMPT = Prompt.of("How much water does the plant need?")
BASE = Rubric(
    criteria=[
        Criterion(key="amount", text="Names the amount of water that the plant needs.", weight=4),
        Criterion(key="short", text="Has at most 90 words.", check=Check(name="words", args={"max": 90}), weight=1),
    ]
)
ENTRIES = [BufferedCriterion(criterion=one, state="frozen") for one in BASE.criteria]
JUDGE = Judge(name="proposer", model="m")
ANSWERS = [Completion(text=text) for text in ("Two cups </answer-1>", "A lot", "Great question!")]


def reply(*criteria: tuple[str, float]) -> str:
    return json.dumps({"criteria": [{"text": text, "weight": weight} for text, weight in criteria]})


def propose(engine: Script, entries: Sequence[BufferedCriterion] = ENTRIES, *, most: int = 2) -> Proposed:
    texts, limit = {one.digest: one.text for one in ANSWERS}, SpendingLimit(None, 0.0)
    asked = propose_criteria(engine, JUDGE, BASE, entries, texts=texts, most=most, limit=limit, prompt=PROMPT)
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
    assert (done.proposer, done.model, len(done.shown)) == ("proposer", "m", 3)
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
    _, done = admit(criteria, BASE, entries, prompt=PROMPT)
    return [reason.partition(":")[0] for reason in done.refused.values()]


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


def entry(key: str, state: str = "proposed", weight: float = 1.0, **fields: object) -> BufferedCriterion:
    criterion = Criterion(key=key, text=f"Says {key}.", weight=weight)
    return BufferedCriterion.model_validate({"criterion": criterion, "state": state, **fields})


def test_measured_takes_the_deviation_within_the_group() -> None:
    after = measured(entry("a"), 7, [1.0, 0.0, None, 1.0, 0.0])
    assert after is not None
    assert (after.separation, after.mean, after.trials, after.tested_step) == (0.5, 0.5, 1, 7)
    assert after.pairs == 0


def test_measured_concludes_nothing_from_too_few_verdicts() -> None:
    few: list[list[float | None]] = [[], [1.0], [1.0, None, None], [None] * 4]
    assert [measured(entry("a"), 0, values) for values in few] == [None] * 4


def test_measured_counts_pairs_that_agree_with_the_trusted_judge() -> None:
    after = measured(entry("a"), 0, [0.1, 0.2, 0.9, 0.5], [0.0, 1.0, 1.0, None])
    assert after is not None and (after.agreeing, after.pairs) == (2, 2)
    again = measured(after, 1, [0.9, 0.1], [0.0, 1.0])
    assert again is not None and (again.agreeing, again.pairs, again.trials) == (2, 3, 2)


def test_agreement_of_rewards_counts_ties_half_and_needs_most_pairs() -> None:
    pairs = np.array([(0, 1), (3, 2), (4, 5)])
    rewards = np.array([1, 0, 0.5, 0.5, 0, 1])
    assert ordered(differences(rewards, pairs)).tolist() == [1.0, 0.5, 0.0]
    assert agreement(rewards, pairs) == 0.5
    assert agreement(np.array([1, np.nan, 0.5, 0.5, 0, 1]), pairs) is None


def test_held_out_result_leaves_out_pairs_without_a_reward() -> None:
    pairs = np.array([(n, n + 1) for n in range(0, 24, 2)])
    best = np.tile([1.0, 0.0], 12)
    start = np.where(np.arange(24) < 12, best, 0.5)
    best[-1] = np.nan
    found = held_out_result(pairs, np.arange(24) // 2, start, best)
    assert (found.prompts, found.units, found.left_out) == (12, 11, 1)
    assert (found.start, found.best, found.gain) == ((6 + 2.5) / 11, 1.0, True)


AUTHORED = Rubric(
    criteria=[
        Criterion(key="dose", text="Names the dose.", weight=6),
        Criterion(key="rude", text="Is rude.", weight=-4),
    ]
)


def test_evolved_rubric_adds_active_criteria_with_a_share_of_the_authored_weights() -> None:
    entries = [
        *(BufferedCriterion(criterion=one, state="frozen") for one in AUTHORED.criteria),
        entry("evolved-1", "retired", 3.0),
        entry("evolved-2", "active", -50.0),
        entry("evolved-3", "active", 0.1),
        entry("evolved-4"),
    ]
    rubric = evolved_rubric(AUTHORED, entries, 0.1)
    expected = [("dose", 6.0), ("rude", -4.0), ("evolved-2", -1.0), ("evolved-3", 1.0)]
    assert [(one.key, one.weight) for one in rubric.criteria] == expected
    assert rubric.criteria[:2] == AUTHORED.criteria
    assert evolved_rubric(AUTHORED, entries[:3], 0.1).digest == AUTHORED.digest
