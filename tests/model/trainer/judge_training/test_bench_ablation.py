"""``make bench-ablation`` with a tiny model: the trainings, their figures, and a second run."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.bench_ablation import main
from rubricsvc.formats.passports import load_passport
from tests.made_passport import made_passport
from tests.tiny_model import tiny_model

RECIPE = """
steps = 100

[judge]
name = "tiny"
engine = "transformers_local"
model = "{model}"
template = "readout_short"
min_answer_mass = 0.0

[split]
test = 0.3
validation = 0.2

[[data]]
kind = "everyday"
name = "everyday"
count = 400

[[data]]
kind = "swapped"
name = "swapped"
count = 400

[[data]]
kind = "damaged"
name = "damaged"
weight = 0.01
count = 100

[[data]]
kind = "arithmetic"
name = "arithmetic"
weight = 0.01
count = 100

[[data]]
kind = "file"
name = "absent"
path = "absent.jsonl"
optional = true
"""


def test_main_measures_each_part_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, out = tmp_path / "recipe.toml", tmp_path / "out"
    recipe.write_text(RECIPE.format(model=tiny_model(tmp_path / "model", context=2048)))
    arguments = ["--config", str(recipe), "--out", str(out), "--steps", "2", "--share", "0.5", "--questions", "15"]
    judge = tmp_path / "judge"
    judge.mkdir()
    (judge / "passport.json").write_text(made_passport().model_dump_json())
    arguments += ["--judge", str(judge)]
    main(arguments)
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [line.split(" | ")[0] for line in table if "--" not in line] == [
        "| left out",
        "| nothing",
        "| everyday",
        "| swapped",
        "| damaged+arithmetic",
    ]
    passport = load_passport(judge / "passport.json")
    assert passport.model_copy(update={"ablations": ()}) == made_passport().model_copy(update={"ablations": ()})
    found = passport.ablations
    assert [one.left_out for one in found] == ["everyday"] * 2 + ["swapped"] * 2 + ["damaged+arithmetic"] * 3
    assert found[1].table == "all held-out questions, 2 steps" and found[1].complete == found[3].complete

    before = {file.name: file.stat().st_mtime_ns for file in out.glob("*.json")}
    main(arguments)
    after = {file.name: file.stat().st_mtime_ns for file in out.glob("*.json")}
    assert before == after

    main([*arguments[:5], "3", *arguments[6:]])
    assert not [name for name in before if (out / name).stat().st_mtime_ns == after[name]]
