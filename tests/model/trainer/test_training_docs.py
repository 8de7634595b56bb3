"""docs/training.md lists every field of the configuration, with its type and default, and every metric."""

from __future__ import annotations

import re

from pydantic import BaseModel

from tests.config_page import DOCS, check_default, fields, kind, table_rows
from tests.model.trainer.tiny import TASKS, share_of_a, tiny_config, tiny_policy
from trainer.config import (
    ControlConfig,
    DataSource,
    DemonstrationsConfig,
    EvalConfig,
    EvolveConfig,
    OtherPromptsConfig,
    PromptsConfig,
    RunConfig,
    ServiceJudge,
)
from trainer.environments.config import EnvironmentConfig, McpServer
from trainer.loop import train
from trainer.rewards.source import CallableRewards

PAGE = (DOCS / "training.md").read_text(encoding="utf-8")
ROWS = table_rows(PAGE.partition("## Configuration")[2])
JUDGES = {"judge", "evolve.proposer", "evolve.trusted", "eval.judges"}
REPLACED: dict[str, type[BaseModel] | None] = {
    "judge": ServiceJudge,
    "evolve": EvolveConfig,
    "environment": EnvironmentConfig,
    "mcp": McpServer,
    "control": ControlConfig,
    "eval": EvalConfig,
    "prompts": PromptsConfig,
    "demonstrations": DemonstrationsConfig,
    "other": OtherPromptsConfig,
    "domains": DataSource,
    "proposer": None,
    "trusted": None,
    "judges": None,
}
FIELDS = dict(fields(RunConfig, replaced=REPLACED))


def test_training_page_lists_every_field() -> None:
    assert set(ROWS) == set(FIELDS) | JUDGES
    assert all(meaning.strip() for *_, meaning in ROWS.values())


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
