"""One small record of each format: what is read, and that it is read again from what is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.core.reward import reward
from rubricsvc.core.rubric import Binary, Numeric, Ordinal, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.formats import FORMATS, InputFile, Record, detect, dump, load
from tests.unit.rubricsvc.formats.invalid import errors_of

BANDS = {band: f"Band {band}." for band in ("1-2", "3-4", "5-6", "7-8", "9-10")}
SCHOLARQA = {
    "initial_prompt": "What is unique k-SAT?", "case_id": "k1", "annotator": "Annotator 1", "agreement": True,
    "metric_config": {"name": "rubric_corpusqa_generic", "config": {
        "question": "What is unique k-SAT?", "low_length": 300, "high_length": 600, "length_weight": 0.05,
        "expertise_weight": 0.05, "citations_weight": 0.2, "excerpts_weight": 0.1,
        "other_properties": [
            {"name": "most_important_item_0", "criterion": "Defines it.", "weight": 0.6, "evidence": ["It is …"]}]}},
}  # fmt: skip
BIGGEN = {
    "id": "planning_1", "capability": "planning", "task": "travel", "instance_idx": 1, "system_prompt": "You plan.",
    "input": "Plan a day in Paris.", "reference_answer": "Louvre.",
    "score_rubric": {"criteria": "Is it feasible?", **{f"score{n}_description": f"Level {n}." for n in range(1, 6)}},
    "response": "Hello World!", "response_model_name": "sample-model",
}  # fmt: skip
WRITINGBENCH = {
    "index": 7, "domain1": "Education", "domain2": "Lesson", "query": "Write a lesson plan.",
    "checklist": [{"name": "Completeness", "criteria_description": "Has all parts.", **BANDS},
                  {"name": "Safety", "criteria_description": "Names the risks.", **BANDS}],
}  # fmt: skip
HELLOBENCH = {
    "id": "chat_1", "category": "guide", "instruction": "Write 25 ways.", "checklists": ["Is it long?", "Is it true?"],
    "formatted_checklists": "[]", "num_checklist": 2, "requirements": None, "raw_text": "Write 25 ways.",
}  # fmt: skip
DEEPSCHOLAR = {
    "qid": "2506.1", "query": "Write a Related Works section.",
    "nuggets": [{"text": "Taxes adapt", "importance": "vital", "assignment": "support"},
                {"text": "Agents model people", "importance": "okay", "assignment": "not_support"}],
}  # fmt: skip
LABEL = {"query": "Why?", "rubrics": [{"description": "Says why.", "weight": 2, "title": "why"},
                                      {"description": "Is rude.", "weight": -1}]}  # fmt: skip
GROUND_TRUTH = {
    "messages": [{"role": "user", "content": "Why?"}],
    "ground_truth": json.dumps(LABEL),
    "dataset": "rubric",
}
VERL = {
    "prompt": [{"role": "user", "content": "What is 6 x 7?"}], "data_source": "made", "ability": "math",
    "reward_model": {"style": "rubric", "ground_truth": "42", "rubrics": [
        {"criterion": "Is correct.", "points": 10.0,
         "tags": {"verifier": "rule", "function": "math_verify", "parameters": {"answer": "42", "unused": None}}},
        {"criterion": "paragraphs:two", "points": 5,
         "tags": {"verifier": "rule", "function": "ParagraphChecker", "parameters": {"num_paragraphs": 2.0}}},
        {"criterion": "Explains.", "points": 3, "tags": {"verifier": "llm", "function": "", "parameters": None}},
        {"criterion": "Is rude.", "points": -2, "tags": ["axis:tone", "level:example"]}]},
    "extra_info": {"index": 3},
}  # fmt: skip
RUBRICHUB = {"question": "Why?", "id": "r1", "rubrics": [{"criterion": "Says why.", "points": 7},
                                                        {"criterion": "Is rude.", "points": -3}]}  # fmt: skip
PROFBENCH = {
    "task_id": "t1", "domain": "Finance", "prompt": "Value the company.", "o3_response": "It is worth 5.",
    "rubrics": [
        {"criterion_description": "States the value.", "criterion_type": "Extraction", "criterion_weight": "Critical",
         "o3_fulfilment": True, "grok4_fulfilment": "No"},
        {"criterion_description": "Is formatted.", "criterion_type": ["Style"], "criterion_weight": "Additional",
         "o3_fulfilment": "no", "grok4_fulfilment": "Yes"}],
}  # fmt: skip
TINKER = {"convo": [{"role": "user", "content": "Why?"}], "rubric_items": [
    {"rubric_str": "Says why.", "extraction_regex": r"<score>(.*)</score>",
     "grader_output_format_instruction": "Please output your score between 0 and 1 wrapped in <score> ... </score>"},
    {"rubric_str": "Is kind."}]}  # fmt: skip
OPTIONS = [{"label": "bad", "value": 0.0}, {"label": "good", "value": 1.0}, {"label": "n/a", "value": 0.0, "na": True}]
AUTORUBRIC = {
    "name": "essays", "prompt": "Explain it.", "reference_submission": "So.",
    "rubric": {"guidelines": "Be strict.", "sections": [
        {"name": "facts", "criteria": [{"name": "true", "weight": 10, "requirement": "Is true."}]},
        {"criteria": [{"requirement": "Satisfies.", "options": OPTIONS, "scale_type": "nominal"}]}]},
    "items": [{"submission": "Because.", "description": "good", "ground_truth": ["MET", "good"],
               "ground_truth_reasons": ["It is.", None]},
              {"submission": "No.", "description": "bad", "ground_truth": ["CANNOT_ASSESS", "n/a"]}],
}  # fmt: skip
LDC = {
    "sections": [{"criteria": [{"weight": 10, "requirement": "Is true."}]}, {"weight": -5, "requirement": "Is rude."}]
}
HARBOR = """\
[judge]
judge = "anthropic/some-model"
samples = 3
guard = "penalize"

