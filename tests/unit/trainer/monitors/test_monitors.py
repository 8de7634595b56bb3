"""The monitors of a step, by hand-made completions, and what a monitor that raises does to the others."""

from collections.abc import Sequence

import pytest
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

from rubricsvc.core.prompt import Completion, Document, Message, Prompt, ToolCall
from rubricsvc.core.reward import Reward
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Reason, Verdict
from trainer.data.tasks import Task
from trainer.metrics import monitor_metrics, observed_of
from trainer.monitors.measures import (
    MONITORS,
    WITH_CRITERIA,
    Observed,
    by_criterion,
    common_phrase,
    criteria,
    measures,
    self_bleu,
    texts,
    words,
)
from trainer.rewards import ScoredRollout

RUBRIC = Rubric(
    criteria=[Criterion(key="a", text="Is good.", weight=3), Criterion(key="b", text="Is rude.", weight=-1)]
)


def observed(
    text: str = "", reward: float | None = 0.5, group: int = 0, verdicts: Sequence[Verdict] = (), prompt: str = ""
) -> Observed:
    return Observed(prompt or f"prompt {group}", group, text, reward, verdicts, RUBRIC)


MEASURED: list[tuple[str, float, str, str]] = [
    ("length", 3.0, "", "Two, or three."),
    ("length", 2.0, "", "漢字"),
    ("shortness", -2.0, "", "not long"),
    ("repetition", 0.0, "", "a b c d e f"),
    ("repetition", 0.0, "", ""),
    ("repetition", 5 / 9, "", "a b c d " * 3),
    ("other_script", 0.0, "Say it.", "Так: 42!"[:0]),
    ("other_script", 0.5, "Say it.", "ab да"),
    ("other_script", 0.0, "日本", "ひらがな カタカナ"),
    ("other_script", 0.0, "2 + 2?", "да"),
    ("other_script", 0.0, "Say it.", "\uff26\uff55\uff4c\uff4c width"),
    ("other_script", 0.0, "日本", "\uff8a\uff9d\uff76\uff78"),
    ("other_script", 0.5, "\uff33\uff41\uff59", "ab да"),
    ("refusals", 1.0, "", "I’m unable to assist with that."),
    ("refusals", 1.0, "", "As an AI language model, I have no body."),
    ("refusals", 0.0, "", "I'm sorry for your loss. Cannot is a verb."),
    ("refusals", 0.0, "", "x" * 300 + " I cannot help"),
    ("stock_phrases", 1.0, "", "It is 4. I hope this helps!"),
    ("stock_phrases", 1.0, "", "Certainly! It is 4."),
    ("stock_phrases", 0.0, "", "It is certainly 4."),
    ("self_praise", 1.0, "", "This answer is comprehensive."),
    ("self_praise", 1.0, "", "It deserves full marks."),
    ("self_praise", 0.0, "", "The proof is complete. This answer"),
    ("self_praise", 0.0, "Which criteria apply? List all criteria.", "All criteria: cost."),
    ("lists", 1.0, "", "Buy:\n\n- milk\n- tea"),
    ("lists", 0.0, "", "```\n- milk\n```"),
    ("headings", 1.0, "", "# Tea\n\nHot."),
    ("headings", 0.0, "", "Issue #1"),
    ("bold", 1.0, "", "It is **hot**."),
    ("bold", 0.0, "", "2 ** 3 ** 4"),
    ("emoji", 1.0, "", "Great 🎉"),
    ("emoji", 0.0, "", "naïve → 漢"),
]


def test_measures_of_a_completion() -> None:
    found = [measures(prompt, text)[name] for name, _, prompt, text in MEASURED]
    assert found == pytest.approx([value for _, value, _, _ in MEASURED])


TEXTS = ["the cat sat on the mat", "the cat sat on the very red mat", "a dog ate the cat on a mat", "the the the the"]


