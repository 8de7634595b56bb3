"""Readouts of answers; no text ends its own fence, and quotes are found where they stand."""

import math
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core import untrusted
from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Binary, Criterion, Level, Numeric, Ordinal, Scale
from rubricsvc.core.untrusted import clean
from rubricsvc.core.verdict import Evidence, Reason, Usage, Verdict
from rubricsvc.errors import InvalidError
from workers.engines.base import Reply
from workers.judges import readout
from workers.judges.calls import AskedCriterion, JudgeCall, ParsedReply, QuoteIndex, SharedPrompt, fence, fence_in, load

JUDGE = Judge(name="j", model="m", min_answer_mass=0.2)
ORDINAL = Ordinal(
    levels=(
        Level(label="poor", value=0.0, text="wrong"),
        Level(label="fair", value=0.4),
        Level(label="poorly sourced, but right", value=1.0),
    )
)


def call(scale: Scale | None = None, text: str = "Says why.") -> JudgeCall:
    criterion = Criterion(key="why", text=text, scale=scale or Binary())
    return readout.build_call([AskedCriterion(criterion, "C1")], load(JUDGE))


def verdict(mass: dict[str, float] | None, scale: Scale | None = None, judge: Judge = JUDGE, note: str = "") -> Verdict:
    reply = Reply(text="x", label_mass=mass, usage=Usage(prompt=7), latency_s=0.5)
    return read(call(scale), reply, judge, note)


def read(made: JudgeCall, reply: Reply, judge: Judge = JUDGE, note: str = "") -> Verdict:
    (found,) = readout.verdicts(made, ParsedReply(reply), judge, SharedPrompt("", note, "", ""))
    return found


def test_build_call_of_a_binary_criterion_asks_yes_or_no() -> None:
    question = call().question
    assert question.labels == ("Yes", "No")
    assert "Criterion: Says why." in question.text
    assert question.text.endswith("Yes or No.")


def test_verdicts_divide_by_the_labels_mass() -> None:
    found = verdict({"Yes": 0.6, "No": 0.2})
    assert found.value == pytest.approx(0.75)
    assert found.probability == found.value
    assert (found.criterion, found.latency_s) == ("why", 0.5)
    assert found.usage == Usage(prompt=7)


def test_verdicts_apply_the_threshold_to_the_value() -> None:
    for yes, value in [(0.7, 1.0), (0.69, 0.0)]:
        found = verdict({"Yes": yes, "No": 1 - yes}, judge=JUDGE.model_copy(update={"threshold": 0.7}))
        assert (found.value, found.probability) == (value, pytest.approx(yes))


def test_verdicts_name_the_distribution_over_levels() -> None:
    mass = {"A": 0.2, "B": 0.2, "C": 0.4}
    found = verdict(mass, ORDINAL)
    assert found.levels == pytest.approx({"poor": 0.25, "fair": 0.25, "poorly sourced, but right": 0.5})
    assert Verdict(**found.model_dump(mode="json", exclude_defaults=True)) == found, "as the database keeps it"
    assert verdict({"4": 0.3, "5": 0.1}, Numeric(low=1, high=5)).levels == pytest.approx(
        {"1": 0.0, "2": 0.0, "3": 0.0, "4": 0.75, "5": 0.25}
    )
    assert verdict({"F": 1.0}, Numeric(low=-1, high=1)).levels == {f"{n / 5:g}": float(n == 0) for n in range(-5, 6)}
    assert verdict({"Yes": 0.6, "No": 0.4}).levels is None, "of two levels the probability says all"


def test_build_call_uses_eleven_letters_for_other_scales() -> None:
    for scale in [Numeric(), Numeric(low=-1, high=1), Numeric(low=0.5, high=9), Numeric(high=1e308)]:
        question = call(scale).question
        assert question.labels == tuple("ABCDEFGHJKL")
        assert f"A: {scale.low:g}\n" in question.text
        assert f"L: {scale.high:g}\n" in question.text
        assert verdict({"L": 1.0}, scale).value == 1.0
        assert verdict({"F": 1.0}, scale).value == pytest.approx(0.5)


