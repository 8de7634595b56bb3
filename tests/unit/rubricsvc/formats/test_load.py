"""Invalid files: the code, the position and the path of each error; the format of a file; files that are read once."""

import gzip
import io
import json
from pathlib import Path

import pytest

from rubricsvc.formats import InputFile, InvalidFileError, detect, input_file, load, mapping, record, stream
from rubricsvc.formats.record import MAX_LISTED
from rubricsvc.schemas.base import FileProblem

GOOD = '{"prompt": "Why?", "criteria": [{"key": "a", "text": "Says why."}]}\n'


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def invalid(path: Path, format: str | None = "native") -> InvalidFileError:
    with pytest.raises(InvalidFileError) as caught:
        load(path, format)
    return caught.value


def only_error(path: Path) -> FileProblem:
    (error,) = invalid(path).errors
    return error


def test_load_reads_toml_with_dates_as_texts(tmp_path: Path) -> None:
    content = "prompt = 'When?'\ncriteria = ['Says it.']\n[item]\nday = 2026-01-02\n"
    (record,) = load(write(tmp_path, "r.toml", content))
    assert record.prompt is not None and record.prompt.item == {"day": "2026-01-02"}


def test_load_rejects_missing_files_and_those_that_are_not_text(tmp_path: Path) -> None:
    for name, content, code, line in [
        ("empty.jsonl", b"", "no_records", None),
        ("blank.jsonl", b"\xef\xbb\xbf \n\n", "no_records", None),
        ("binary.jsonl", b"\x01\x00\x02", "not_text", None),
        ("utf16.jsonl", GOOD.encode("utf-16"), "not_text", None),
        ("r.jsonl", GOOD.encode() + b'{"prompt": "caf\xe9"}\n', "encoding", 2),
        ("latin.yaml", "prompt: hi\ncriteria: [café]\n".encode("latin-1"), "encoding", 2),
        ("x.jsonl", gzip.compress(GOOD.encode(), mtime=0), "not_text", None),
        ("x.yaml", b"PK\x03\x04\0...", "not_text", None),
        ("null.yaml", b"--- \n# only a comment\n", "dict_type", 3),
        ("nul.csv", b"prompt\n" + b"x" * 9000 + b"\0\n", "unstorable", 2),
        ("half.toml", b"criteria = [", "toml_invalid", None),
        ("deep.toml", b"criteria = " + b"[" * 100_000, "toml_invalid", None),
        ("long.toml", b"weight = " + b"9" * 5000, "toml_invalid", None),
        ("nul.toml", b'prompt = "\\u0000"', "toml_invalid", None),
    ]:
        error = only_error(write(tmp_path, name, content))
        assert (error.code, error.line) == (code, line)
    assert only_error(tmp_path / "none.jsonl").code == "not_found"


def test_load_reports_the_position_of_invalid_json(tmp_path: Path) -> None:
    for line, code, column, path in [
        ('{"prompt": "x", "criteria": ["a"],}', "json_invalid", None, ""),
        ('{"prompt": "x", "criteria": ["a",]}', "json_invalid", None, ""),
        ('{"prompt": "x", "criteria": [{"text": "a", "weight": NaN}]}', "json_invalid", None, ""),
        ('{"prompt": "x", "criteria": [{"text": "a", "weight": -Infinity}]}', "json_invalid", None, ""),
        ('{"prompt": "x", "criteria": [{"text": "a", "weight": 1e999}]}', "unstorable", None, "criteria[0].weight"),
        ('{"prompt": "x", "prompt": "y", "criteria": ["a"]}', "duplicate_key", None, ""),
        ("{'prompt': 'x'}", "json_invalid", 2, ""),
        ('{"prompt": None}', "json_invalid", 12, ""),
        ('{"prompt": "x"', "json_invalid", 15, ""),
        ('{"prompt": "x', "json_invalid", 12, ""),
        (GOOD.strip() + GOOD.strip(), "json_invalid", None, ""),
        ('{"prompt": "\\ud800", "criteria": ["a"]}', "unstorable", None, "prompt"),
        ('{"prompt": "\\u0000", "criteria": ["a"]}', "unstorable", None, "prompt"),
        ("[" * 100_000, "json_invalid", None, ""),
        (
            '{"prompt": "x", "criteria": [{"text": "a", "weight": ' + "9" * 5000 + "}]}",
            "unstorable",
            None,
            "criteria[0].weight",
        ),
        ('[{"a": 1, "a": 1}, ' + "[" * 100_000, "duplicate_key", None, ""),
        ('[{"a": 1, "a": 1}, ' + "9" * 5000 + "]", "duplicate_key", None, ""),
        ('["a"]', "dict_type", None, ""),
    ]:
        error = only_error(write(tmp_path, "r.jsonl", GOOD + line + "\n" + GOOD))
        assert (error.line, error.code, error.path) == (2, code, path)
        assert column in (None, error.column)


