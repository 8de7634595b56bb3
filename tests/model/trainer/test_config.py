"""The TOML of a run and its page."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from rubricsvc.core.judge import Judge
from rubricsvc.errors import InvalidError
from tests.config_page import DOCS, check_default, fields, kind, table_rows
from tests.model.trainer.tiny import TASKS, share_of_a, tiny_config, tiny_policy
from trainer.config import (
    ControlConfig,
    DataSource,
    DemonstrationsConfig,
    EnvironmentConfig,
    EvalConfig,
    EvolveConfig,
    LoraConfig,
    McpServer,
    OtherPromptsConfig,
    PromptsConfig,
    RunConfig,
    ServiceJudge,
    load_config,
)
from trainer.loop import train
from trainer.rewards import CallableRewards

PLAIN = """
steps = 3
[data]
path = "rubrics.yaml"
[judge]
name = "local"
model = "some-model"
"""
MEMBERS = ", ".join(f'{{name = "{name}", model = "m"}}' for name in "ab")
PANEL = f'{{name = "both", mode = "panel", members = [{MEMBERS}]}}'


def load(folder: Path, text: str) -> RunConfig:
    for name in ("rubrics.yaml", "x"):
        (folder / name).touch()
    path = folder / "first.toml"
    path.write_text(text)
    return load_config(path)


def test_load_config_resolves_paths_relative_to_file(tmp_path: Path) -> None:
    config = load(tmp_path, PLAIN)
    assert config.data.path == tmp_path / "rubrics.yaml" and config.out == tmp_path / "runs" / "first"
    assert config.policy.model == "embedded"
    (tmp_path / "model").mkdir()
    config = load(tmp_path, 'out = "/there"' + PLAIN + '[policy]\nmodel = "model"\n')
    assert config.out == Path("/there") and config.policy.model == str(tmp_path / "model")


def test_load_config_reads_three_kinds_of_judge(tmp_path: Path) -> None:
    cases = [
        ('judge = "stored"', str),
        ('[judge]\nservice = "http://127.0.0.1:1"\nname = "theirs"', ServiceJudge),
        ('[judge]\nname = "mine"\nmodel = "m"\nthreshold = 0.5', Judge),
    ]
    for judge, expected in cases:
        text = f'steps = 1\ndata = {{path = "x"}}\n{judge}\n'
        config = load(tmp_path, text)
        assert isinstance(config.judge, expected)
        assert RunConfig.model_validate_json(config.model_dump_json()) == config


DISAGREEING = (
    'pairwise_accuracy = 0.1\nbaseline = "batch"', 'std_floor = 0.1\ndivide_by = "none"', 'ratio = "completion_mean"',
    "clip_dual = 1.2", 'kl_beta = 0.1\nkl = "k1"', 'kl_in = "reward"\nkl_weighted = true',
)  # fmt: skip


def test_load_config_names_wrong_fields(tmp_path: Path) -> None:
    cases = [
        ("steps = 3", "", ["steps"]),
        ("steps = 3", "steps = 0", ["steps"]),
        ("steps = 3", "step = 3\nsteps = 3", ["step"]),
        ("steps = 3", "steps = 3\n[optim]\nlearning_rate = 1", ["optim.learning_rate"]),
        ("steps = 3", "steps = 3\n[optim]\nlr = nan", ["optim.lr"]),
        ("steps = 3", "steps = 3\n[optim]\nstd_floor = -0.1", ["optim.std_floor"]),
        ("steps = 3", 'steps = 3\n[optim]\nstd_floor = "jugde"', ["optim.std_floor"]),
        ("steps = 3", 'steps = 3\nalgorithm = "gpso"', ["algorithm"]),
        ("steps = 3", 'steps = 3\nalgorithm = "none.py"', ["algorithm"]),
        (
            "steps = 3",
            "steps = 3\n[optim]\npairwise_accuracy = [[0.1, 1.9]]",
            ["optim.pairwise_accuracy", "optim.pairwise_accuracy.0.1"],
        ),
        ("steps = 3", "steps = 3\n[optim]\npairwise_accuracy = []", ["optim.pairwise_accuracy"]),
        *(("steps = 3", f"steps = 3\n[optim]\n{line}", ["optim"]) for line in DISAGREEING),
        ("steps = 3", "steps = 3\n[sampling]\ngroup_size = 1", ["sampling.group_size"]),
        ("steps = 3", f"steps = 3\nseed = {2**63}", ["seed"]),
        ("steps = 3", 'steps = 3\n[evolve]\nproposer = "p"\nevery = 0\nretest = 1', ["evolve.every", "evolve.retest"]),
        ("steps = 3", "steps = 3\n[evolve]\nevery = 3", ["evolve.proposer"]),
        ("steps = 3", 'steps = 3\n[evolve]\nproposer = {model = "m"}', ["evolve.proposer.name"]),
        ("steps = 3", 'steps = 3\n[evolve]\nproposer = "p"\napprove = "nobody"', ["evolve.approve"]),
        ("steps = 3", f"steps = 3\n[evolve]\nproposer = {PANEL}", ["evolve.proposer"]),
        ("steps = 3", 'steps = 3\n[policy]\ndtype = "fp8"', ["policy.dtype"]),
        ("steps = 3", "steps = 3\n[eval]\nevery = 0\nshare = 2", ["eval.share", "eval.every"]),
        ("steps = 3", "steps = 3\n[eval]", ["eval"]),
        ("steps = 3", 'steps = 3\n[eval]\nshare = 0.5\nstore = ["a"]', ["eval"]),
        ("steps = 3", 'steps = 3\n[eval]\nshare = 0.5\njudges = ["a", "a"]', ["eval"]),
        ("steps = 3", 'steps = 3\n[eval]\nshare = 0.5\njudges = ["reward"]', ["eval"]),
        ("steps = 3", 'steps = 3\n[eval]\nshare = 0.5\njudges = ["strong"]\ngold = "stong"', ["eval"]),
        ("steps = 3", 'steps = 3\n[eval]\npath = "none.yaml"', ["eval.path"]),
        ('path = "rubrics.yaml"', 'path = "rubrics.yaml"\nstore = ["a"]', ["data"]),
        ('path = "rubrics.yaml"', 'domains = {a = {path = "none.yaml"}, b = {store = ["s"]}}', ["data.domains.a.path"]),
        ('path = "rubrics.yaml"', "domains = {a = {}}", ["data"]),
        ("steps = 3", "steps = 3\n[prompts]\nweights = {a = 0}", ["prompts.weights.a"]),
        ("steps = 3", "steps = 3\n[prompts]\nweights = {a = 1e308}", ["prompts.weights.a"]),
        ('path = "rubrics.yaml"', 'path = "none.yaml"\nmany = 1', ["data.path", "data.many"]),
        ('model = "some-model"', "", ["judge"]),
        ('[data]\npath = "rubrics.yaml"', "", ["data"]),
        ("steps = 3", "steps = -1\ncolour = 1", ["steps", "colour"]),
        ("steps = 3", "steps = 3\nseed = 1979-05-27", ["seed"]),
        ("steps = 3", f"steps = 3\nseed = 0x{'f' * 5000}", ["seed"]),
        ("steps = 3", f"steps = 3\ntrackers = {'[' * 40}{']' * 40}", ["trackers"]),
        ("steps = 3", 'steps = 3\nout = "."', ["out"]),
        ("steps = 3", 'steps = 3\nout = ".."', ["out"]),
        ("rubrics.yaml", "rubrics\\u0000.yaml", ["data.path"]),
    ]
    for old, new, names in cases:
        with pytest.raises(InvalidError) as caught:
            load(tmp_path, PLAIN.replace(old, new))
        lines = caught.value.message.splitlines()[1:]
        assert list(dict.fromkeys(line.strip().partition(":")[0] for line in lines)) == names, (old, new)


def test_load_config_refuses_weights_of_other_domains(tmp_path: Path) -> None:
    domains = 'domains = {medical = {path = "x"}, support = {store = ["s"]}}'
    text = PLAIN.replace('path = "rubrics.yaml"', domains)
    with pytest.raises(InvalidError, match="did you mean 'support'"):
        load(tmp_path, text.replace("steps = 3", "steps = 3\n[prompts]\nweights = {medical = 1, suport = 1}"))


PAGE = (DOCS / "training.md").read_text(encoding="utf-8")
ROWS = table_rows(PAGE.partition("## Configuration")[2])
JUDGES = {"judge", "evolve.proposer", "evolve.trusted", "eval.judges"}
REPLACED: dict[str, type[BaseModel] | None] = {
    "judge": ServiceJudge, "evolve": EvolveConfig, "environment": EnvironmentConfig, "mcp": McpServer,
    "control": ControlConfig, "eval": EvalConfig, "prompts": PromptsConfig, "demonstrations": DemonstrationsConfig,
    "other": OtherPromptsConfig, "domains": DataSource, "lora": LoraConfig, "proposer": None, "trusted": None,
    "judges": None,
}  # fmt: skip
FIELDS = dict(fields(RunConfig, replaced=REPLACED))


def test_training_page_lists_every_field() -> None:
    assert set(ROWS) == set(FIELDS) | JUDGES and all(meaning.strip() for *_, meaning in ROWS.values())


def test_training_page_has_types_and_defaults() -> None:
    for name, field in FIELDS.items():
        shown_kind, shown, _ = ROWS[name]
        assert shown_kind == kind(field.annotation, field.metadata), name
        check_default(field, shown, required="`runs/NAME`" if name == "out" else "required")


def test_training_page_lists_every_metric() -> None:
    history = train(tiny_policy(), TASKS, CallableRewards(share_of_a), tiny_config(steps=1, optim={"kl_beta": 0.1}))
    listed = set(re.findall(r"`([a-zA-Z_/]+)`", PAGE.partition("| metric |")[2]))
    missing = {name for name in history.steps[0] if not {name, name.rpartition("/")[2]} & listed}
    assert missing == {"step"}