def test_build_call_rejects_more_levels_than_letters() -> None:
    levels = tuple(Level(label=str(n), value=n / 30) for n in range(30))
    with pytest.raises(InvalidError, match="30"):
        call(Ordinal(levels=levels))


def test_verdicts_fail_without_an_answer() -> None:
    for mass, reason in [
        (None, Reason.NO_LOGPROBS),
        ({}, Reason.NO_ANSWER),
        ({"Yes": 0.06, "No": 0.03}, Reason.NO_ANSWER),
        ({"Maybe": 1.0}, Reason.NO_ANSWER),
        ({"Yes": math.nan, "No": 0.5}, Reason.OUT_OF_RANGE),
        ({"Yes": math.inf}, Reason.OUT_OF_RANGE),
        ({"Yes": 1e308, "No": 1e308}, Reason.OUT_OF_RANGE),
        ({"Yes": 1.2}, Reason.OUT_OF_RANGE),
        ({"Yes": 0.9999, "No": 0.9999}, Reason.OUT_OF_RANGE),
        ({"Yes": -0.5, "No": 1.0}, Reason.OUT_OF_RANGE),
    ]:
        found = verdict(mass)
        assert (found.outcome, found.reason, found.value, found.raw) == ("failed", reason, None, "x")


def test_verdicts_fail_without_any_mass() -> None:
    found = verdict({"Yes": 0.0, "No": 0.0}, judge=JUDGE.model_copy(update={"min_answer_mass": 0.0}))
    assert found.reason == Reason.NO_ANSWER


def test_verdicts_fail_by_default_below_half_of_the_mass() -> None:
    outcomes = [verdict({"Yes": mass, "No": 0.01}, judge=Judge(name="d", model="m")).reason for mass in (0.48, 0.5)]
    assert outcomes == [Reason.NO_ANSWER, None]


@given(
    st.dictionaries(st.sampled_from(["Yes", "No", "A", "B", "C", "3"]), st.floats(0, 0.5) | st.floats()),
    st.sampled_from([Binary(), ORDINAL, Numeric(low=0, high=9)]),
)
def test_verdicts_are_the_expected_value_or_a_failure(mass: dict[str, float], scale: Scale) -> None:
    found = verdict(mass, scale)
    weights = [(mass.get(label, 0.0), value) for label, value, *_ in readout.options(scale)]
    total = sum(weight for weight, _ in weights)
    if all(0 <= weight <= 1 for weight, _ in weights) and JUDGE.min_answer_mass <= total <= 1:
        assert found.value == pytest.approx(sum(weight * value for weight, value in weights) / total)
        assert (found.value, found.answer_mass) == (found.probability, pytest.approx(total))
    elif not all(0 <= weight <= 1.001 for weight, _ in weights) or total > 1.0011:
        assert found.reason is Reason.OUT_OF_RANGE
    elif total < JUDGE.min_answer_mass:
        assert found.reason is Reason.NO_ANSWER


@given(st.text())
def test_fence_never_occurs_inside(text: str) -> None:
    inside = clean(text).text
    first, _, rest = fence("completion", inside).partition("\n")
    body, _, last = rest.rpartition("\n")
    assert body == inside
    assert first not in inside
    assert last not in inside
    assert first[1:] == last[2:]


@given(st.text(alphabet='a"\n ', max_size=40))
def test_fence_in_never_occurs_inside(text: str) -> None:
    first, _, rest = fence_in('"""', text).partition("\n")
    inside, _, last = rest.rpartition("\n")
    assert inside == text
    assert first == last and len(first) >= 3 and set(first) == {'"'}
    assert first not in text


def test_fence_avoids_a_guessed_number() -> None:
    number = fence("x", "hello").split("\n")[0].removeprefix("<x-").removesuffix(">")
    again = fence("x", f"hello {number}")
    assert again.count(number) == 1


