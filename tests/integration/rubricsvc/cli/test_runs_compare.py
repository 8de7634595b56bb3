"""`runs compare`: runs of a tiny model, with judges that answer at once."""

from __future__ import annotations

from pathlib import Path

from tests.cli import Cli
from tests.integration.rubricsvc.cli.test_runs_eval import CONFIG, EVAL
from tests.tiny_model import tiny_model


def test_runs_compare_pairs_held_out_prompts_and_refuses_other_judges(
    cli: Cli, rubric_file: Path, tmp_path: Path
) -> None:
    tiny_model(tmp_path / "policy")
    prompts = [f"- {{id: p{n}, prompt: What is {n}?, criteria: [Says a.]}}\n" for n in range(7)]
    (tmp_path / "held-out.yaml").write_text("".join(prompts[:6]))
    (tmp_path / "others.yaml").write_text("".join(prompts[1:]))
    base = f'{CONFIG}{EVAL}path = "held-out.yaml"\n'
    changes = {
        "first": base,
        "fast": base + "[optim]\nlr = 0.01\n",
        "part": base.replace("held-out", "others"),
        "other": base.replace('model = "m"', 'model = "n"').replace('name = "letters"', 'name = "letters-n"'),
        "plain": CONFIG,
    }
    for name, text in changes.items():
        (tmp_path / f"{name}.toml").write_text(text)
        ran = cli("runs", "start", f"{name}.toml")
        assert ran.code == 0, ran.err

    (found,) = cli("runs", "compare", 1, Path("runs", "fast"), "--json").lines
    assert {path: b for path, (_, b) in found["config"].items()} == {"optim.lr": 0.01}
    assert found["notes"] == []
    before, last = found["scores"]
    assert (last["prompts"], last["variant"], last["score"]) == (6, "B", "reward")
    assert last["difference"]["low"] <= last["difference"]["value"] <= last["difference"]["high"]
    first, fast = (cli("runs", "show", ref, "--evaluations", "--json").lines[-1] for ref in (1, 2))
    means = [line["scores"]["reward"]["mean"]["value"] for line in (first, fast)]
    assert [row["mean"]["value"] for row in (before, last)] == means

    (part,) = cli("runs", "compare", 1, 3, "--json").lines
    assert part["scores"][1]["prompts"] == 5
    assert "1 in A only, 1 in B only" in part["notes"][0]

    (other,) = cli("runs", "compare", 1, 4, "--json").lines
    assert other["scores"][1]["result"] == "not_comparable"

    shown = cli("runs", "compare", 1, 5)
    assert shown.code == 0 and "eval.samples" in shown.out and "B has no evaluation" in shown.out
    assert (cli("runs", "compare", 1, 99).code, cli("runs", "compare", 1, tmp_path).code) == (3, 3)
