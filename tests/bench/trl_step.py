"""The other side of `bench_train`: the same step by TRL's GRPOTrainer, in an environment that has TRL.

    PYTHON -m tests.bench.trl_step MODEL_FOLDER STEPS QUESTIONS_AS_JSON

16 completions of 40 tokens, a reward that costs nothing, and TRL's defaults but for gradient checkpointing. The last
line is JSON: the median seconds of a step, the first one left out. It imports nothing of this project.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Clock(TrainerCallback):  # type: ignore[misc] # this file runs where transformers has no types
    def __init__(self) -> None:
        self.begun = 0.0
        self.took: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.begun = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.took.append(time.perf_counter() - self.begun)


def main(folder: str, steps: str, questions: str) -> None:
    prompts = [[{"role": "user", "content": question}] for question in json.loads(questions)]
    clock = Clock()
    with tempfile.TemporaryDirectory() as out:
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype="float32"),
            processing_class=AutoTokenizer.from_pretrained(folder),
            reward_funcs=lambda completions, **_: [float(len(one[0]["content"])) for one in completions],
            args=GRPOConfig(
                output_dir=str(Path(out)),
                max_steps=int(steps) + 1,
                per_device_train_batch_size=16,
                num_generations=4,
                max_completion_length=40,
                gradient_checkpointing=False,  # on by default; it saves memory and costs time
                bf16=False,
                use_cpu=True,
                report_to="none",
                save_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_dict({"prompt": prompts * (int(steps) + 1)}),
            callbacks=[clock],
        )
        trainer.train()
    counted = clock.took[1:]
    print(json.dumps({"step_s": round(statistics.median(counted), 3), "steps": len(counted)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