def test_load_rejects_files_beyond_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, most, name, content, code, line in [
        ("MAX_LINE", 1000, "r.jsonl", GOOD + '{"prompt": "' + "x" * 5000 + '"}\n' + GOOD, "line_too_long", 2),
        ("MAX_YAML", 10, "r.yaml", "criteria:\n" + "- Says why.\n" * 20, "too_many_values", 8),
        ("MAX_TEXT", 10, "r.yaml", "prompt: a long one\n", "too_large", None),
    ]:
        monkeypatch.setattr(input_file, limit, most)
        error = only_error(write(tmp_path, name, content))
        assert (error.code, error.line) == (code, line)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_load_reports_the_position_of_invalid_yaml(tmp_path: Path) -> None:
    for text, line, column, code in [
        ("prompt: a\nprompt: b\n", 2, 1, "duplicate_key"),
        ("criteria: [{text: a, weight: .nan}]\n", 1, 30, "unstorable"),
        ("criteria:\n- {text: a, weight: .inf}\n", 2, 21, "unstorable"),
        ("-.INF", 1, 1, "unstorable"),
        (f"criteria:\n- {{text: a, weight: {'9' * 5000}}}\n", 2, 21, "unstorable"),
        ("a: !!python/object/apply:os.system [echo]\n", 1, 4, "yaml_tag"),
        ("a: !mine x\n", 1, 4, "yaml_tag"),
        ("a: !!int x\n", 1, 4, "yaml_tag"),
        ("a: &a [*a]\n", 1, 4, "recursive_alias"),
        ("a: *b\n", 1, 4, "yaml_invalid"),
        ("prompt: x\n\tcriteria: y\n", 2, 1, "yaml_invalid"),
        ("prompt: what: this\n", 1, 13, "yaml_invalid"),
        ("a:\n - [1, 2\nb: 3\n", 3, 2, "yaml_invalid"),
        ("a: " + "[" * 50_000, 1, 63, "too_deep"),
        ("? [a]\n: b\n", 1, 3, "yaml_invalid"),
        ("a: b\x07\n", 1, None, "yaml_invalid"),
        ('a: "\\0"\n', 1, 4, "unstorable"),
        (BOMB, 1, None, "too_many_aliases"),
    ]:
        (error,) = (error for error in invalid(write(tmp_path, "r.yaml", text)).errors if error.code == code)
        assert error.line == line
        assert column in (None, error.column)


