"""The run's file: what it means, and what a wrong one is told."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import trainer.config
from rubricsvc.core.judge import Judge
from rubricsvc.errors import InvalidError, NotFoundError
from trainer.config import RunConfig, ServiceJudge, load_config

PLAIN = """
steps = 3
[data]
path = "rubrics.yaml"
[judge]
name = "local"
model = "some-model"
"""


def load(folder: Path, text: str) -> RunConfig:
    path = folder / "first.toml"
    path.write_text(text)
    return load_config(path)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    config = load(tmp_path, PLAIN)
    assert config.data.path == tmp_path / "rubrics.yaml"
    assert config.out == tmp_path / "runs" / "first"
    assert config.policy.model == "embedded"
    (tmp_path / "model").mkdir()
    config = load(tmp_path, 'out = "/there"' + PLAIN + '[policy]\nmodel = "model"\n')
    assert config.out == Path("/there")
    assert config.policy.model == str(tmp_path / "model")


def test_the_example_is_one(tmp_path: Path) -> None:
    example = str(trainer.config.__doc__).partition("::\n")[2]
    loaded = load(tmp_path, textwrap.dedent(example))
    assert isinstance(loaded.judge, Judge)
    assert loaded.sampling.group_size == 8


@pytest.mark.parametrize(
    ("judge", "kind"),
    [
        ('judge = "stored"', str),
        ('[judge]\nservice = "http://127.0.0.1:1"\nname = "theirs"', ServiceJudge),
        ('[judge]\nname = "mine"\nmodel = "m"\nthreshold = 0.5', Judge),
    ],
)
def test_three_ways_to_say_who_judges(tmp_path: Path, judge: str, kind: type) -> None:
    text = f'steps = 1\ndata = {{path = "x"}}\n{judge}\n'
    config = load(tmp_path, text)
    assert isinstance(config.judge, kind)
    assert RunConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("steps = 3", "", "steps: is missing"),
        ("steps = 3", "steps = 0", "steps: expected a number at least 1"),
        ("steps = 3", "step = 3\nsteps = 3", "step: unknown field; did you mean 'steps'?"),
        ("steps = 3", "steps = 3\n[optim]\nlearning_rate = 1", "optim.learning_rate: unknown field; "),
        ("steps = 3", "steps = 3\n[optim]\nlr = nan", "optim.lr: expected a finite number"),
        ("steps = 3", "steps = 3\n[sampling]\ngroup_size = 1", "sampling.group_size: expected a number at least"),
        ("steps = 3", 'steps = 3\n[policy]\ndtype = "fp8"', "policy.dtype: expected 'bfloat16' or 'float32'"),
        ('model = "some-model"', "", "a readout judge needs a model"),
        ('[data]\npath = "rubrics.yaml"', "", "data: is missing"),
        ("steps = 3", "steps = ", "is not TOML"),
    ],
)
def test_each_wrong_field_is_named(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(InvalidError) as caught:
        load(tmp_path, PLAIN.replace(old, new))
    assert told in caught.value.message


def test_all_wrong_fields_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"(?s)steps: .*colour: "):
        load(tmp_path, PLAIN.replace("steps = 3", "steps = -1\ncolour = 1"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="No such file"):
        load_config(tmp_path / "none.toml")