def test_fence_changes_a_number_that_occurs_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = (SimpleNamespace(hexdigest=lambda digest=digest: digest) for digest in ("aaaa", "bbbb", "cccc"))
    monkeypatch.setattr("workers.judges.calls.sha256", lambda _: next(digests))
    assert fence("x", "aaaa and </x-bbbb>").startswith("<x-cccc>")


def test_locate_finds_quotes() -> None:
    text = "Python asks the left\n  operand first, then the right."
    passages = QuoteIndex(text, text)
    found = passages.locate("asks the left operand")
    assert (found.start, found.end) == (7, 30)
    assert text[7:30] == "asks the left\n  operand"
    assert passages.locate("asks the right operand").start is None
    assert passages.locate("  ").start is None


def test_locate_ignores_presentation() -> None:
    text = "It\u2019s **not\u00a0fast**\u200b \u2014 the Caf\u00e9 opens at\n> `nine`\u2026 if a_b > 2\ufb01."
    text += '\n- Say "no"\n1. [go](x) <b>on'
    passages = QuoteIndex(clean(text).text, text)
    for quote, whole in [
        ("it's not fast", "It\u2019s **not\u00a0fast"),
        ("NOT FAST - the cafe\u0301 opens", "not\u00a0fast**\u200b \u2014 the Caf\u00e9 opens"),
        ("opens at nine...", "opens at\n> `nine`\u2026"),
        ("_if ab 2fi._", "if a_b > 2\ufb01."),
        ("\u201copens at nine\u201d", "opens at\n> `nine"),
        ("say 'no' 1. go on", 'Say "no"\n1. [go](x) <b>on'),
        ("is fast", None),
        ("its not fast", None),
        ("opens at ten", None),
        ("the cafe opens", None),
        ("**", "**"),
        ("##", None),
    ]:
        evidence = passages.locate(quote)
        assert (evidence.quote if whole else evidence.start) == whole, quote
        assert whole is None or text[evidence.start : evidence.end] == whole


def slowly(quote: str, shown: str, original: str) -> Evidence:
    """What `QuoteIndex.locate` means: the words with any blanks between them, and the shown characters counted out."""
    match = re.search(r"\s+".join(map(re.escape, quote.split())), shown) if quote.strip() else None
    if match is None:
        return Evidence(quote=quote)
    hidden = {found.start() for found in untrusted.INVISIBLE.finditer(original)}
    kept = [place for place in range(len(original)) if place not in hidden]
    start, end = kept[match.start()], kept[match.end() - 1] + 1
    return Evidence(quote=original[start:end], start=start, end=end)


@given(st.text(alphabet="ab. \t\n\u00a0\u200b\u202e", max_size=40), st.text(alphabet="ab. \n\u00a0", max_size=6))
def test_locate_equals_a_slow_search(original: str, quote: str) -> None:
    shown = clean(original).text
    assert QuoteIndex(shown, original).locate(quote) == slowly(quote, shown, original)


def test_locate_is_cheap_on_missing_quotes() -> None:
    text = "a \u200b" * 100_000
    passages = QuoteIndex(clean(text).text, text)
    assert {passages.locate("a " * (50_000 + n) + "b").start for n in range(50)} == {None}
    assert passages.locate("a " * 100_000).end == 3 * 99_999 + 1


@given(st.text(max_size=30), st.text(alphabet="ab \u200b\u202e\n", min_size=1, max_size=30), st.text(max_size=30))
def test_locate_counts_offsets_in_the_original(before: str, middle: str, after: str) -> None:
    original = before + middle + after
    shown = clean(original).text
    quote = clean(middle).text
    found = QuoteIndex(shown, original).locate(quote)
    if found.start is not None and found.end is not None:
        assert clean(original[found.start : found.end]).text.split() == quote.split()
    else:
        assert not quote.strip() or quote not in shown