FIELDS = [
    ("criteria:\n  - {text: a, weight: heavy}", 2, "criteria[0].weight", "float_type"),
    ("criteria:\n  - {text: a, weight: '3'}", 2, "criteria[0].weight", "float_type"),
    ("criteria:\n  - {text: a, weight: true}", 2, "criteria[0].weight", "float_type"),
    ("criteria:\n  - {text: a}\n  - {text: a, wieght: 1}", 3, "criteria[1].wieght", "extra_forbidden"),
    ("criteria:\n  - {text: a, patern: x}", 2, "criteria[0].patern", "extra_forbidden"),
    (
        "criteria:\n- text: a\n  scale: {kind: ordinal, levels: [{label: a, value: 0, t: 1}, {label: b, value: 1}]}",
        3,
        "criteria[0].scale.levels[0].t",
        "extra_forbidden",
    ),
    ("criteria:\n  - {text: 5}", 2, "criteria[0].text", "string_type"),
    ("criteria:\n  - {text: ''}", 2, "criteria[0].text", "string_too_short"),
    ("criteria:\n  - {key: a}", 2, "criteria[0].text", "missing"),
    ("criteria: []", 1, "criteria", "too_short"),
    ("criteria: text", 1, "criteria", "tuple_type"),
    ("criteria:\n  - {key: a, text: x}\n  - {key: a, text: y}", 3, "criteria[1].key", "duplicate_key"),
    ("criteria:\n  - {text: a, weight: 0}", 1, "", "value_error"),
    ("criteria: [a]\nformula: mode", 2, "formula", "formula"),
    ("criteria:\n  - {text: a, weight: -1}\nformula: tree", 3, "formula", "formula"),
    ("criteria:\n  - {text: a, scale: [0, 10, 20]}", 2, "criteria[0].scale", "shape"),
    ("criteria:\n  - {text: a, scale: [10, 0]}", 2, "criteria[0].scale", "value_error"),
    ("criteria:\n  - {text: a, scale: [-1.0e+308, 1.0e+308]}", 2, "criteria[0].scale", "value_error"),
    ("criteria:\n  - {text: a, scale: {good: 0, Good: 1}}", 2, "criteria[0].scale", "value_error"),
    ("criteria:\n  - {text: a, scale: {kind: likert}}", 2, "criteria[0].scale.kind", "union_tag_invalid"),
    ("criteria:\n  - {text: a, scale: {bad: 0, good: 2}}", 2, "criteria[0].scale.levels[1].value", "less_than_equal"),
    ("criteria:\n  - {text: a, check: [x]}", 2, "criteria[0].check", "shape"),
    ("criteria: [a]\nmin_coverage: 2", 2, "min_coverage", "less_than_equal"),
    ("criteria:\n  - {text: a, group: x/y}\ngroups: {x: 1}", 1, "", "value_error"),
    ("prompt: ''\ncriteria: [a]", 1, "prompt", "string_type"),
    ("prompt:\n  - {role: usr, content: x}\ncriteria: [a]", 2, "prompt[0].role", "literal_error"),
    ("prompt: []\ncriteria: [a]", 1, "prompt", "too_short"),
    ("prompt: x\ncriteria: [a]\ntags: news", 3, "tags", "tuple_type"),
    ("prompt: x\ncriteria: [a]\nname: a@b", 3, "name", "value_error"),
    ("prompt: x\ncriteria: [a]\nname: 12", 3, "name", "string_type"),
    ("prompt: x\ncriteria: [a]\ncompletions: yes sir", 3, "completions", "tuple_type"),
    ("prompt: x\ncriteria: [a]\ncompletions:\n  - {txt: hi}", 4, "completions[0].txt", "extra_forbidden"),
    ("criteria: [a]\ncompletions: [b]", 2, "completions", "missing"),
    ("prompt: x\ncriteria: [a]\ncompletions: [b]\nlabels: {c9: 1}", 4, "labels.c9", "unknown_criterion"),
    ("prompt: x\ncriteria: [a]\ncompletions: [b]\nlabels: {c1: 7}", 4, "labels.c1", "less_than_equal"),
    ("prompt: x\ncriteria: [a]\ncompletions: [b, c]\nlabels: {c1: 1}", 4, "labels", "value_error"),
    (f"prompt: x\ncriteria: [a]\nname: {'n' * 201}", 3, "name", "string_too_long"),
    (f"prompt: x\ncompletions:\n  - {{text: a, policy: {'p' * 201}}}", 3, "completions[0].policy", "string_too_long"),
    ("name: nothing", 1, "", "missing"),
    ("prompt: x\ncriterion: [a]", 2, "criterion", "extra_forbidden"),
]


def test_load_reports_line_path_and_code_of_invalid_fields(tmp_path: Path) -> None:
    for text, line, field, code in FIELDS:
        path = write(tmp_path, "r.yaml", text)
        (error,) = invalid(path).errors
        assert (error.line, error.path, error.code) == (line, field, code)
        assert str(error).startswith(f"{path}:{line}:")


def test_load_reports_all_errors_and_lists_the_first(tmp_path: Path) -> None:
    error = invalid(write(tmp_path, "r.jsonl", '{"prompt": 1}\n' * 30 + GOOD))
    assert [one.line for one in error.errors] == list(range(1, 31))
    assert str(error).count("\n") == MAX_LISTED + 1


def test_load_skips_invalid_records_unless_all_are(tmp_path: Path) -> None:
    path = write(tmp_path, "r.jsonl", GOOD + "{oops\n" + '{"prompt": "x", "criteria": []}\n' + GOOD)
    records = load(path, skip_invalid=True)
    assert len(records) == 2
    assert [error.line for error in records.skipped] == [2, 3]
    with pytest.raises(InvalidFileError) as caught:
        load(write(tmp_path, "r.jsonl", "{oops\n"), "native", skip_invalid=True)
    assert (caught.value.errors[0].code, caught.value.errors[0].line) == ("json_invalid", 1)


def test_load_reports_lines_of_json_files(tmp_path: Path) -> None:
    error = only_error(write(tmp_path, "r.json", f'[\n  {GOOD}, {{"prompt": "x",\n "criteria": []}}\n]'))
    assert (error.line, error.path) == (3, "criteria")
    error = only_error(write(tmp_path, "b.json", '{\n"prompt": "x",\n}'))
    assert (error.line, error.code) == (3, "json_invalid")


