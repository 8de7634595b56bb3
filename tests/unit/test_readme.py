"""What README and docs show is what there is: commands, options, make targets, folders and Python."""

import ast
import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rubricsvc.cli.main import COMMANDS, load
from rubricsvc.client import Client
from rubricsvc.client.transport import Bound, Noun
from rubricsvc.settings import Settings
from trainer.integrations.trl import RubricReward

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown(page: Path) -> list[str]:
    """The commands of a page's console blocks, one for each program of a pipe."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    lines = [line[2:].split("   #")[0] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [part.strip() for line in lines for part in re.split(r"\s[|&](?:\s|$)|>", line) if part.strip()]


COMMAND_LINES = sorted({line for page in PAGES for line in shown(page) if line.startswith("rubricsvc ")})


def wrong_in(line: str) -> str:
    """Return what a command line names that there is not."""
    _, name, *rest = shlex.split(line)
    if name.startswith("-"):
        return ""
    if name not in COMMANDS:
        return name
    command = load(name)
    if hasattr(command, "commands"):
        if not rest or rest[0] not in command.commands:
            return " ".join([name, *rest[:1]])
        command = command.commands[rest.pop(0)]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return " ".join(sorted({word.split("=")[0] for word in rest if word.startswith("--")} - options))


def test_readme_commands_and_options_exist() -> None:
    assert len(COMMAND_LINES) >= 10
    assert {line: wrong for line in COMMAND_LINES if (wrong := wrong_in(line))} == {}


def test_readme_make_targets_exist() -> None:
    rules = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {
        word for page in PAGES for word in re.findall(r"(?:`|\$ )make ([a-z]+(?:-[a-z]+)*)", page.read_text("utf-8"))
    }
    assert {name for name in named if name != "bench"} <= rules


def test_readme_python_blocks_run() -> None:
    code, _ = re.findall(r"```python\n(.*?)```", README, re.S)  # the second speaks to a service: see test_serve
    scope: dict[str, object] = {}
    *setup, first, second = code.strip().splitlines()
    exec("\n".join(setup), scope)
    assert eval(first.split("#")[0], scope) == pytest.approx(0.1333, abs=1e-4)
    assert eval(second.split("#")[0], scope) is None


def test_client_page_lists_every_method() -> None:
    page = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `client\.([\w.]+)\(", page, re.M)
    with Client() as client:
        nouns = {name: value for name, value in vars(client).items() if isinstance(value, Noun) and value is not client}
    methods = [f"{name}.{method}" for name, noun in nouns.items() for method in _methods(type(noun))]
    assert sorted(listed) == sorted([*methods, *_methods(Client), "iterate", "close"])


def _methods(noun: type) -> list[str]:
    return [name for base in noun.__mro__ for name, value in vars(base).items() if isinstance(value, Bound)]


def test_settings_page_lists_every_setting_with_its_default() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `RUBRICSVC_(\w+)` \| `?(.*?)`? \|", page, re.M))
    assert rows.keys() == {name.upper() for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        if field.default_factory is None:
            assert rows[name.upper()] == ("unset" if field.default is None else str(field.default)), name


SYNONYMS = {("labels", "template"), ("labels", "agreement")}
"""Of `labels export --blind`, and of `judges agreement`."""


def test_code_names_commands_that_exist() -> None:
    """Hints and docstrings name commands as `rubricsvc NOUN VERB`, or ``NOUN VERB`` in backquotes."""
    nouns = "|".join(name for name in COMMANDS if hasattr(load(name), "commands"))
    named = re.compile(rf"(?:rubricsvc |`)({nouns}) ([a-z]+)(?![\w.(\[=/-])")
    pages = [path for room in ("rubricsvc", "workers", "trainer", "docs") for path in (ROOT / room).rglob("*.*")]
    wrong = {
        f"{path.relative_to(ROOT)}: {noun} {verb}"
        for path in (*pages, ROOT / "README.md")
        if path.suffix in {".py", ".j2", ".toml", ".yaml", ".md"} and "adr" not in path.parts
        for noun, verb in named.findall(path.read_text("utf-8"))
        if verb not in load(noun).commands and (noun, verb) not in SYNONYMS
    }
    assert not wrong


PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")


def test_integrations_page_lists_every_option_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `?(.*?)`? \|", PAGE, re.M))
    options = inspect.signature(RubricReward).parameters.values()
    defaults = {one.name: one.default for one in options if one.kind is one.KEYWORD_ONLY}
    shown = {name: "unset" if value is None else str(value).removesuffix(".0") for name, value in defaults.items()}
    assert {name: value.strip('"') for name, value in rows.items()} == shown


def test_integrations_page_python_is_valid() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 3
    for block in blocks:
        ast.parse(block)


def test_integrations_import_no_trainer() -> None:
    code = "import sys, trainer.integrations.trl; print({'torch', 'trl', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
