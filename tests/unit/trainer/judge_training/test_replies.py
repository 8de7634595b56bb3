"""The replies that a written judge learns, and the targets that are left out."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial

import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Level, Numeric, Ordinal, Scale
from trainer.judge_training.examples import Example, Target, merge, rubric_of
from trainer.judge_training.replies import learnable, reply_of
from workers.engines.base import Reply
from workers.judges import plan, written
from workers.judges.calls import parse_reply
from workers.judges.template import load

JUDGE = Judge(name="w", engine="transformers_local", model="m", mode="written")
LEVELS = Ordinal(levels=(Level(label="poor", value=0), Level(label="fair", value=0.5), Level(label="good", value=1)))
TEXT = 'Mark the doses, and ask "Anna".'


def target(value: float, scale: Scale | None = None, rationale: str = "It says so.", *quotes: str) -> Target:
    criterion = Criterion(key="c", text="Says whom to ask.", **({"scale": scale} if scale else {}))
    return Target(criterion, value, rationale=rationale, evidence=quotes)


def example(*targets: Target) -> Example:
    return Example(Prompt.of("What now?"), Completion(text=TEXT), targets, "made")


@pytest.mark.parametrize(
    ("scale", "value", "verdict", "parsed"),
    [
        (None, 0.9, "met", 1.0),
        (None, 0.2, "not_met", 0.0),
        (LEVELS, 0.6, "fair", 0.5),
        (Numeric(low=1, high=5), 0.75, 4, 0.75),
        (Numeric(low=0, high=1), 0.25, 0.25, 0.25),
    ],
)
def test_reply_is_what_workers_parse(scale: Scale | None, value: float, verdict: object, parsed: float) -> None:
    one = example(target(value, scale, "Sí: it\nsays so.", 'and ask "Anna"'))
    (call,) = plan(JUDGE, rubric_of(one)).calls
    text = reply_of(call, one.targets)
    assert json.loads(text)["verdict"] == verdict
    assert list(json.loads(text)) == ["criterion", "rationale", "evidence", "verdict"]
    reply = parse_reply(Reply(text), None, partial(written.parse, call))
    shown = load(JUDGE).shared(one.prompt, one.completion)
    (found,) = written.verdicts(call, reply, JUDGE.model_copy(update={"require_evidence": True}), shown)
    assert (found.value, found.rationale) == (parsed, "Sí: it\nsays so.")
    assert [quote.start for quote in found.evidence] == [TEXT.index("and")]


def test_reply_answers_all_criteria_of_a_call() -> None:
    one = example(target(1.0), target(0.0), target(1.0))
    judge = JUDGE.model_copy(update={"criteria_per_call": 2})
    first, second = plan(judge, rubric_of(one)).calls
    both = json.loads(reply_of(first, one.targets[:2]))
    assert [(entry["criterion"], entry["verdict"]) for entry in both["verdicts"]] == [("C1", "met"), ("C2", "not_met")]
    assert json.loads(reply_of(second, one.targets[2:]))["criterion"] == "C1"


def test_learnable_leaves_out_what_a_reply_cannot_say() -> None:
    left_out = Counter[str]()
    kept = target(1.0, None, "It says so.", "Mark the doses")
    copied = target(1.0, None, "your reasons in one or two sentences")
    targets = (
        kept,
        target(1.0, None, " "),
        target(0.5),
        target(1.0, None, "So.", "Throw them away"),
        copied,
    )
    found = learnable(JUDGE, example(*targets), left_out)
    assert found is not None and found.targets == (kept,)
    assert left_out == {"no_rationale": 1, "undecided": 1, "quote_not_found": 1, "template_copied": 1}
    assert learnable(JUDGE, example(target(0.5)), left_out) is None


def test_learnable_needs_the_quotes_that_the_judge_must_give() -> None:
    judge, left_out = JUDGE.model_copy(update={"require_evidence": True}), Counter[str]()
    found = learnable(judge, example(target(1.0), target(0.0)), left_out)
    assert found is not None and [one.value for one in found.targets] == [0.0]
    assert left_out == {"no_evidence": 1}


def test_merge_keeps_the_rationale_nearest_to_the_mean() -> None:
    yes, no = target(1.0, None, "Yes."), target(0.0, None, "No.")
    (merged,) = merge([example(no), example(yes), example(target(1.0, None, ""))]).examples
    assert (round(merged.targets[0].value, 3), merged.targets[0].rationale) == (0.667, "Yes.")
