"""Best of n by three judges, with people's labels as gold: what is a better judge worth without any training?

    python -m bench.bench_bestofn [--questions N] [--answers N] [--out FOLDER]

Questions of TruthfulQA on which the shipped judge was not trained (the test part of its split), each with the answers
of several models that people labelled as true or not. The judges: the embedded model as it is, the shipped judge that
was trained from it, and, as a trivial baseline, a check for words of denial, since the premises of many of these
questions are false. All goes through the command line; the same command continues after an interrupt.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from bench.bench_run import rubricsvc
from bench.judge_sets import truthfulqa
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import OVERALL, Label
from rubricsvc.formats import writing
from rubricsvc.formats.record import Record
from tests.conftest import SHARED
from trainer.judge_training.config import SplitConfig
from trainer.judge_training.data import Example, side_of

SPLIT, SEED = SplitConfig(test=0.2, validation=0.03), 0
"""The split of `recipes/embedded_judge/embedded.toml`."""
TRUE = Criterion(key="true", text="The answer is truthful: it makes no false claim.")
DENIAL = Rubric(
    criteria=(
        Criterion(
            key="denies",
            text="Denies something.",
            check=Check(name="regex", args={"pattern": r"(?i)\b(no|not|never|nothing|nobody|none)\b|n't\b"}),
        ),
    )
)
JUDGES = ("untrained", "trained")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--answers", type=int, default=16, help="Fewest answers of a question, and the most taken.")
    parser.add_argument("--out", type=Path, default=Path("bench-bestofn"))
    args = parser.parse_args()
    out: Path = args.out
    out.mkdir(parents=True, exist_ok=True)
    with (out / "answers.jsonl").open("w", encoding="utf-8") as stream:
        writing.write_text(map(writing.plain, records(SHARED, args.questions, args.answers)), stream, "jsonl")
    (out / "denial.jsonl").write_text(
        json.dumps({"name": "denial", "criteria": [one.model_dump(mode="json") for one in DENIAL.criteria]}) + "\n",
        encoding="utf-8",
    )
    rubricsvc(out, "rubrics", "import", "answers.jsonl")
    bare = {"name": "untrained", "engine": "transformers_local", "model": "embedded"}
    (out / "untrained.json").write_text(json.dumps(bare), encoding="utf-8")
    rubricsvc(out, "judges", "add", "--file", "untrained.json", "--no-probe")
    rubricsvc(out, "judges", "add", "trained", "--embedded", "--no-probe")
    for name in JUDGES:
        rubricsvc(out, "jobs", "submit", "--judge", name, "--name", name, "--wait")
    rubricsvc(out, "rubrics", "import", "denial.jsonl")
    rubricsvc(out, "jobs", "submit", "--judge", "trained", "--rubric", "denial", "--name", "denial", "--wait")
    jobs = [argument for job in ("1", "2", "3") for argument in ("--job", job)]
    rubricsvc(out, "jobs", "bestofn", *jobs, "--gold", "labels")


def records(data: Path, questions: int, answers: int) -> Iterator[Record]:
    """Yield ``answers`` labelled answers each of held-out questions, whose rubrics differ in their names alone."""
    by_question: defaultdict[str, list[tuple[Example, float]]] = defaultdict(list)
    for example in truthfulqa(data):
        if side_of(example.split_group, SPLIT, SEED) == "test":
            values = [target.value for target in example.targets if target.criterion.key == TRUE.key]
            by_question[example.prompt.text] += [(example, value) for value in values]
    enough = [group[:answers] for _, group in sorted(by_question.items()) if len(group) >= answers]
    for number, group in enumerate(enough[:questions]):
        for example, value in group:
            label = Label(criterion=OVERALL, annotator="people", value=value)
            rubric = Rubric(criteria=(TRUE,))
            yield Record(example.prompt, rubric, (example.completion,), (label,), f"q{number}", f"truthful-{number}")


if __name__ == "__main__":
    main()
