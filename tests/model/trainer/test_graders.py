"""OpenAI's graders as the rewards of a training run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rubricsvc.core.prompt import Completion
from rubricsvc.formats import load
from rubricsvc.store.judges import CHECKS
from trainer.data.tasks import Task
from trainer.rewards.source import JudgeRewards

GRADER = {
    "type": "multi",
    "name": "both",
    "graders": {
        "same": {
            "type": "string_check",
            "name": "same",
            "input": "{{sample.output_text}}",
            "reference": "{{item.answer}}",
            "operation": "like",
        },
        "near": {
            "type": "text_similarity",
            "name": "near",
            "input": "{{sample.output_text}}",
            "reference": "{{item.answer}}",
            "evaluation_metric": "fuzzy_match",
        },
    },
    "calculate_output": "2 * same + near",
}


def test_judge_rewards_grade_each_prompt_by_its_item(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": f"{n}?"}], "answer": str(n) * 4} for n in (1, 2)]
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(json.dumps({"item": row, "grader": GRADER}) for row in rows))
    tasks = [Task(r.prompt, r.rubric) for r in load(path, format="openai_grader") if r.prompt and r.rubric]
    with JudgeRewards(CHECKS) as rewards:
        scored = rewards.score(tasks, [Completion(text="1111")] * 2)
    assert [result.reward.value for result in scored] == pytest.approx([3.0, 0.0])
