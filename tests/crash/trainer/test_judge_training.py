"""The training of a judge whose process is killed equals one that was never interrupted."""

import signal
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion
from tests.crash.trainer.killing import FORKS, begin, end
from tests.tiny_model import tiny_model
from trainer import checkpoint, recording
from trainer.judge_training.config import JudgeTrainConfig
from trainer.judge_training.data import Example, Target
from trainer.judge_training.training import EncodedData, Encoder, JudgeModel, train
from workers.engines.local.conversation import Conversation
from workers.engines.local.models import open_pretrained

STEPS = 12
KILL_AFTER = (2, 7)
BEST = "model/best.safetensors"
"""Its tensors are equal, and its metadata in any order."""
FORKS.set_forkserver_preload([__name__])


def run(model: Path, out: Path) -> None:
    """Start or resume the training, which saves a checkpoint after every second step."""
    torch.set_num_threads(1)
    judge = Judge(name="tiny", engine="transformers_local", model=str(model), template="readout_short")
    fields = {
        "judge": judge, "out": out, "data": [{"kind": "labels", "name": "unused"}], "steps": STEPS,
        "checkpoint_every": 2, "lora": {"rank": 2}, "optim": {"batch_examples": 1}, "validation": {"every": 3},
    }  # fmt: skip
    config = JudgeTrainConfig.model_validate(fields)
    base, tokenizer = open_pretrained(str(model), torch.bfloat16)
    encoder = Encoder(judge, Conversation(tokenizer), 1024)
    targets = (Target(Criterion(key="a", text="Says A."), 1.0), Target(Criterion(key="b", text="Says B."), 0.0))
    rows = [encoder.row(Example(Prompt.of(f"{n}?"), Completion(text="A."), targets, "made")) for n in range(4)]
    data = EncodedData({"unused": rows[:3]}, {"unused": 1.0}, rows[3:], "digest")
    train(JudgeModel(base, config.lora, seed=0), data, config, resume=(out / "config.json").exists())


def files(out: Path) -> dict[str, bytes]:
    folder = checkpoint.folder(out, STEPS)
    names = ("optimizer.safetensors", "model/adapter_model.safetensors")
    best = {name: tensor.float().numpy().tobytes() for name, tensor in load_file(folder / BEST).items()}
    return {name: (folder / name).read_bytes() for name in names} | best


def test_train_killed_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model", context=1024)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert end(begin(run, model, whole)) == 0
    for step in KILL_AFTER:
        process = begin(run, model, killed)
        while len(recording.read(killed)) < step and process.is_alive():
            time.sleep(0.002)
        process.kill()
        assert end(process) == -signal.SIGKILL
    assert end(begin(run, model, killed)) == 0 and files(killed) == files(whole)
    assert [step["step"] for step in recording.read(killed)] == list(range(1, STEPS + 1))
