"""Checks of reports on documents: the pages that they cite, what they mention, and what they copy."""

import pytest

from rubricsvc.core.prompt import Completion, Document, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from workers.checks import run

IDS = ("a", "b", "b-copy", "c", "source")
PAGES = [["a"], ["b", "b-copy"]]
TEXT = " ".join(f"word{number}" for number in range(400))


def verdict(text: str, name: str, item: object = None, **args: object) -> Verdict:
    documents = tuple(Document(id=id_, text=TEXT) for id_ in IDS)
    prompt = Prompt.of("q", documents=documents, **({"item": item} if item is not None else {}))
    rubric = Rubric(criteria=(Criterion(key="k", text="t", check=Check.model_validate({"name": name, "args": args})),))
    return run(rubric, prompt, Completion(text=text))[0]


def test_cites_pages() -> None:
    for text, recall, precision, f1 in [
        ("It is so [a], and so [b].", 1.0, 1.0, 1.0), ("It is so [a; b-copy].", 1.0, 1.0, 1.0),
        ("It is so [a], [b], [b-copy].", 1.0, 1.0, 1.0), ("It is so [b], [b-copy].", 0.5, 1.0, 2 / 3),
        ("It is so [a], [a], [a].", 0.5, 1.0, 2 / 3), ("It is so [a], [b], [c], [invented].", 1.0, 0.5, 2 / 3),
        ("It is so [c].", 0.0, 0.0, 0.0), ("It is so `[a]`, a[b], [b](http://x).", 0.0, 0.0, 0.0),
        ("", 0.0, 0.0, 0.0),
    ]:  # fmt: skip
        for measure, value in (("recall", recall), ("precision", precision), ("f1", f1)):
            assert verdict(text, "cites_pages", pages=PAGES, measure=measure).value == pytest.approx(value)
            assert verdict(text, "cites_pages", {"pages": PAGES}, measure=measure).value == pytest.approx(value)


def test_cites_pages_counts_only_what_was_given_or_opened() -> None:
    assert verdict("It is so [a], [unopened].", "cites_pages", pages=[["a"], ["unopened"]]).value == 0.5


@pytest.mark.parametrize("item", [None, {}, {"pages": []}, {"pages": [[]]}, {"pages": "a"}, {"pages": [[""]]}])
def test_cites_pages_fails_without_pages(item: object) -> None:
    found = verdict("It is so [a].", "cites_pages", item)
    assert found.value is None and found.reason == "check_error"


def test_mentions() -> None:
    for text, args, value in [
        ("The `mode` and `size` arguments are new.", {}, 1.0), ("The mode and the size are new [a].", {}, 1.0),
        ("The `mode` argument is new.", {}, 0.5), ("The Mode is new.", {}, 0.0),
        ("The Mode is new.", {"case": False}, 0.5), ("The modes and sizes are new.", {}, 0.0),
        ("`mode`, `size`", {}, 0.0), ("`mode`\n\n`size`", {}, 0.0), ("`mode`, `size`", {"words": 0}, 1.0),
        ("Terms: `mode`, `size`, `other`, `more`", {}, 0.25),
        ("Terms: `mode`, `size`, `other`, `more`. What is new is the `mode`.", {}, 0.625),
        ("# mode and size and other words\n\n```\nmode and size are new here\n```", {}, 0.0),
        ("[mode] [size] are the citations here.", {}, 0.0), ("", {}, 0.0),
    ]:  # fmt: skip
        assert verdict(text, "mentions", terms=["mode", "size"], **args).value == value, (text, args)


def part(start: int, end: int) -> str:
    return " ".join(TEXT.split()[start:end])


def test_copied() -> None:
    for text, value in [
        ("Words of its own, which no source has, and more of them in a row.", 0.0), (part(0, 7), 0.0),
        (part(0, 100), 0.0), (part(0, 150), 0.5), (f"> {part(0, 150)}", 0.5),
        (f"“{part(0, 75)}” and “{part(100, 175)}”", 0.5), (part(0, 150).upper().replace(" ", ",  "), 0.5),
        (" [a] ".join(TEXT.split()[:150]), 0.5), (part(0, 200), 1.0), (TEXT, 1.0),
        (" own ".join(part(start, start + 7) for start in range(0, 280, 7)), 0.0), ("", 0.0),
    ]:  # fmt: skip
        assert verdict(text, "copied").value == value, text


def test_checks_of_reports_read_long_texts() -> None:
    for piece in ("[a] ", "[", "`mode` ", "word1 ", "\ue000", "“", "mode size. "):
        text = piece * (30_000 // len(piece))
        for name, args in (("cites_pages", {"pages": PAGES}), ("mentions", {"terms": ["mode"]}), ("copied", {})):
            value = verdict(text, name, **args).value
            assert value is not None and 0.0 <= value <= 1.0
