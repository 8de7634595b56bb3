"""Every kind of bad file is refused with its line, in words that say the mending; nothing is taken from it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from rubricsvc.errors import FormatError, InvalidError
from rubricsvc.formats import BadFileError, guess, load
from rubricsvc.formats import source as source_module
from rubricsvc.formats.source import Source

GOOD = '{"prompt": "Why?", "criteria": [{"key": "a", "text": "Says why."}]}\n'


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refused(path: Path, format: str | None = "native") -> FormatError:
    with pytest.raises(FormatError) as caught:
        load(path, format)
    return caught.value


WHOLE_FILE = [
    ("empty.jsonl", b"", "is empty"),
    ("blank.jsonl", b"\xef\xbb\xbf \n\n", "is empty"),
    ("binary.jsonl", b"\x01\x00\x02", "is a binary file"),
    ("utf16.jsonl", GOOD.encode("utf-16"), "is UTF-16"),
    ("latin.yaml", "prompt: hi\ncriteria: [café]\n".encode("latin-1"), ":2: byte 0xe9 is not UTF-8"),
    ("x.jsonl", gzip.compress(GOOD.encode(), mtime=0), "gzip"),
    ("x.yaml", b"PK\x03\x04....", "ZIP"),
    ("x.parquet", b"PAR1....", "Parquet"),
    ("null.yaml", b"--- \n# only a comment\n", "expected a mapping"),
]


@pytest.mark.parametrize(("name", "content", "words"), WHOLE_FILE)
def test_what_is_no_text_is_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    assert words in str(refused(write(tmp_path, name, content)))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    assert "no such file" in str(refused(tmp_path / "none.jsonl"))
    assert "is a directory" in str(refused(tmp_path))


def test_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.json", "a.yaml"):
        assert len(load(write(tmp_path, name, b"\xef\xbb\xbf" + GOOD.encode()))) == 1


JSON_LINES = [
    ('{"prompt": "x", "criteria": ["a"],}', "comma before the closing bracket; remove it"),
    ('{"prompt": "x", "criteria": ["a",]}', "comma before the closing bracket; remove it"),
    ('{"prompt": "x", "criteria": [{"text": "a", "weight": NaN}]}', "NaN is no JSON number"),
    ('{"prompt": "x", "criteria": [{"text": "a", "weight": -Infinity}]}', "-Infinity is no JSON number"),
    ('{"prompt": "x", "criteria": [{"text": "a", "weight": 1e999}]}', "1e999 is too large"),
    ('{"prompt": "x", "prompt": "y", "criteria": ["a"]}', "key 'prompt' stands twice"),
    ("{'prompt': 'x'}", "double quotes"),
    ('{"prompt": None}', "write null"),
    ('{"prompt": "x"', "each record stands whole on one line"),
    ('{"prompt": "x', "no closing quote"),
    (GOOD.strip() + GOOD.strip(), "more than one value on the line"),
    ('{"prompt": "\\ud800", "criteria": ["a"]}', "half a surrogate pair"),
    ('{"prompt": "\\u0000", "criteria": ["a"]}', "NUL"),
    ("[" * 100_000, "nested too deep"),
    ('{"prompt": "x", "criteria": [{"text": "a", "weight": ' + "9" * 5000 + "}]}", "too large"),
    ('["a"]', "expected a mapping with prompt and criteria, found a list of 1"),
    ('{"prompt": "x" // why\n', "no comments"),
]


@pytest.mark.parametrize(("line", "words"), JSON_LINES)
def test_a_bad_line_is_told_by_its_number(tmp_path: Path, line: str, words: str) -> None:
    path = write(tmp_path, "r.jsonl", GOOD + line + "\n" + GOOD)
    error = refused(path)
    assert words in str(error)
    assert error.path == f"{path}:2"


def test_not_utf8_in_one_line(tmp_path: Path) -> None:
    path = write(tmp_path, "r.jsonl", GOOD.encode() + b'{"prompt": "caf\xe9"}\n')
    assert f"{path}:2: byte 0xe9 is not UTF-8" in str(refused(path))


def test_gigantic_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "MAX_LINE", 1000)
    path = write(tmp_path, "r.jsonl", GOOD + '{"prompt": "' + "x" * 5000 + '"}\n' + GOOD)
    error = refused(path)
    assert isinstance(error, BadFileError)
    assert [fault.line for fault in error.faults] == [2]
    assert "longer than" in str(error)


def test_a_file_too_large_to_be_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "MAX_TEXT", 10)
    error = refused(write(tmp_path, "r.yaml", "prompt: a long one\n"))
    assert "is larger than" in str(error)
    assert "JSONL" in error.hint


YAML = [
    ("prompt: a\nprompt: b\n", 2, "key 'prompt' stands twice"),
    ("criteria: [{text: a, weight: .nan}]\n", 1, ".nan is no number"),
    ("criteria:\n- {text: a, weight: .inf}\n", 2, ".inf is no number"),
    ("a: !!python/object/apply:os.system [echo]\n", 1, "tag !!python/object/apply:os.system is not allowed"),
    ("a: !mine x\n", 1, "tag !mine is not allowed"),
    ("a: &a [x, *a]\n", 1, "would never end"),
    ("a: *b\n", 1, "has no anchor"),
    ("prompt: x\n\tcriteria: y\n", 2, "tab character"),
    ("prompt: what: this\n", 1, "not YAML here"),
    ("a:\n - [1, 2\nb: 3\n", 3, "not YAML here"),
    ("a: " + "[" * 50_000, 1, "nested deeper than"),
    ("? [a]\n: b\n", 1, "cannot be a key"),
    ("a: b\x07\n", 1, "is not allowed in YAML"),
    ('a: "\\0"\n', 1, "NUL"),
]


@pytest.mark.parametrize(("text", "line", "words"), YAML)
def test_bad_yaml(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = write(tmp_path, "r.yaml", text)
    error = refused(path)
    assert words in str(error)
    assert error.path == f"{path}:{line}"


def test_a_yaml_bomb_does_not_go_off(tmp_path: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    assert "blow the document up" in str(refused(write(tmp_path, "r.yaml", "\n".join(lines))))


def test_anchors_may_share_criteria(tmp_path: Path) -> None:
    text = "- prompt: one\n  criteria: &c\n    - Is kind.\n- prompt: two\n  criteria: *c\n"
    records = load(write(tmp_path, "r.yaml", text))
    assert records[0].rubric == records[1].rubric


def test_words_of_yaml_1_1_stay_words(tmp_path: Path) -> None:
    (record,) = load(write(tmp_path, "r.yaml", "id: 2024-01-01\nprompt: no\ncriteria: [yes, on, 12:30]\n"))
    assert record.id == "2024-01-01"
    assert record.prompt is not None and record.prompt.text == "no"
    assert record.rubric is not None and [c.text for c in record.rubric.criteria] == ["yes", "on", "12:30"]


FIELDS = [
    ("criteria:\n  - {text: a, weight: heavy}", 2, "criteria[0].weight: expected a number, found 'heavy'"),
    ("criteria:\n  - {text: a, weight: '3'}", 2, "criteria[0].weight: expected a number, found '3'"),
    ("criteria:\n  - {text: a, weight: true}", 2, "criteria[0].weight: expected a number, found true"),
    ("criteria:\n  - {text: a}\n  - {text: a, wieght: 1}", 3, "wieght: unknown field; did you mean 'weight'?"),
    ("criteria:\n  - {text: a, patern: x}", 2, "criteria[0].patern: unknown field; expected key, text, weight, scale"),
    (
        "criteria:\n- text: a\n  scale: {kind: ordinal, levels: [{label: a, value: 0, txt: x}, {label: b, value: 1}]}",
        3,
        "criteria[0].scale.levels[0].txt: unknown field; did you mean 'text'?",
    ),
    ("criteria:\n  - {text: 5}", 2, "criteria[0].text: expected text, found 5; put it in quotes"),
    ("criteria:\n  - {text: ''}", 2, "criteria[0].text: expected some text, found an empty text"),
    ("criteria:\n  - {key: a}", 2, "criteria[0].text: is missing"),
    ("criteria: []", 1, "criteria: expected a list of criteria, found an empty list"),
    ("criteria: text", 1, "criteria: expected a list of criteria, found 'text'"),
    ("criteria:\n  - {key: a, text: x}\n  - {key: a, text: y}", 3, "key 'a' is taken by criteria[0]"),
    ("criteria:\n  - {text: a, weight: 0}", 1, "all weights are zero"),
    ("criteria: [a]\nformula: mode", 2, "unknown formula 'mode'"),
    ("criteria:\n  - {text: a, weight: -1}\nformula: tree", 3, "tree takes no negative weights"),
    ("criteria:\n  - {text: a, scale: [0, 10, 20]}", 2, "scale: expected binary, [low, high] or a mapping"),
    ("criteria:\n  - {text: a, scale: [10, 0]}", 2, "criteria[0].scale: "),
    (
        "criteria:\n  - {text: a, scale: [-1.0e+308, 1.0e+308]}",
        2,
        "criteria[0].scale: ",
    ),
    ("criteria:\n  - {text: a, scale: {good: 0, Good: 1}}", 2, "criteria[0].scale: two levels have the same label"),
    ("criteria:\n  - {text: a, scale: {kind: likert}}", 2, "criteria[0].scale.kind: expected 'binary', 'ordinal', 'nu"),
    ("criteria:\n  - {text: a, scale: {bad: 0, good: 2}}", 2, "expected a number at most 1, found 2"),
    ("criteria:\n  - {text: a, check: [x]}", 2, "check: expected the name of a check"),
    ("criteria: [a]\nmin_coverage: 2", 2, "min_coverage: expected a number at most 1, found 2"),
    ("criteria:\n  - {text: a, group: x/y}\ngroups: {x: 1}", 1, "group 'x/y' has no weight"),
    ("prompt: ''\ncriteria: [a]", 1, "prompt: expected a text or a list of messages, found an empty text"),
    ("prompt:\n  - {role: usr, content: x}\ncriteria: [a]", 2, "prompt[0].role: expected 'system'"),
    ("prompt: []\ncriteria: [a]", 1, "prompt: expected a list of at least 1, found an empty list"),
    ("prompt: x\ncriteria: [a]\ntags: news", 3, "tags: expected a list, found 'news'"),
    ("prompt: x\ncriteria: [a]\nname: a@b", 3, "expected a name without '@'"),
    ("prompt: x\ncriteria: [a]\nname: 12", 3, "name: expected some text, found 12"),
    ("prompt: x\ncriteria: [a]\ncompletions: yes sir", 3, "completions: expected a list"),
    ("prompt: x\ncriteria: [a]\ncompletions:\n  - {txt: hi}", 4, "txt: unknown field; did you mean 'text'?"),
    ("criteria: [a]\ncompletions: [b]", 2, "completions need the prompt"),
    ("prompt: x\ncriteria: [a]\ncompletions: [b]\nlabels: {c9: 1}", 4, "no criterion has this key; there are c1"),
    ("prompt: x\ncriteria: [a]\ncompletions: [b]\nlabels: {c1: 7}", 4, "expected a value from 0 to 1"),
    ("prompt: x\ncriteria: [a]\ncompletions: [b, c]\nlabels: {c1: 1}", 4, "labels belong to one completion"),
    (f"prompt: x\ncriteria: [a]\nname: {'n' * 201}", 3, "name: expected at most 200 characters, found 201"),
    (f"prompt: x\ncompletions:\n  - {{text: a, policy: {'p' * 201}}}", 3, "policy: expected at most 200 characters"),
    ("name: nothing", 1, "neither prompt nor criteria"),
    ("prompt: x\ncriterion: [a]", 2, "criterion: unknown field; did you mean 'criteria'?"),
]


@pytest.mark.parametrize(("text", "line", "words"), FIELDS)
def test_a_bad_field_is_told_with_its_own_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = write(tmp_path, "r.yaml", text)
    error = refused(path)
    assert isinstance(error, BadFileError)
    assert [f"{path}:{line}" in str(fault) for fault in error.faults] == [True], str(error)
    assert words in str(error)


def test_all_faults_are_told_at_once_and_the_list_is_capped(tmp_path: Path) -> None:
    path = write(tmp_path, "r.jsonl", '{"prompt": 1}\n' * 30 + GOOD)
    error = refused(path)
    assert isinstance(error, BadFileError)
    assert len(error.faults) == 30
    assert "30 faults" in str(error) and "and 10 more" in str(error)
    assert str(error).count("\n") == 21


def test_skip_invalid_leaves_out_the_bad_and_tells_them(tmp_path: Path) -> None:
    path = write(tmp_path, "r.jsonl", GOOD + "{oops\n" + '{"prompt": "x", "criteria": []}\n' + GOOD)
    records = load(path, skip_invalid=True)
    assert len(records) == 2
    assert [fault.line for fault in records.skipped] == [2, 3]


def test_skip_invalid_of_nothing_but_bad_records_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no record that can be used"):
        load(write(tmp_path, "r.jsonl", "{oops\n"), "native", skip_invalid=True)


def test_json_files_have_lines_too(tmp_path: Path) -> None:
    path = write(tmp_path, "r.json", f'[\n  {GOOD}, {{"prompt": "x",\n "criteria": []}}\n]')
    error = refused(path)
    assert error.path == f"{path}:3"
    broken = write(tmp_path, "b.json", '{\n"prompt": "x",\n}')
    assert "comma before the closing bracket" in str(refused(broken))


def test_unknown_format_and_option(tmp_path: Path) -> None:
    path = write(tmp_path, "r.jsonl", GOOD)
    with pytest.raises(InvalidError, match="no format 'csv'"):
        load(path, "csv")
    with pytest.raises(InvalidError, match="no option 'language'"):
        load(path, "native", language="en")


GUESSES = [
    ("r.jsonl", GOOD, "native"),
    ("r.yaml", "prompt: x\n", "native"),
    ("r.txt", GOOD, "native"),
    ("h.jsonl", '{"prompt_id": "1", "prompt": [], "rubrics": []}\n', "healthbench"),
    ("m.jsonl", '{"prompt_id": "1", "binary_labels": [], "rubric": "x"}\n', "healthbench"),
    ("criteria.jsonl", '{"id": 1, "criterions": {}, "dimension_weight": {}}\n', "deep_research_bench"),
]


@pytest.mark.parametrize(("name", "content", "format"), GUESSES)
def test_formats_are_told_by_ending_and_fields(tmp_path: Path, name: str, content: str, format: str) -> None:
    assert guess(Source.of(write(tmp_path, name, content))) == format


def test_a_format_that_cannot_be_told_names_the_formats(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot tell its format: its first record has answer, question") as caught:
        load(write(tmp_path, "r.jsonl", '{"question": "x", "answer": "y"}\n'))
    assert "native, healthbench, deep_research_bench" in caught.value.hint
    with pytest.raises(FormatError, match="is a folder without"):
        load(tmp_path)


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "Q", "criteria": ["a"], "x" * 1_000_000: 1},
        {"prompt": "Q", "criteria": [{"text": "a", "weight": "x" * 1_000_000}]},
        {"prompt": "Q", "criteria": ["a"], "name": "@" * 1_000_000},
        {"prompt": "Q", "criteria": ["a"], "formula": "x" * 1_000_000},
    ],
)
def test_what_is_quoted_has_an_end(tmp_path: Path, record: dict[str, object]) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(record) + "\n")
    with pytest.raises(FormatError) as caught:
        load(path)
    assert 20 < len(str(caught.value)) < 2000 and len(caught.value.path) <= 200


def test_a_key_that_stands_twice_is_quoted_in_part(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"%s": 1, "%s": 2}\n' % (("x" * 1_000_000,) * 2))
    with pytest.raises(FormatError, match="keep one of them") as caught:
        load(path)
    assert len(str(caught.value)) < 2000
