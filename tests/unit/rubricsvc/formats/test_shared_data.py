"""Every public data set in, and out where its format can be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubricsvc.formats import InputFile, detect, dump, load
from rubricsvc.formats.writing import WRITERS

RUBRICS = {
    "biggen": "biggen_bench/instances.jsonl",
    "cherrl": "cherrl_reward_hacking/rollouts.jsonl",
    "deep_research_bench": "deep_research_bench",
    "deepscholar": "deepscholar_bench/gt_nuggets_outputs",
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
        lost = dump(rubrics, out, name)
        assert not lost.fields
        again = load(out, name)
        assert [record.rubric for record in again] == [record.rubric for record in rubrics]
        assert [record.prompt for record in again] == [record.prompt for record in rubrics]
