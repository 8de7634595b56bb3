"""Distillation through the product: a teacher with known noise scores, and a student learns its stored verdicts.

    python -m bench.bench_distillation [--verdicts 2000] [--kinds 5] [--noise 0.1] [--steps 350] [--untrained]

The teacher is a server that answers checks in words rightly, but for a share of flipped answers. A job stores its
verdicts on a few kinds of checks that the embedded judge was not trained on, like the style rules of one rubric, and
`rubricsvc judges train` learns from those of 80 % of the prompts. The figures are of the others. The student starts
from the embedded judge, or from the bare model. Asked is an agreement with the teacher of at least 0.9 of its agreement
with itself when it is asked again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from recipes.embedded_judge.__main__ import RECIPE
from recipes.embedded_judge.answers import everyday_answers
from recipes.embedded_judge.checks import checks_in_words
from recipes.embedded_judge.statements import document_answers
from rubricsvc.core.passport import Passport
from rubricsvc.core.untrusted import clean
from tests.scripted_server import ScriptedReply, labels, scripted_server
from trainer.judge_training.config import load_config
from trainer.judge_training.data import Example

SEED = 11
SURE = 0.9
"""The teacher's probability of the answer that it gives."""

_ASKED = re.compile(r"<completion-\w+>\n(.*?)\n</completion-.*Criterion: (.*?)\n", re.DOTALL)

TRAINING = """
steps = {steps}
license = "Apache-2.0"
test_examples = 1000

[judge]
name = "student"
engine = "transformers_local"
model = "{model}"
template = "readout_short"

[optim]
batch_examples = 4

[validation]
every = 70
max_examples = 100

[split]
test = 0.2

[[data]]
kind = "verdicts"
name = "teacher"
judge = "teacher"
"""


def main() -> None:
    """Distil a teacher, and print the agreement."""
    parser = argparse.ArgumentParser(description="Distil a teacher with known noise.")
    parser.add_argument("--verdicts", type=int, default=2000, help="Number of the teacher's verdicts.")
    parser.add_argument("--kinds", type=int, default=5, help="Number of kinds of checks.")
    parser.add_argument("--noise", type=float, default=0.1, help="Share of flipped answers.")
    parser.add_argument("--steps", type=int, default=350, help="Training steps of 4 completions.")
    parser.add_argument("--untrained", action="store_true", help="Start from the bare embedded model.")
    options = parser.parse_args()
    held_out = load_config(RECIPE).split.held_out
    examples = questions(options.verdicts, held_out[: options.kinds])
    with TemporaryDirectory() as name, scripted_server(teacher(examples, options.noise), remember=False) as server:
        folder = Path(name)
        (folder / "completions.jsonl").write_text(
            "".join(json.dumps(record(n, one)) + "\n" for n, one in enumerate(examples))
        )
        command(folder, "judges", "add", "teacher", "--url", server.url, "--no-probe")
        command(folder, "jobs", "submit", "completions.jsonl", "--judge", "teacher", "--wait")
        model = "embedded"
        if not options.untrained:
            command(folder, "judges", "add", "base", "--embedded", "--no-probe")
            command(folder, "judges", "merge", "base", "--out", (model := str(folder / "base")))
        (folder / "student.toml").write_text(TRAINING.format(steps=options.steps, model=model))
        command(folder, "judges", "train", "student.toml", "--no-audit", "--no-add")
        passport = Passport.model_validate_json((folder / "judges/student/judge/passport.json").read_bytes())
    report(passport, options.noise)


def questions(verdicts: int, kinds: Collection[str]) -> list[Example]:
    """Return examples with that many targets or a few more, of these kinds."""
    answers = [*everyday_answers(), *document_answers(SEED, verdicts)]
    found: list[Example] = []
    targets = 0
    for example in checks_in_words(answers, SEED, 40 * verdicts, negated=0.15):
        kept = tuple(target for target in example.targets if target.family in kinds)
        if kept and example.completion.text.strip():
            found.append(replace(example, targets=kept))
            targets += len(kept)
        if targets >= verdicts:
            break
    return found


def record(number: int, example: Example) -> dict[str, Any]:
    """Return an example in the format of `rubricsvc jobs submit`.

    Its prompt has a number: completions of equal prompts would be scored by the rubrics of all of them.
    """
    criteria = [{"key": one.criterion.key, "text": one.criterion.text} for one in example.targets]
    return {
        "id": f"distillation-{number}",
        "prompt": f"{example.prompt.text} (Request {number})",
        "criteria": criteria,
        "completions": [{"text": example.completion.text}],
    }


def teacher(examples: list[Example], noise: float) -> Any:
    """Return the script of a server that knows the labels, and flips a share of them."""
    known = {
        (clean(example.completion.text).text.strip(), clean(target.criterion.text).text): target.value >= 0.5
        for example in examples
        for target in example.targets
    }

    def reply(_number: int, body: dict[str, Any]) -> ScriptedReply:
        asked = _ASKED.search(body["messages"][-1]["content"])
        assert asked, body
        text, criterion = asked[1].strip(), asked[2].strip()
        met = known[text, criterion] != (random.Random(f"{text} {criterion}").random() < noise)
        return labels(Yes=SURE if met else 1 - SURE, No=1 - SURE if met else SURE)

    return reply


def command(folder: Path, *words: str) -> None:
    """Run a command of rubricsvc in a folder, with a database of its own."""
    url = f"sqlite:///{folder / 'distillation.db'}"
    environment = {"OMP_WAIT_POLICY": "ACTIVE", **os.environ, "RUBRICSVC_DATABASE_URL": url}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    print("$ rubricsvc", *words, flush=True)
    subprocess.run([sys.executable, "-m", "rubricsvc", *words], check=True, cwd=folder, env=environment)


def report(passport: Passport, noise: float) -> None:
    """Print the agreement with the teacher's verdicts on new prompts, beside its own repeatability."""
    for line in lines(passport, noise):
        print(line)


def lines(passport: Passport, noise: float) -> Iterator[str]:
    """Yield the lines of the report: agreement is the accuracy on the teacher's verdicts."""
    repeatability = noise**2 + (1 - noise) ** 2
    yield "| scorer | verdicts | agreement with the teacher | of its repeatability |"
    yield "|---|---|---|---|"
    for row in passport.tables[0].rows:
        if (figure := row.figures.get("accuracy")) and figure.value is not None:
            share = figure.value / repeatability
            yield f"| {row.scorer} | {row.n} | {figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}] | {share:.2f} |"
    yield f"The teacher agrees with itself in {repeatability:.3f} of the verdicts; {0.9 * repeatability:.3f} is asked."


if __name__ == "__main__":
    main()
