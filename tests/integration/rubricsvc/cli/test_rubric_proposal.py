"""`rubricsvc rubrics propose` against a scripted model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli import Cli
from tests.rubric_writer import is_question, rubric_about, verdict
from tests.scripted_server import ScriptedReply, scripted_server, text_reply

PROMPT = "Why is the sky blue?"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "good.txt"
    file.write_text("It is blue because air scatters short waves more. So it is.")
    return file


def author(number: int, request: dict[str, Any]) -> ScriptedReply:
    """Write another rubric for each seed, or for the seed 8 none; find its cause where there is a "because"."""
    if is_question(request):
        return verdict(request, on="because")
    seed = request.get("seed") or 0
    return text_reply("No idea.") if seed >= 8 else text_reply(rubric_about(seed // 4))


def test_propose_writes_the_chosen_one(cli: Cli, good: Path, tmp_path: Path) -> None:
    out = tmp_path / "sky.yaml"
    arguments = ("rubrics", "propose", PROMPT, "--good", good, "--choose", 2, "--out", out)
    with scripted_server(author) as server:
        ran = cli(*arguments, "--judge", server.url)
        again = cli(*arguments, "--judge", server.url)
        assert (ran.code, again.code) == (0, 2), ran.err
        assert cli(*arguments, "--judge", server.url, "--force").code == 0
    assert cli("rubrics", "lint", out).code == 0
    assert cli("rubrics", "import", out, "--draft").code == 0
    stored = cli("rubrics", "list", "--json").json
    assert (stored["state"], len(stored["rubric"]["criteria"])) == ("draft", 3)