def test_load_limits_the_length_of_messages(tmp_path: Path) -> None:
    for row in [
        {"prompt": "Q", "criteria": ["a"], "x" * 1_000_000: 1},
        {"prompt": "Q", "criteria": [{"text": "a", "weight": "x" * 1_000_000}]},
        {"prompt": "Q", "criteria": ["a"], "name": "@" * 1_000_000},
        {"prompt": "Q", "criteria": ["a"], "formula": "x" * 1_000_000},
    ]:
        error = invalid(write(tmp_path, "r.jsonl", json.dumps(row) + "\n"))
        assert 20 < len(str(error)) < 2000 and len(error.path) <= 200


def test_load_reports_faults_of_text_with_those_of_fields(tmp_path: Path) -> None:
    text = (
        "prompt: a\nprompt: b\ncriteria: [{text: !x a, weight: .nan}]\nnone: 1\n---\nprompt: c\ncriteria: []\n---\n[a"
    )
    path = write(tmp_path, "r.yaml", text)
    found = [(2, "duplicate_key"), (3, "yaml_tag"), (3, "unstorable"), (4, "extra_forbidden"), (7, "too_short")]
    with pytest.raises(InvalidFileError) as caught:
        load(path, "native", skip_invalid=True)
    assert [(error.line, error.code) for error in caught.value.errors] == [*found, (10, "yaml_invalid")]
    lines = [
        '{"prompt": "a", "prompt": "b", "criteria": [1]}',
        '{"prompt": "a", "criteria": [{"text": "a", "weight": NaN}]}',
        '{"prompt": "a", "criteria": 2}',
        GOOD.strip(),
    ]
    path = write(tmp_path, "r.json", "[" + ",\n".join(lines) + "]")
    of_json = [(1, "duplicate_key"), (1, "model_type"), (2, "json_invalid"), (3, "tuple_type")]
    assert [(error.line, error.code) for error in invalid(path).errors] == of_json
    assert len(load(path, "native", skip_invalid=True)) == 1


def test_load_refuses_a_rubric_of_too_many_criteria(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MAX_CRITERIA", 3)
    monkeypatch.setattr(mapping, "MAX_CRITERIA", 3)
    many = json.dumps({"prompt": "Why?", "criteria": ["Says why."] * 4})
    assert only_error(write(tmp_path, "r.jsonl", many)).path == "criteria"
    csv = write(tmp_path, "r.csv", "criterion\n" + "Says why.\n" * 4)
    assert [(error.code, error.line) for error in invalid(csv, "criteria_csv").errors] == [("too_long", 5)]
    verl = {"prompt": "Why?", "reward_model": {"rubrics": [{"criterion": "Says why.", "points": 1}] * 4}}
    error = invalid(write(tmp_path, "v.jsonl", json.dumps(verl)), "verl").errors[0]
    assert (error.code, error.path) == ("too_long", "reward_model.rubrics")


def test_detect_uses_ending_and_fields(tmp_path: Path) -> None:
    for name, content, format in [
        ("r.jsonl", GOOD, "native"),
        ("r.yaml", "prompt: x\n", "native"),
        ("r.txt", GOOD, "native"),
        ("h.jsonl", '{"prompt_id": "1", "prompt": [], "rubrics": []}\n', "healthbench"),
        ("m.jsonl", '{"prompt_id": "1", "binary_labels": [], "rubric": "x"}\n', "healthbench"),
        ("criteria.jsonl", '{"id": 1, "criterions": {}, "dimension_weight": {}}\n', "deep_research_bench"),
    ]:
        file = InputFile(write(tmp_path, name, content))
        assert detect(file) == format
        assert len(list(file.entries)) == 1  # the record that was looked at is not lost


def test_detect_names_a_misspelt_field_beside_a_rubric(tmp_path: Path) -> None:
    file = write(tmp_path, "a.jsonl", '{"prompt": "Q?", "rubric": "r", "completion": "A"}\n')
    assert [(one.path, one.line) for one in invalid(file, None).errors] == [("completion", 1)]


def test_detect_rejects_unknown_formats(tmp_path: Path) -> None:
    error = invalid(write(tmp_path, "r.jsonl", '{"question": "x", "answer": "y"}\n'), None)
    assert error.errors[0].code == "unknown_format" and "native" in error.hint
    assert invalid(tmp_path, None).errors[0].code == "is_folder"
    (tmp_path / "empty").mkdir()
    assert invalid(tmp_path / "empty", None).errors[0].code == "is_folder"


class Once(io.BytesIO):
    """A stream that cannot be rewound, as stdin."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: object) -> int:
        raise AssertionError("rewound")


def test_stream_reads_a_file_once() -> None:
    for name in ["stdin", "a.yaml", "a.json"]:
        buffer = io.BufferedReader(Once(GOOD.encode()))  # type: ignore[arg-type]  # as sys.stdin.buffer
        assert len(list(stream(InputFile(name, stream=buffer, name="<stdin>")))) == 1
        assert not buffer.closed