[[criterion]]
description = "Edge cases are handled."
name = "edge_cases"
type = "likert"
points = 5
weight = 2.0

[[criterion]]
description = "Modifies files outside of /app."
negate = true

[[criterion]]
description = "Clarity."
type = "rubric"
levels = ["unclear", "partly clear", "clear"]
optional = true

[[criterion]]
description = "Coverage."
type = "numeric"
min = 0
max = 100
annotations = {importance = "optional"}
"""
CANVAS = (
    "Rubric Name,Criteria Name,Criteria Description,Criteria Enable Range"
    + ",Rating Name,Rating Description,Rating Points" * 3
    + "\nEssay,Thesis,Has a <b>thesis</b>,true,Full,Clear,5,Part,Vague,2,None,,0"
    + "\nEssay,Style,,false,Met,,3,Not met,,0\n"
)
RESEARCHRUBRICS = """\
prompt,title,weight,category,gpt_present,gpt_response
"Compare A, and B",Names A,5,Explicit,Satisfied,A is good.
,Invents facts,-4,Implicit,Not Satisfied,
,Compares them,3,Synthesis,Partially Satisfied,
"""
FILES: dict[str, tuple[str, Any]] = {
    "scholarqa": (".jsonl", SCHOLARQA), "biggen": (".jsonl", BIGGEN), "writingbench": (".jsonl", WRITINGBENCH),
    "hellobench": (".jsonl", HELLOBENCH), "deepscholar": (".json", DEEPSCHOLAR), "verl": (".jsonl", VERL),
    "rubrichub": (".jsonl", RUBRICHUB), "profbench": (".jsonl", PROFBENCH), "tinker": (".jsonl", TINKER),
    "autorubric": (".json", AUTORUBRIC), "harbor": (".toml", HARBOR), "canvas": (".csv", CANVAS),
    "researchrubrics": (".csv", RESEARCHRUBRICS), "dr_tulu": (".jsonl", GROUND_TRUTH),
    "open_instruct": (".jsonl", LABEL), "ldc": (".json", LDC),
}  # fmt: skip
AMBIGUOUS = {"dr_tulu", "open_instruct", "ldc"}


def write(folder: Path, name: str) -> Path:
    ending, content = FILES[name]
    path = folder / f"{name}{ending}"
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text + "\n" if ending == ".jsonl" else text, encoding="utf-8")
    return path


def first(folder: Path, name: str) -> tuple[Record, Rubric]:
    record = load(write(folder, name), name)[0]
    assert record.rubric is not None
    return record, record.rubric


@pytest.mark.parametrize("name", FILES)
def test_detect_recognizes_each_format(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, name)
    if name not in AMBIGUOUS:
        assert detect(InputFile(path)) == name
        assert load(path, "auto")
    else:
        assert errors_of(path)[0][3] == "ambiguous_format"
        assert load(path, name)


@pytest.mark.parametrize("name", FILES)
def test_dump_writes_what_is_read_back(name: str, tmp_path: Path) -> None:
    (record, *_) = load(write(tmp_path, name), name)
    out = tmp_path / f"out{ {'csv': '.csv', 'toml': '.toml'}.get(FORMATS[name].kind, '.jsonl') }"
    lost = dump([record], out, name)
    (again, *_) = load(out, name)
    assert again.rubric is not None and record.rubric is not None
    assert [c.text for c in again.rubric.criteria] == [c.text for c in record.rubric.criteria]
    assert [c.weight for c in again.rubric.criteria] == [c.weight for c in record.rubric.criteria]
    assert [c.scale for c in again.rubric.criteria] == [c.scale for c in record.rubric.criteria]
    assert [c.check for c in again.rubric.criteria] == [c.check for c in record.rubric.criteria]
    assert again.rubric.formula == record.rubric.formula
    assert set(lost.fields) <= {"name", "id", "completions", "labels", "criteria[].group", "criteria[].key"}


def test_scholarqa_has_the_fixed_properties(tmp_path: Path) -> None:
    record, rubric = first(tmp_path, "scholarqa")
    assert rubric.by_key["length"].check is not None and rubric.by_key["length"].check.args == {"min": 300, "max": 600}
    assert rubric.by_key["most_important_item_0"].passages == ("It is …",)
    assert sum(c.weight for c in rubric.criteria) == pytest.approx(1.0)
    assert record.name == "scholarqa-k1-Annotator 1"


def test_biggen_gives_prometheus_scores(tmp_path: Path) -> None:
    record, rubric = first(tmp_path, "biggen")
    assert record.completions == () and record.prompt is not None and record.prompt.reference == "Louvre."
    assert reward(rubric, [Verdict.scored("score", 0.75)]).value == pytest.approx(4.0)


def test_writingbench_scores_from_one_to_ten(tmp_path: Path) -> None:
    _, rubric = first(tmp_path, "writingbench")
    assert rubric.criteria[0].scale == Numeric(low=1.0, high=10.0)
    assert "9-10: Band 9-10." in rubric.criteria[0].text


def test_deepscholar_weighs_vital_nuggets_double(tmp_path: Path) -> None:
    _, rubric = first(tmp_path, "deepscholar")
    assert [c.weight for c in rubric.criteria] == [1.0, 0.5]


def test_verl_makes_checks_of_rules(tmp_path: Path) -> None:
    path = write(tmp_path, "verl")
    file = InputFile(path)
    record, rubric = first(tmp_path, "verl")
    checks = [c.check.model_dump() if c.check else None for c in rubric.criteria]
    assert checks[0] == {"name": "math", "args": {"answer": "42"}}
    kwargs = {"instruction_id": "length_constraints:number_paragraphs", "kwargs": {"num_paragraphs": 2}}
    assert checks[1:] == [{"name": "ifeval", "args": kwargs}, None, None]
    assert rubric.criteria[3].tags == ("axis:tone", "level:example")
    assert record.prompt is not None and record.prompt.reference == "42" and record.id == "3"
    assert detect(file) == "verl"


def test_verl_notes_a_rule_without_a_check(tmp_path: Path) -> None:
    tags = {"verifier": "rule", "function": "Unknown", "parameters": {"a": 1}}
    row = {**VERL, "reward_model": {"rubrics": [{"criterion": "Does it.", "points": 1, "tags": tags}]}}
    path = tmp_path / "v.jsonl"
    path.write_text(json.dumps(row) + "\n")
    records = load(path)
    assert [(note.code, note.path) for note in records.notes] == [("rule", "reward_model.rubrics[0].tags")]
    assert records[0].rubric is not None and records[0].rubric.criteria[0].check is None


def test_harbor_reads_scales_negation_and_notes_the_judge(tmp_path: Path) -> None:
    records = load(write(tmp_path, "harbor"))
    assert records[0].rubric is not None
    likert, negated, levels, numeric = records[0].rubric.criteria
    assert (likert.scale, likert.weight, likert.key) == (Numeric(low=1.0, high=5.0), 2.0, "edge_cases")
    assert negated.text.endswith("Modifies files outside of /app.") and negated.text != HARBOR
    assert isinstance(levels.scale, Ordinal) and [one.value for one in levels.scale.levels] == [0.0, 0.5, 1.0]
    assert "optional" in levels.tags and "optional" in numeric.tags
    assert [note.code for note in records.notes] == ["judge"]


@pytest.mark.parametrize(
    ("scoring", "path", "line"),
    [
        ('aggregation = "threshold"', "scoring.aggregation", 31),
        ('aggregation = "median"', "scoring.aggregation", 31),
        ('aggregation = "required-pass"', "criterion[2]", 17),
    ],
)
def test_harbor_refuses_an_aggregation_without_a_formula(scoring: str, path: str, line: int, tmp_path: Path) -> None:
    file = tmp_path / "judge.toml"
    file.write_text(f"{HARBOR}\n[scoring]\n{scoring}\n")
    assert [(error[1], error[2]) for error in errors_of(file)] == [(line, path)]


def test_profbench_labels_belong_to_the_response_in_the_row(tmp_path: Path) -> None:
    with_response, without = load(write(tmp_path, "profbench"))
    assert [completion.policy for completion in with_response.completions] == ["o3"]
    assert [label.value for label in with_response.labels] == [1.0, 0.0]
    assert without.completions == () and [label.value for label in without.labels] == [0.0, 1.0]
    assert with_response.rubric is not None and [c.weight for c in with_response.rubric.criteria] == [4.0, 1.0]


def test_researchrubrics_reads_the_prompt_of_the_first_row(tmp_path: Path) -> None:
    record, rubric = first(tmp_path, "researchrubrics")
    assert record.prompt is not None and record.prompt.text == "Compare A, and B"
    assert [label.value for label in record.labels] == [1.0, 0.0, 0.5]
    assert record.completions[0].text == "A is good." and rubric.formula == "researchrubrics"
    verdicts = [label.verdict for label in record.labels]
    assert reward(rubric, verdicts).value == pytest.approx((5 - 0 + 1.5) / 8)


def test_autorubric_reads_sections_options_and_submissions(tmp_path: Path) -> None:
    good, bad = load(write(tmp_path, "autorubric"))
    assert good.rubric is not None
    true, satisfies = good.rubric.criteria
    assert (true.key, true.group, true.passages) == ("true", ("facts",), ("Be strict.",))
    assert satisfies.weight == 10.0 and satisfies.tags == ("scale_type:nominal", "na:n/a")
    assert isinstance(satisfies.scale, Ordinal) and isinstance(true.scale, Binary)
    assert [label.value for label in good.labels] == [1.0, 1.0] and good.labels[0].note == "It is."
    assert [label.value for label in bad.labels] == [None, None]


@pytest.mark.parametrize("form", ["list", "rubric", "sections", "criteria"])
def test_autorubric_reads_each_form_of_a_rubric(form: str, tmp_path: Path) -> None:
    criteria = [{"requirement": "Is true.", "name": "true"}, {"requirement": "Is kind.", "weight": -2}]
    data: Any = {
        "list": criteria,
        "rubric": {"rubric": criteria},
        "sections": {"sections": [{"criteria": criteria}]},
        "criteria": {"criteria": criteria},
    }[form]
    path = tmp_path / "rubric.json"
    path.write_text(json.dumps(data, indent=1))
    (record,) = load(path)
    assert record.rubric is not None
    assert [(c.key, c.weight) for c in record.rubric.criteria] == [("true", 10.0), ("c2", -2.0)]


def test_canvas_reads_ratings_as_levels(tmp_path: Path) -> None:
    record, rubric = first(tmp_path, "canvas")
    thesis, style = rubric.criteria
    assert record.name == "Essay" and thesis.text == "Has a <b>thesis</b>" and thesis.tags == ("range",)
    assert isinstance(thesis.scale, Ordinal) and [one.value for one in thesis.scale.levels] == [1.0, 0.4, 0.0]
    assert style.text == "Style" and isinstance(style.scale, Binary) and style.weight == 3.0


def test_canvas_writes_no_html_and_no_formula(tmp_path: Path) -> None:
    record, rubric = first(tmp_path, "canvas")
    evil = rubric.criteria[0].model_copy(update={"text": "=cmd()|<script>"})
    out = tmp_path / "out.csv"
    dump([Record(None, Rubric(criteria=(evil,)), name="=1+1")], out, "canvas")
    text = out.read_text()
    assert "'=cmd()|&lt;script&gt;" in text and "'=1+1" in text
    (again,) = load(out)
    assert again.rubric is not None and again.rubric.criteria[0].text == "=cmd()|<script>"
    assert record.name == "Essay"


def test_open_instruct_and_dr_tulu_differ_in_the_formula(tmp_path: Path) -> None:
    assert first(tmp_path, "open_instruct")[1].formula == "open_instruct"
    assert first(tmp_path, "dr_tulu")[1].formula == "dr_tulu"
