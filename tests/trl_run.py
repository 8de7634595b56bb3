"""GRPO by TRL with the rewards of a service, in a separate process, on the CPU.

    python -m tests.trl_run OPTIONS_AS_JSON

The options are ``url``, ``out``, ``steps``, ``rows`` (of the dataset), ``reward`` (arguments of `RubricReward`) and
``async`` (use the coroutine). A step has two groups of two completions of at most 8 tokens. The last line is TRL's log
as JSON; ``out/completions`` has its tables.
"""

import json
import sys
from typing import Any

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from rubricsvc import AsyncClient, Client
from trainer.integrations.trl import AsyncRubricReward, RubricReward
from workers.engines.local.models import model_path


def reward(options: dict[str, Any]) -> RubricReward | AsyncRubricReward:
    if options["async"]:
        return AsyncRubricReward(AsyncClient(options["url"]), **options["reward"])
    return RubricReward(Client(options["url"]), **options["reward"])


def main(options: dict[str, Any]) -> None:
    folder = model_path("embedded")
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype="float32"),
        processing_class=AutoTokenizer.from_pretrained(folder),
        reward_funcs=reward(options),
        args=GRPOConfig(
            output_dir=options["out"],
            max_steps=options["steps"],
            per_device_train_batch_size=4,
            num_generations=2,
            max_completion_length=8,
            gradient_checkpointing=False,
            optim="sgd",  # keeps no state: the test is not about learning
            bf16=False,
            use_cpu=True,
            logging_steps=1,
            log_completions=True,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(options["rows"]),
    )
    trainer.train()
    print(json.dumps(trainer.state.log_history))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
