"""Written judges: each token of the reply is learned, and workers read what the judge then writes."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rubricsvc.core.judge import Judge, Sampling
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from tests.tiny_model import tiny_model
from trainer.judge_training.asking import probabilities
from trainer.judge_training.config import JudgeTrainConfig
from trainer.judge_training.encoding import Encoder, LeftOutError
from trainer.judge_training.examples import Example, Target, rubric_of
from trainer.judge_training.export import export
from trainer.judge_training.ingredients import Dataset
from trainer.judge_training.model import JudgeModel, reads_of
from trainer.judge_training.preparation import encode, prepare
from trainer.judge_training.splits import PARTS
from trainer.judge_training.training import EncodedData, train
from workers.engines import make_engine
from workers.engines.local.conversation import Conversation
from workers.engines.local.models import open_pretrained
from workers.scoring.completions import score

EXAMPLE = Example(
    Prompt.of("Which?"),
    Completion(text="The answer is B."),
    (Target(Criterion(key="b", text="Says B"), 1.0, rationale="It says B.", evidence=("answer is B",)),),
    "made",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny") / "model", context=4096)


@pytest.fixture
def judge(folder: Path) -> Judge:
    return Judge(
        name="tiny",
        engine="transformers_local",
        model=str(folder),
        mode="written",
        require_evidence=True,
        sampling=Sampling(max_tokens=200),
    )


def encoder(folder: Path, judge: Judge) -> Encoder:
    return Encoder(judge, Conversation(open_pretrained(str(folder), torch.float32)[1]), 4096)


def asked(judge: Judge, one: Example) -> list[Verdict]:
    async def ask() -> list[Verdict]:
        async with aclosing(make_engine(judge)) as engine:
            return await score(engine, judge, rubric_of(one), one.prompt, one.completion)

    return asyncio.run(ask())


def test_row_has_a_read_for_each_token_of_the_reply_and_its_end(folder: Path, judge: Judge) -> None:
    tokenizer = open_pretrained(str(folder), torch.float32)[1]
    row = encoder(folder, judge).row(EXAMPLE)
    (branch,), reads = row.branches, reads_of(row)
    assert [read.at for read in reads] == list(range(reads[0].at, len(branch.ids)))
    tokens = [label for read in reads for (label,) in read.labels]
    assert tokens[:-1] == list(branch.ids[reads[0].at + 1 :])
    assert tokens[-1] == tokenizer.eos_token_id
    expected = '{"criterion": "C1", "rationale": "It says B.", "evidence": ["answer is B"], "verdict": "met"}'
    assert tokenizer.decode(tokens[:-1]) == expected


def test_row_needs_room_for_the_reply(folder: Path, judge: Judge) -> None:
    short = judge.model_copy(update={"sampling": Sampling(max_tokens=20)})
    with pytest.raises(LeftOutError) as caught:
        encoder(folder, short).row(EXAMPLE)
    assert caught.value.reason == "too_long"


def labelled(number: int) -> Example:
    """Return an example; every fourth has no rationale."""
    (target,) = EXAMPLE.targets
    value, rationale = float(number % 2), "" if number % 4 < 2 and number % 3 == 0 else "It says B."
    one = replace(target, value=value, rationale=rationale)
    return replace(EXAMPLE, prompt=Prompt.of(f"Which, {number}?"), targets=(one,))


def test_prepare_leaves_targets_without_a_rationale_to_the_test(tmp_path: Path, folder: Path, judge: Judge) -> None:
    data, split = [{"kind": "labels", "name": "made"}], {"test": 0.2, "validation": 0.2}
    config = JudgeTrainConfig.model_validate({"judge": judge, "out": tmp_path, "data": data, "split": split})
    loaded = Dataset("", [labelled(number) for number in range(300)])
    parts = prepare(config, {"made": loaded}).split
    without = {name: sum(not one.targets[0].rationale for one in parts.part(name)) for name in PARTS}
    assert (without["train"], without["validation"]) == (0, 0)
    assert without["test"] > 0
    assert loaded.left_out == {"no_rationale": 50 - without["test"]}
    assert sum(len(parts.part(name)) for name in PARTS) + loaded.left_out["no_rationale"] == 300


def test_prepare_counts_what_was_left_out_of_too_little_data(tmp_path: Path, judge: Judge) -> None:
    data = [{"kind": "labels", "name": "made"}]
    config = JudgeTrainConfig.model_validate({"judge": judge, "out": tmp_path, "data": data})
    with pytest.raises(InvalidError, match="no_rationale") as caught:
        prepare(config, {"made": Dataset("", [labelled(number) for number in range(40)])})
    assert caught.value.path == "split"


def test_encode_refuses_data_of_which_nothing_fits(tmp_path: Path, folder: Path, judge: Judge) -> None:
    narrow = judge.model_copy(update={"max_context": 50})
    data, split = [{"kind": "labels", "name": "made"}], {"test": 0.2, "validation": 0.2}
    config = JudgeTrainConfig.model_validate({"judge": narrow, "out": tmp_path, "data": data, "split": split})
    loaded = Dataset("", [labelled(number) for number in range(300)])
    with pytest.raises(InvalidError) as caught:
        encode(prepare(config, {"made": loaded}), encoder(folder, narrow), config)
    assert caught.value.path == "judge.max_context"
    assert loaded.left_out["too_long"] > 0


def test_train_teaches_a_reply_that_workers_read(tmp_path: Path, folder: Path, judge: Judge) -> None:
    fields = {
        "judge": judge,
        "out": tmp_path / "out",
        "data": [{"kind": "labels", "name": "unused"}],
        "steps": 40,
        "method": "full",
        "dtype": "float32",
        "optim": {"lr": 1e-2, "warmup_steps": 5, "weight_decay": 0.0},
        "validation": {"every": 20},
    }
    config = JudgeTrainConfig.model_validate(fields)
    base, tokenizer = open_pretrained(str(folder), torch.float32)
    row = encoder(folder, judge).row(EXAMPLE)
    model = JudgeModel(base, None, seed=0)
    trained = train(model, EncodedData(lambda _: ([row], []), [row], "digest"), config)
    losses = [step["loss"] for step in trained.history.steps]
    assert losses[-1] < losses[0] / 5
    assert asked(judge, EXAMPLE)[0].outcome == "failed"
    learned = export(model, tokenizer, config)
    (verdict,) = asked(learned, EXAMPLE)
    assert (verdict.value, verdict.rationale, verdict.probability) == (1.0, "It says B.", None), verdict
    assert [quote.start for quote in verdict.evidence] == [4]
    assert probabilities(learned, [EXAMPLE]) == [[1.0]]
    assert probabilities(judge, [replace(EXAMPLE, completion=Completion(text="No."))]) == [[None]]