def test_self_bleu_equals_that_of_nltk() -> None:
    tokens = [words(text) for text in TEXTS]
    smoothed = SmoothingFunction().method2
    by_nltk = [
        sentence_bleu([*tokens[:at], *tokens[at + 1 :]], one, smoothing_function=smoothed)
        for at, one in enumerate(tokens)
    ]
    assert self_bleu(tokens) == pytest.approx(sum(by_nltk) / len(by_nltk), abs=1e-12)


def test_common_phrase_is_of_several_prompts_and_not_theirs() -> None:
    praise = "I have met every wish."
    batch = [
        observed(f"one {praise}"), observed("two"), observed(f"three {praise}", group=1), observed("four", group=1),
    ]  # fmt: skip
    assert common_phrase(batch)["common_phrase"] == 0.5 and common_phrase(batch[:2])["common_phrase"] is None
    asked = [observed(one.text, group=one.group, prompt=f"{one.prompt} {praise}") for one in batch]
    assert common_phrase(asked)["common_phrase"] == 0.0


def verdicts(a: float, b: float | None = 0.0) -> tuple[Verdict, ...]:
    return Verdict.scored("a", a), Verdict.scored("b", b) if b is not None else Verdict.abstained("b")


def test_criteria_monitors() -> None:
    batch = [observed(verdicts=verdicts(1.0)), observed(verdicts=verdicts(0.2))]
    found = criteria(batch)
    assert (found["saturated_criteria"], found["largest_reward_share"]) == (0.5, 1.0)
    assert by_criterion(batch) == {"pass_rate/a": 0.5, "pass_rate/b": 0.0, "reward_share/a": 1.0, "reward_share/b": 0.0}
    rude = [observed(verdicts=verdicts(1.0, 1.0))]
    assert by_criterion(rude)["reward_share/b"] == pytest.approx(0.25)
    failed = [observed(verdicts=(Verdict.scored("a", 1.0), Verdict.failed("b", Reason.TIMEOUT)))]
    found = criteria([*batch, observed(verdicts=verdicts(1.0, None)), *failed])
    assert (found["abstained_verdicts"], found["failed_verdicts"]) == (1 / 8, 1 / 8)


def opened(id_: str) -> tuple[Message, ...]:
    call = ToolCall(name="open", arguments=f'{{"id": "{id_}"}}', id="1")
    return (
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="A page.", tool_call_id="1"),
    )


def share_unresolved(documents: tuple[Document, ...], *completions: Completion) -> float | None:
    task = Task(Prompt.of("Why?", documents=documents), RUBRIC)
    scored = [ScoredRollout(Reward(0.5, 1.0, "weighted_mean")) for _ in completions]
    batch = observed_of([task] * len(completions), completions, scored)
    return texts(batch)["unresolved_citations"]


def test_unresolved_citations_counts_what_was_neither_given_nor_opened() -> None:
    page = (Document(id="1", text="A page."),)
    plain = [Completion(text=text) for text in ("It is [1].", "It is [2].", "It is [1, 3].", "It is.")]
    assert share_unresolved(page, *plain) == 0.5 and share_unresolved((), *plain) is None
    episodes = [Completion(text="It is [tea].", messages=opened(id_)) for id_ in ("tea", "rum")]
    assert share_unresolved((), *episodes, *plain) == 0.5


def test_monitor_that_raises_is_logged_and_the_others_are_recorded(logged: list[str]) -> None:
    def broken(batch: Sequence[Observed]) -> dict[str, float | None]:
        raise ZeroDivisionError("no words")

    metrics = monitor_metrics([observed("a b")], {"broken": broken, **MONITORS})
    assert metrics["monitors/errors"] == 1 and metrics["monitors/emoji"] == 0.0
    assert "broken" in logged[0] and "ZeroDivisionError" in logged[0]


def test_monitors_measure_any_text_without_an_error() -> None:
    for text in ("", "\ud7ff\x00", "# " * 50, "- " * 500, "*" * 999, "a" * 10_000, "\n" * 99):
        batch = [observed(text, None), observed(text, 1.0, 1, verdicts(1.0))]
        assert monitor_metrics(batch, WITH_CRITERIA)["monitors/errors"] == 0, text
