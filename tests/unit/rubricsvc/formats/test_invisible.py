"""Invisible characters in files of rubrics, files of completions, and the data in shared/."""

import json
from pathlib import Path

import pytest

from rubricsvc.core.rubric import Ordinal
from rubricsvc.formats import InputFile, detect, load
from rubricsvc.formats.record import CompletionLine, kind_of, read_completion
from rubricsvc.formats.writing import WRITERS
from tests.unit.rubricsvc.formats.invalid import dump
from tests.unit.rubricsvc.formats.test_load import only_error, write


def test_load_removes_invisible_characters_with_a_note(tmp_path: Path) -> None:
    text = '{"criteria": ["Says\u200b why\U000e0041.", "Is \u202ekind."]}\n'
    records = load(write(tmp_path, "r.jsonl", text))
    assert records[0].rubric is not None
    assert [one.text for one in records[0].rubric.criteria] == ["Says why.", "Is kind."]
    assert [(note.code, note.path) for note in records.notes] == [
        ("invisible", "criteria[0].text"),
        ("invisible", "criteria[1].text"),
    ]


def test_load_removes_invisible_characters_from_every_field_that_a_judge_or_reviewer_reads(tmp_path: Path) -> None:
    hidden = "\u3164\u180e\U000e0120"
    level = {"label": f"bad{hidden}", "value": 0, "text": f"Wrong.{hidden}"}
    judged = {
        "key": f"a{hidden}",
        "text": "Says why.",
        "scale": {"kind": "ordinal", "levels": [level, {"label": "good", "value": 1}]},
        "passages": ["Because.", f"So.{hidden}"],
        "group": [f"style{hidden}"],
        "tags": [f"t{hidden}"],
        "sources": [{"document": "d", "passage": f"So.{hidden}"}],
    }
    checked = {"key": "b", "text": "Has no blanks.", "check": {"name": "forbids", "args": {"any": [hidden]}}}
    data = {"criteria": [judged, checked], "examples": [{"key": "e", "text": f"Hm.{hidden}", "verdicts": {"b": 0}}]}
    records = load(write(tmp_path, "r.jsonl", json.dumps(data) + "\n"))
    rubric = records[0].rubric
    assert rubric is not None and rubric.examples is not None and rubric.criteria[1].check is not None
    assert {note.path for note in records.notes} == {
        "criteria[0].scale.levels[0].label",
        "criteria[0].scale.levels[0].text",
        "criteria[0].passages[1]",
        "criteria[0].group[0]",
        "criteria[0].tags[0]",
        "criteria[0].sources[0].passage",
    }
    first = rubric.criteria[0]
    assert isinstance(first.scale, Ordinal) and first.scale.levels[0].text == "Wrong."
    assert (first.key, first.passages) == (f"a{hidden}", ("Because.", "So."))
    assert (first.group, first.tags) == (("style",), ("t",))
    assert rubric.criteria[1].check.args == {"any": [hidden]} and rubric.examples[0].text == f"Hm.{hidden}"


def test_load_refuses_a_rubric_that_is_invalid_without_its_invisible_characters(tmp_path: Path) -> None:
    levels = [{"label": "good", "value": 0}, {"label": "good\u3164", "value": 1}]
    data = {"criteria": [{"text": "Says why.", "scale": {"kind": "ordinal", "levels": levels}}]}
    assert only_error(write(tmp_path, "r.jsonl", json.dumps(data) + "\n")).code == "invisible"


def read_all(path: Path, text: str) -> tuple[list[CompletionLine], InputFile]:
    path.write_text(text)
    file = InputFile(path)
    return [line for line, _ in file.parse(read_completion)], file


def test_read_accepts_prompts_and_ids(tmp_path: Path) -> None:
    texts = [
        '{"prompt": "Q", "completion": "A", "policy": "p", "step": 3, "sampling": {"temperature": 1}, "id": "x"}',
        '{"prompt_id": 7, "text": ""}',
        '{"prompt_id": "ext", "messages": [{"role": "assistant", "content": "last"}]}',
    ]
    lines, file = read_all(tmp_path / "c.jsonl", "\n".join(texts))
    assert not file.errors.count
    texts = [line.completion.text for line in lines]
    refs = [line.prompt_id for line in lines]
    assert texts == ["A", "", "last"]
    assert refs == [None, 7, "ext"]
    assert kind_of(InputFile(tmp_path / "c.jsonl").first()) == "completions"


