"""`judges train`: a tiny model is trained on a small file of labels, examined, and added with its passport."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Cli
from tests.tiny_model import tiny_model
from trainer.judge_training import run, training

CONFIG = """
out = "OUT"
steps = 6
checkpoint_every = 2
dtype = "float32"
test_examples = 10
lora = {rank = 2}
optim = {lr = 1e-3, batch_examples = 2}
validation = {every = 2, max_examples = 2}
split = {test = 0.2, validation = 0.2}

[judge]
name = "mine"
engine = "transformers_local"
model = "MODEL"
template = "readout_short"
min_answer_mass = 0.0

[[data]]
kind = "file"
name = "people"
path = "people.jsonl"
"""


def record(number: int, text: str, labels: dict[str, Any]) -> dict[str, Any]:
    criteria = [{"key": key, "text": f"Says {key.upper()}."} for key in ("a", "b")]
    return {"prompt": f"Which, {number}?", "criteria": criteria, "completions": [text], "labels": labels}


def labelled(count: int = 100) -> list[dict[str, Any]]:
    """Return records with two labels each: half of all are met."""
    texts = ("It is A.", "It is B.")
    return [record(n, texts[n % 2], {"a": {"ann": n % 2 == 0}, "b": {"ann": n % 2 == 1}}) for n in range(count)]


def write(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in records))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("base") / "model", context=1024)


@pytest.fixture
def config(tmp_path: Path, model: Path) -> Path:
    write(tmp_path / "people.jsonl", labelled())
    path = tmp_path / "mine.toml"
    path.write_text(CONFIG.replace("MODEL", str(model)).replace("OUT", "out"))
    return path


def change(config: Path, *changes: tuple[str, str]) -> Path:
    text = config.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    config.write_text(text)
    return config


def test_judges_train_adds_a_judge_with_its_passport(cli: Cli, config: Path, tmp_path: Path) -> None:
    twice = record(1000, "It is A.", {"a": {"ann": True, "bob": False}, "b": {"ann": False, "bob": False}})
    long = [record(n, "word " * 2000, {"a": {"ann": True}}) for n in range(2000, 2008)]
    write(tmp_path / "people.jsonl", [*labelled(), twice, *long])
    planned = cli("judges", "train", config, "--dry-run", "--json")
    (plan,), split = planned.json["data"], planned.json["split"]
    assert (plan["completions"], plan["questions"], plan["duplicates"], plan["contradictions"]) == (109, 210, 2, 1)
    assert split["left_out"] == 0
    assert split["train"] + split["validation"] + split["test"] == 109
    ran = cli("judges", "train", config, "--no-audit", "--json")
    assert ran.code == 0, ran.err
    assert "contradictions 1" in ran.err and "split by prompt" in ran.err
    assert (ran.json["name"], ran.json["added"], ran.json["audit"]) == ("mine", True, None)
    figure, best = ran.json, ran.json["best_baseline"]
    assert (figure["test_set"], figure["measure"]) == ("test", "auroc") and isinstance(ran.json["not_for"], list)
    assert not any("below" in sentence or "above" in sentence for sentence in ran.json["not_for"])
    assert len({path.stat().st_mode for path in (tmp_path / "out" / "judge").iterdir()}) == 1
    assert figure["low"] <= figure["value"] <= figure["high"] and figure["value"] <= best["value"] <= 1
    assert f"does not beat the best baseline ({best['scorer']} " in ran.err
    assert re.search("left out of people: [0-9]+ too_long", ran.err)
    passport = cli("judges", "show", "mine", "--passport", "--json").json
    (data,) = passport["data"]
    assert (data["name"], data["completions"], data["questions"]) == ("people", 109, 210)
    assert (data["duplicates"], data["contradictions"]) == (2, 1)
    assert data["left_out"]["too_long"] > 0
    options = passport["training"]["options"]
    assert options["data"] == {"people": {"kind": "file", "weight": 1.0}}
    assert {"lora", "optim", "validation", "split", "dtype", "steps"} <= options.keys()
    scorers = {row["scorer"] for row in passport["tables"][0]["rows"]}
    assert {"majority", "trained", "untrained"} <= scorers
    stored = cli("judges", "show", "mine", "--json").json["judge"]
    assert (stored["adapter"], stored["template"]) == (str(tmp_path / "out" / "judge"), "readout_short")

    again = cli("judges", "train", config)
    assert again.code == 2 and "--resume" in again.err
    complete = cli("judges", "train", config, "--no-audit", "--resume", "--json")
    assert (complete.code, complete.json) == (0, ran.json), complete.err
    assert cli("judges", "show", "mine", "--passport", "--json").json["weights_sha256"] == passport["weights_sha256"]
    write(tmp_path / "people.jsonl", [*labelled(130), *long])
    more = cli("judges", "train", config, "--no-audit", "--resume")
    assert more.code == 2 and "data_digest" in more.err


DIVERGING = "optim = {lr = 1e20, warmup_steps = 0, batch_examples = 2}\nvalidation = {every = 1"


def test_judges_train_names_what_is_wrong(cli: Cli, config: Path) -> None:
    cases = [
        ("steps = 6", "steps = 6\nstep = 1", 2, "  step: "),
        ("steps = 6", 'steps = "six"', 2, "  steps: "),
        ("people.jsonl", "none.jsonl", 2, "none.jsonl"),
        ('kind = "file"', 'kind = "files"', 2, "'files'"),
        ('engine = "transformers_local"', 'engine = "openai_http"', 2, "  judge: "),
        ("readout_short", "readout_long", 2, "'readout_long'"),
        ("validation = 0.2}", "validation = 0.2, held_out = ['others']}", 2, "'others'"),
        ("validation = 0.2}", "validation = 0.001}", 2, "at least 20"),
        ("lora = {rank = 2}", "lora = {rank = 2, first_layer = 7}", 2, "first_layer"),
        ("lr = 1e-3", "lr = 1e30", 2, "optim.lr"),
        ("optim = {lr = 1e-3, batch_examples = 2}\nvalidation = {every = 2", DIVERGING, 2, "validation loss"),
        ("{rank = 2}", "{rank = 2, alpha = 1e7}", 2, "  lora.alpha: "),
        ("steps = 6", f"steps = 6\nseed = {2**70}", 2, "  seed: "),
        ("people.jsonl", "", 2, "  data.0.path: "),
        ("people.jsonl", "a\\u0000b", 2, "  data.0.path: "),
        ('name = "people"', 'name = "people"\nweight = 1e308', 2, "  data.0.weight: "),
        ('name = "people"', f'name = "{"p" * 201}"', 2, "  data.0.name: "),
        ('name = "people"', 'name = "people"\nlicense = "MIT\\nor not"', 2, "  data.0.license: "),
        ("steps = 6", f'steps = 6\nlicense = "{"MIT " * 60}"', 2, "  license: "),
        ("steps = 6", 'steps = 6\ndescription = "\\u0000"', 2, "  description: "),
    ]
    whole = config.read_text()
    for old, new, code, named in cases:
        config.write_text(whole)
        ran = cli("judges", "train", change(config, (old, new)))
        assert (ran.code, named in ran.err) == (code, True), ran.err
        assert "Traceback" not in ran.err


def test_judges_train_interrupted_and_damaged_ends_with_the_same_weights(
    cli: Cli, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "out" / "judge" / "adapter_model.safetensors"
    config = config.rename(tmp_path / "my judge.toml")

    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run, "probabilities", interrupt)
        examined = cli("judges", "train", config, "--no-audit", "--no-add")
    assert examined.code == 130
    continued = f"rubricsvc judges train '{config}' --no-audit --no-add --resume"
    assert continued in examined.err
    expected = weights.read_bytes()
    (tmp_path / "out").rename(tmp_path / "whole")

    step, seen = training._step, list[int]()

    def interrupted(*args: Any) -> Any:
        seen.append(args[-1])
        if seen[-1] == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return step(*args)

    with monkeypatch.context() as patched:
        patched.setattr(training, "_step", interrupted)
        stopped = cli("judges", "train", config, "--no-audit", "--no-add")
    assert (stopped.code, seen) == (130, [0, 1, 2, 3])
    assert continued in stopped.err
    newest = tmp_path / "out" / "checkpoints" / "step-000004"
    (newest / "model" / "best.safetensors").write_bytes(b"\0" * 100)
    resumed = cli("judges", "train", config, "--no-audit", "--no-add", "--resume")
    assert resumed.code == 0, resumed.err
    assert "damaged-step-000004" in resumed.err and "best.safetensors" in resumed.err
    assert weights.read_bytes() == expected
