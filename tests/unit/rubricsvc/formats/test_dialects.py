"""Formats of other projects: what is read of a small file of each, of published files, and errors with their places."""

import json
from copy import deepcopy
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from rubricsvc.core.reward import reward
from rubricsvc.core.verdict import Verdict
from rubricsvc.formats import FORMATS, InputFile, InvalidFileError, detect, load, writing
from rubricsvc.formats.input_file import read_yaml
from rubricsvc.formats.record import kind_of
from rubricsvc.formats.writing import WRITERS
from tests.unit.rubricsvc.formats.invalid import dump, errors_of

FILE = Path(__file__).with_name("dialects.yaml")
CASES: dict[str, Any] = {case["name"]: case for case, _, _ in read_yaml(FILE.read_text(encoding="utf-8"), FILE.name)}
AMBIGUOUS = {"dr_tulu", "open_instruct"}
"""Formats that look the same as another one."""
READ_AS = {"ldc": "autorubric"}
"""Formats that are named, because their files are of another one as well."""
NAMES = sorted({case["format"] for case in CASES.values()})


def write(folder: Path, name: str, content: Any = None) -> Path:
    case = CASES[name]
    path = folder / f"{name}{case['ending']}"
    content = case["content"] if content is None else content
    lines = content if isinstance(content, list) and case["ending"] == ".jsonl" else [content]
    path.write_text(content if isinstance(content, str) else "\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


@pytest.mark.parametrize("format", NAMES)
def test_each_format_is_detected_and_read_and_written_where_it_can_be(format: str, tmp_path: Path) -> None:
    for name in (name for name, case in CASES.items() if case["format"] == format):
        path = write(tmp_path, name)
        records = load(path, format)
        assert [writing.plain(record) | {"line": record.location.line} for record in records] == CASES[name]["records"]
        assert kind_of(InputFile(path).first()) in (None, "completions")
        if format in AMBIGUOUS:
            assert errors_of(path)[0][3] == "ambiguous_format"
        else:
            assert detect(InputFile(path)) == READ_AS.get(format, format)
        if format in WRITERS:
            record, out = records[0], tmp_path / "out.jsonl"
            dump([record], out, format)
            (again, *_) = load(out)
            assert (again.rubric, again.prompt) == (record.rubric, record.prompt) or name == "healthbench_meta"


def changed(content: Any, path: str, value: Any) -> Any:
    content = deepcopy(content)
    *steps, last = [int(step) if step.isdecimal() else step for step in path.split(".")]
    place = content
    for step in steps:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return content


ERRORS: list[tuple[str, str, Any, str]] = [
    ("healthbench", "rubrics", [], "rubrics"),
    ("healthbench", "rubrics.1.points", "5", "rubrics[1].points"),
    ("healthbench", "rubrics.1.points", ..., "rubrics[1].points"),
    ("healthbench", "rubrics", [{"criterion": "a", "points": 0}], ""),
    ("healthbench", "rubrics", [{"criterion": "a", "points": -1}], "formula"),
    ("healthbench", "prompt", 7, "prompt"),
    ("healthbench", "prompt.0.role", "doctor", "prompt[0].role"),
    ("healthbench", "prompt_id", ..., "prompt_id"),
    ("healthbench_meta", "binary_labels", [True, 7], "binary_labels[1]"),
    ("healthbench_meta", "completion", ..., "completion"),
    ("scholarqa", "metric_config.config.length_weight", "x", "metric_config.config.length_weight"),
    ("biggen", "score_rubric.score3_description", 3, "score_rubric.score3_description"),
    ("biggen", "input", "", "input"),
    ("writingbench", "checklist.1.3-4", ..., "checklist[1].3-4"),
    ("hellobench", "checklists.0", "", "checklists[0]"),
    ("deepscholar", "nuggets.1.importance", "much", "nuggets[1].importance"),
    ("open_instruct", "rubrics.0.weight", "2", "rubrics[0].weight"),
    ("dr_tulu", "ground_truth", "{", "ground_truth"),
    ("verl", "reward_model.rubrics.0.criterion", ..., "reward_model.rubrics[0].criterion"),
    ("verl", "reward_model.rubrics.0.tags", 5, "reward_model.rubrics[0].tags"),
    ("rubrichub", "rubrics.1.points", "x", "rubrics[1].points"),
    ("rar", "rubric.1.description", ..., "rubric[1].description"),
    ("prbench", "rubric.1.annotations.detrimental_weight", ..., "rubric[1].annotations.critically_detrimental_weight"),
    ("openrubrics", "instruction", 7, "instruction"),
    ("verifiers_json", "criteria.0.weight", "x", "criteria[0].weight"),
    ("advancedif", "prompt_metadata", "{", "prompt_metadata"),
    ("infobench", "1.decomposed_questions.0", "", "decomposed_questions[0]"),
    ("label_studio", "0.annotations.0.result.0.from_name", ..., "annotations[0].result[0].from_name"),
    ("promptfoo", "prompts.0", "file://prompt.txt", "prompts[0]"),
    ("promptfoo", "prompts.0", '[{"role": "user", "content": {{x}}}]', "prompts[0]"),
    ("promptfoo", "prompts.0", "- role: user\n- x", "prompts[0]"),
    ("promptfoo", "prompts.0", "prompts/a.txt", "prompts[0]"),
    ("promptfoo", "prompts.0", {"id": "x"}, "prompts[0]"),
    ("promptfoo", "prompts.0", "{{ question | upper }}", "prompts[0]"),
    ("promptfoo", "tests.0.vars.question", ["a", "b"], "prompts[0]"),
    ("promptfoo", "tests.0.vars.question", "file://a.txt", "prompts[0]"),
    ("promptfoo", "tests.0.vars", "file://vars.yaml", "tests[0].vars"),
    ("promptfoo", "tests", "file://tests.yaml", "tests"),
    ("promptfoo", "tests.0", "file://tests.yaml", "tests[0]"),
    ("promptfoo", "tests.0.assert.0.value", "file://rubric.txt", "tests[0].assert[0].value"),
    ("promptfoo", "tests.0.assert.0.value", ["a", "b"], "tests[0].assert[0].value"),
    ("promptfoo", "defaultTest.assert.0.value", "{% if who %}a{% endif %}", "defaultTest.assert[0].value"),
    ("argilla", "0.responses.clear.0.status", "x", "responses.clear[0].status"),
    ("argilla_flat", "0.prompt", 7, "prompt"),
    ("prodigy", "1.answer", "x", "answer"),
    ("doccano", "1.prompt", ..., "input"),
    ("langfuse", "0.source", "x", "source"),
    ("vertex_groups", "rubric_groups.a.0.content.property", ..., "rubric_groups.a[0].content.property.description"),
    ("profbench", "rubrics.0.criterion_weight", "huge", "rubrics[0].criterion_weight"),
    ("profbench", "rubrics.1.o3_fulfilment", "maybe", "rubrics[1].o3_fulfilment"),
    ("tinker", "convo.0.role", "usr", "convo[0].role"),
    ("autorubric", "rubric.sections.0.criteria.0.weight", "x", "rubric.sections[0].criteria[0].weight"),
    ("autorubric", "items.0.ground_truth", ["MET"], "items[0].ground_truth"),
    ("autorubric", "items.0.ground_truth", ["MET", "fine"], "items[0].ground_truth[1]"),
    ("autorubric", "rubric.sections", [], "rubric.sections"),
    ("deep_research_bench", "dimension_weight.insight", -1.0, "dimension_weight.insight"),
    ("deep_research_bench", "criterions.insight.0.weight", "x", "criterions.insight[0].weight"),
    ("deep_research_bench", "criterions.readability", ..., "criterions.readability"),
    ("deep_research_bench", "dimension_weight", {"insight": 0.0}, "formula"),
    ("llmbar", "label", 3, "label"),
    ("llmbar", "output_2", None, "output_2"),
    ("evalbiasbench", "response1", 7, "response1"),
    ("gsm8k", "small", "A: 5", "small"),
    ("gsm8k", "small", {"solution": "A: 5"}, "small.is_correct"),
    ("cherrl", "run_name", "", "run_name"),
    ("truthfulqa", "1.completion", "maybe", "completion"),
    ("truthfulqa", "1.prompt", "Q: What is the sky?", "prompt"),
    ("ifeval", "kwargs", [{}], "kwargs"),
    ("ifeval", "kwargs", "x", "kwargs"),
    ("ifeval", "prompt", "", "prompt"),
    ("ifeval", "key", None, "key"),
]  # fmt: skip


@pytest.mark.parametrize("name", dict.fromkeys(name for name, *_ in ERRORS))
def test_load_reports_line_and_field(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    for _, field, value, path in (one for one in ERRORS if one[0] == name):
        content = changed(case["content"], field, value)
        if isinstance(content, dict) and case["ending"] == ".jsonl":
            content = [case["content"], content]
        file = write(tmp_path, name, content)
        line = 2 if case["ending"] == ".jsonl" else 1
        assert (file.name, line, path) in [error[:3] for error in errors_of(file, case["format"])], field


def test_load_reports_lines_of_rows(tmp_path: Path) -> None:
    for name, text, errors in [
        (
            "researchrubrics",
            CASES["researchrubrics"]["content"] + '"Second",T,1,,Satisfied,\n,U,x,,nope,\n',
            [(6, "[1].weight"), (6, "[1].gpt_present")],
        ),
        ("researchrubrics", "prompt,title,weight,category\n,T,1,c\n", [(2, "[0].prompt")]),
        (
            "autorubric_list",
            json.dumps([{"requirement": "a"}, {"requirement": 5}], indent=1),
            [(5, "criteria[1].requirement")],
        ),
    ]:
        found = errors_of(write(tmp_path, name, text), CASES[name]["format"])
        assert [error[1:3] for error in found] == errors


def test_load_notes_what_is_read_in_another_way(tmp_path: Path) -> None:
    for name, expected in {
        "verl_unknown": [("rule", "reward_model.rubrics[0].tags", "")],
        "label_studio": [("ignored", "", "tone"), ("ignored", "", "left")],
        "label_studio_min": [("ignored", "", "tone"), ("ignored", "", "left")],
        "label_studio_csv": [("ignored", "", "tone")],
        "argilla": [("ignored", "", one) for one in ("discarded", "draft", "to tone")],
        "argilla_flat": [("ignored", "", one) for one in ("discarded", "draft", "to tone")],
        "prodigy": [("ignored", "", one) for one in ("reject", "ignore", "without options")],
        "doccano": [("ignored", "", "without one label")],
        "langfuse_csv": [("ignored", "", "EVAL")],
        "promptfoo": [
            ("ignored", "", one)
            for one in ("javascript", "of not-llm", "of llm", "contains", "of tests", "but", "of assert-set", "regex")
        ],
    }.items():
        notes = load(write(tmp_path, name)).notes
        assert [(note.code, note.path) for note in notes] == [(code, path) for code, path, _ in expected], name
        assert all(part in note.message for note, (*_, part) in zip(notes, expected, strict=True)), notes


def test_load_reads_criteria_and_reports_of_deep_research_bench(tmp_path: Path) -> None:
    task = CASES["deep_research_bench"]["content"]
    report = {"id": 2, "prompt": task["prompt"], "article": "# Report"}
    files = {"criteria.jsonl": task, "reports_some-model.jsonl": report}
    for name, line in files.items():
        (tmp_path / name).write_text(json.dumps(line) + "\n")
    records = [record for name in files for record in load(tmp_path / name)]
    assert [record.rubric is not None for record in records] == [True, False]
    assert [(one.text, one.policy) for one in records[1].completions] == [("# Report", "some-model")]
    assert records[0].prompt == records[1].prompt
    (rubric,) = (record.rubric for record in records if record.rubric is not None)
    verdicts = [Verdict.scored("insight-1", 1), Verdict.scored("insight-2", 0), Verdict.scored("readability-1", 1)]
    assert reward(rubric, verdicts).value == pytest.approx(0.75 * 0.4 + 0.25)


def test_detect_distinguishes_truthfulqa_from_completions() -> None:
    row = CASES["truthfulqa"]["content"][0]
    assert kind_of(row) is None
    assert kind_of(row | {"prompt": "Q: What is the sky?"}) == "completions"


MINE = """\
tables: {points: {high: 3, low: 1}}
record:
  id: nr
  prompt: task.question
  criteria:
    each: task.checks
    text: "{what}, for sure"
    weight: importance | lookup points
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    return path


def rows(folder: Path, *importances: str) -> Path:
    lines = [
        {"nr": 4, "task": {"question": "Why?", "checks": [{"what": "A", "importance": one}]}} for one in importances
    ]
    path = folder / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_load_reads_by_a_mapping_file(mine: Path, tmp_path: Path) -> None:
    (record,) = load(rows(tmp_path, "high"), mapping=mine)
    assert record.rubric is not None
    assert (record.id, record.rubric.criteria[0].text, record.rubric.criteria[0].weight) == ("4", "A, for sure", 3.0)


def test_load_reports_errors_at_the_fields_of_the_file(mine: Path, tmp_path: Path) -> None:
    records = load(rows(tmp_path, "high", "huge"), mapping=mine, skip_invalid=True)
    assert [(one.line, one.path) for one in records.skipped] == [(2, "task.checks[0].importance")]


def test_load_mapping_reports_line_and_path(mine: Path, tmp_path: Path) -> None:
    for change, line, path in [
        (("lookup points", "lookup pints"), 8, "record.criteria.weight"),
        (("lookup points", "look points"), 8, "record.criteria.weight"),
        (("  prompt:", "  promt:"), 4, "record.promt"),
        (("tables:", "table:"), 1, "table"),
        (("record:", "extends: nothing\nrecord:"), 2, "extends"),
        (("record:", "patterns: {a: '('}\nrecord:"), 2, "patterns.a"),
    ]:
        mine.write_text(MINE.replace(*change, 1))
        with pytest.raises(InvalidFileError) as caught:
            load(rows(tmp_path, "high"), mapping=mine)
        assert (line, path) in [(error.line, error.path) for error in caught.value.errors], change


def test_mapping_files_of_the_package_are_valid() -> None:
    assert all(one.mapping.about for one in FORMATS.values())


def test_load_takes_linear_time_for_repeated_and_missing_fields(tmp_path: Path) -> None:
    for criterion in ({"criterion": "x"}, {"criterion": "x", "points": 1}):
        path = write(tmp_path, "healthbench", {**CASES["healthbench"]["content"], "rubrics": [criterion] * 5_000})
        began = process_time()
        try:
            load(path)
        except InvalidFileError as error:
            assert error.errors[0].path == "rubrics[0].points"
        assert process_time() - began < 5.0  # ten times what it takes
