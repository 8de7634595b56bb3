"""One step of TRL's trainers on exported examples, with a tiny model, in a separate process.

    python -m tests.trl_load OPTIONS_AS_JSON

The options are ``model``, ``out`` and ``data``: by trainer a file of JSON lines.
The last line of the output is, by trainer, the number of examples, the texts of the first one as it was tokenised, and
TRL's log, as JSON.
"""

import json
import sys
from typing import Any

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

TRAINERS = {"sft": (SFTTrainer, SFTConfig), "dpo": (DPOTrainer, DPOConfig)}


def step(name: str, options: dict[str, Any]) -> dict[str, Any]:
    trainer_class, config = TRAINERS[name]
    examples = load_dataset("json", data_files=options["data"][name], split="train")
    trainer = trainer_class(
        model=AutoModelForCausalLM.from_pretrained(options["model"], dtype="float32"),
        processing_class=AutoTokenizer.from_pretrained(options["model"]),
        args=config(
            output_dir=options["out"],
            max_steps=1,
            per_device_train_batch_size=2,
            gradient_checkpointing=False,
            optim="sgd",
            bf16=False,
            use_cpu=True,
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=examples,
    )
    trainer.train()
    first = trainer.train_dataset[0]
    texts = {key: trainer.processing_class.decode(ids) for key, ids in first.items() if key.endswith("ids") and ids}
    return {"examples": len(examples), "first": texts, "log": trainer.state.log_history}


def main(options: dict[str, Any]) -> None:
    print(json.dumps({name: step(name, options) for name in options["data"]}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
