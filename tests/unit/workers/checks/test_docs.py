"""What docs/checks.md says of the checks holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import yaml

from rubricsvc.core.rubric import Check, Criterion, Rubric
from workers import checks
from workers.checks import CHECKS
from workers.checks.answers import Metric
from workers.checks.code import Mark

TEXT = (Path(__file__).resolve().parents[4] / "docs" / "checks.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    part = TEXT.partition(heading)[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if "| `" in line[:3]]


def test_docs_list_every_check_with_its_arguments() -> None:
    said = {}
    for names, arguments, _ in rows("# Checks"):
        outside = re.sub(r"\([^)]*\)", "", arguments)
        for name in re.findall(r"`(\w+)`", names):
            assert name not in said
            said[name] = {part.split("`")[1] for part in re.split(r", | or ", outside) if part.startswith("`")}
    fields = {name: check.args.model_fields for name, check in CHECKS.items()}
    assert said == {name: {of.alias or field for field, of in found.items()} for name, found in fields.items()}


def test_docs_defaults_match_the_code() -> None:
    for names, arguments, _ in rows("# Checks"):
        for name in re.findall(r"`(\w+)`", names):
            for field, said in re.findall(r"`(\w+)` = (`\w+`|[\w.]+|\[[^]]*\])", arguments):
                default = CHECKS[name].args.model_fields[field].get_default(call_default_factory=True)
                assert yaml.safe_load(said.strip("`")) == (list(default) if isinstance(default, tuple) else default)


def test_docs_list_every_mark_and_metric() -> None:
    assert [row[0].strip("`") for row in rows("## Marks of cheating")] == list(get_args(Mark))
    part = TEXT.partition("## Similarity")[2].partition("\n## ")[0]
    ranged = {"rouge_2", "rouge_3", "rouge_4"}  # "`rouge_1` to `rouge_5`"
    assert set(re.findall(r"`([a-z_]+\w*)`", part)) - {"text_similarity"} == set(get_args(Metric)) - ranged


def test_docs_example_is_valid() -> None:
    given = yaml.safe_load(TEXT.partition("```yaml\n")[2].partition("```")[0])["criteria"]
    for number, criterion in enumerate(given):
        ((name, args),) = criterion["check"].items()
        check = Check(name=name, args=args)
        checks.validate(Rubric(criteria=(Criterion(key=f"c{number}", text=criterion["text"], check=check),)))