def test_read_reports_invalid_lines(tmp_path: Path) -> None:
    for line, path, code in [
        ('{"completion": "A"}', "", "missing"),
        ('{"prompt": "Q", "prompt_id": 1, "completion": "A"}', "", "missing"),
        ('{"prompt": "Q"}', "", "missing"),
        ('{"prompt": "Q", "completion": "A", "text": "B"}', "", "missing"),
        ('{"prompt": "Q", "completion": 5}', "completion", "string_type"),
        ('{"prompt": "Q", "completion": "A", "step": 1.5}', "step", "int_type"),
        ('{"prompt_id": true, "completion": "A"}', "prompt_id", "int_type"),
        ('{"prompt": "Q", "completion": "A", "polcy": "x"}', "polcy", "extra_forbidden"),
        ('{"prompt": "Q", "messages": [{"role": "assistant"}]}', "messages[0].content", "missing"),
        (
            '{"prompt": "Q", "messages": [{"role": "assistant", "content": "", "tool_calls": [{"name": 3}]}]}',
            "messages[0].tool_calls[0].name",
            "string_type",
        ),
        ('"x"', "", "dict_type"),
    ]:
        lines, file = read_all(tmp_path / "c.jsonl", line)
        assert lines == []
        assert (1, path, code) in [(error.line, error.path, error.code) for error in file.errors.errors]


def test_read_accepts_messages_of_openai(tmp_path: Path) -> None:
    text = """{"prompt": "Q", "messages": [
      {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{\\"q\\": 1}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "hit"}]},
      {"role": "assistant", "content": "Done."}]}""".replace("\n", "")
    shaped = (
        '{"prompt": "Q", "completion": {"role": "assistant", "content": "Done.", "reasoning": "Hm.", "logprobs": 1}}'
    )
    (line, *others), file = read_all(tmp_path / "c.jsonl", "\n".join((text, shaped, shaped)))
    assert not file.errors.count
    assert [(note.line, note.message) for note in file.errors.notes] == [(None, "ignored in messages: logprobs")]
    assert [one.completion.messages[0].reasoning for one in others] == ["Hm.", "Hm."]
    completion = line.completion
    assert completion.text == others[0].completion.text == "Done."
    assert [message.text for message in completion.messages] == ['[calls search({"q": 1})]', "hit", "Done."]


RUBRICS = {
    "biggen": "biggen_bench/instances.jsonl",
    "cherrl": "cherrl_reward_hacking/rollouts.jsonl",
    "deep_research_bench": "deep_research_bench/criteria.jsonl deep_research_bench/reports_*.jsonl",
    "deepscholar": "deepscholar_bench/gt_nuggets_outputs/*/*.json",
    "evalbiasbench": "evalbiasbench/pairs.jsonl",
    "gsm8k": "gsm8k/example_model_solutions.jsonl",
    "healthbench": "healthbench_val500/healthbench_val.jsonl",
    "hellobench": "hellobench/queries/*.jsonl",
    "ifeval": "if*/I*_test.jsonl if*/input_data.jsonl",
    "llmbar": "llmbar/LLMBar/*/*.json llmbar/LLMBar/*/*/dataset.json",
    "paperbench": "paperbench/*/*.json",
    "scholarqa": "scholarqabench/*.jsonl scholarqabench/human_answers.json",
    "truthfulqa": "truthfulqa_human/*.jsonl",
    "writingbench": "writingbench/*.jsonl",
}
"""Files by format. The other files of the folders have no rubrics: documents, judges' scores, statistics."""
COUNTS = {
    "llmbar/LLMBar/Natural/dataset.json": 200,
    "evalbiasbench/pairs.jsonl": 58,
    "gsm8k/example_model_solutions.jsonl": 2248,
    "cherrl_reward_hacking/rollouts.jsonl": 90,
    "truthfulqa_human/finetune_truth.jsonl": 15837,
    "healthbench_val500/healthbench_val.jsonl": 257,
    "ifeval/input_data.jsonl": 541,
}
"""Records of some files."""
SKIPS_INVALID = {"human_answers.json"}
"""Has NaN, which is no JSON."""


@pytest.mark.parametrize("name", RUBRICS)
def test_load_reads_every_public_set(name: str, shared_data: Path, tmp_path: Path) -> None:
    paths = [path for pattern in RUBRICS[name].split() for path in sorted(shared_data.glob(pattern))]
    assert paths
    for number, path in enumerate(paths):
        assert path.name in SKIPS_INVALID or detect(InputFile(path)) == name
        records = load(path, name, skip_invalid=path.name in SKIPS_INVALID)
        rubrics = [record for record in records if record.rubric is not None]
        assert len(records) == COUNTS.get(str(path.relative_to(shared_data)), len(records) or 1)
        if name not in WRITERS or not rubrics:
            continue
        out = tmp_path / f"{number}.jsonl"
        dump(rubrics, out, name)
        again = load(out, name)
        assert [record.rubric for record in again] == [record.rubric for record in rubrics]
        assert [record.prompt for record in again] == [record.prompt for record in rubrics]
