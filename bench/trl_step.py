"""The step of `bench_train` by TRL's GRPOTrainer, in an environment that has TRL.

    PYTHON -m bench.trl_step MODEL_FOLDER STEPS TOKENS DTYPE QUESTIONS_AS_JSON

16 completions, a reward that takes no time, and TRL's defaults except for gradient checkpointing. The last
line is JSON: the median seconds of a step without the first. It imports nothing of this project.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from datasets import Dataset  # type: ignore[import-untyped]
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer  # type: ignore[attr-defined]


class StepTimer(TrainerCallback):  # type: ignore[misc] # this file runs where transformers has no types
    def __init__(self) -> None:
        self.start = 0.0
        self.seconds: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.start = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.perf_counter() - self.start)


def main(folder: str, steps: str, tokens: str, dtype: str, questions: str) -> None:
    prompts = [[{"role": "user", "content": question}] for question in json.loads(questions)]
    timer = StepTimer()
    with tempfile.TemporaryDirectory() as out:
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype=dtype),
            processing_class=AutoTokenizer.from_pretrained(folder),
            reward_funcs=lambda completions, **_: [float(len(one[0]["content"])) for one in completions],
            args=GRPOConfig(
                output_dir=str(Path(out)),
                max_steps=int(steps) + 1,
                per_device_train_batch_size=16,
                num_generations=4,
                max_completion_length=int(tokens),
                gradient_checkpointing=False,  # the default saves memory and costs time
                bf16=False,
                use_cpu=True,
                report_to="none",
                logging_steps=1,
                save_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_dict({"prompt": prompts * (int(steps) + 1)}),
            callbacks=[timer],
        )
        trainer.train()
    counted = timer.seconds[1:]
    lengths = [
        line["completions/mean_length"] for line in trainer.state.log_history if "completions/mean_length" in line
    ]
    tokens_per_step = statistics.median(16 * length for length in lengths[1:])
    print(json.dumps({"trl_step_s": round(statistics.median(counted), 3), "trl_tokens_per_step": tokens_per_step}))


if __name__ == "__main__":
    main(*sys.argv[1:])
