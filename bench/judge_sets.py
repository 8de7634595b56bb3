"""Public sets with labels, as examples that a judge is measured on; and as files that a training can read.

    python -m bench.judge_sets export FOLDER [--data FOLDER] [--only SET …]

The export writes a file of labelled records for each set, and prints the ``[[data]]`` tables of a training from them,
so that each set can be left out in turn. The criteria's wordings were fixed before any judge was measured.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from rubricsvc.core.passport import Measure
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Level, Ordinal, Rubric
from rubricsvc.core.verdict import Label
from rubricsvc.errors import InvalidError, UnavailableError
from rubricsvc.formats import writing
from rubricsvc.formats.record import Record, keys_of
from tests.conftest import SHARED
from trainer.judge_training.data import Example, Target, labelled_examples, merge

LONGEST = 4000
"""Characters of a prompt and a completion that are asked about: a small model reads them in seconds."""

Read = Callable[[list[Path]], Iterator[Example]]


@dataclass(frozen=True)
class PublicSet:
    """A set with labels.

    Attributes:
        files: What it is read from, below the folder of all sets.
        read: Reads the files.
        size: Completions that are asked about.
        license: Its licence, as an SPDX identifier.
        about: What the labels are.
        measure: The figure that sums it up.
        paired: Whether the completions of a prompt are only taken together.
    """

    files: str
    read: Read
    size: int
    license: str
    about: str
    measure: Measure = "auroc"
    paired: bool = False


def of_format(format: str) -> Read:
    """Return a reader of files in one of the package's formats; a prompt's tag becomes the variant."""

    def read(paths: list[Path]) -> Iterator[Example]:
        for path in paths:
            for example in labelled_examples(path, format):
                variant = example.prompt.tags[0] if example.prompt.tags else ""
                yield replace(example, targets=tuple(replace(one, variant=variant) for one in example.targets))

    return read


_FOLLOWS_ALL = Criterion(key="follows", text="Follows every instruction in the prompt to the letter.")


def ifbench(paths: list[Path]) -> Iterator[Example]:
    """Yield a model's outputs, with the result of the published checks."""
    for row in _lines(paths):
        target = Target(_FOLLOWS_ALL, float(row["follow_all_instructions"]))
        yield Example(Prompt.of(row["prompt"]), Completion(text=row["response"]), (target,), "ifbench")


def biggen(paths: list[Path]) -> Iterator[Example]:
    """Yield each instance with its own reference answer, and with that of another instance of the same task."""
    tasks: dict[str, list[dict[str, Any]]] = {}
    for row in _lines(paths):
        if row["capability"] != "multilingual":
            tasks.setdefault(row["task"], []).append(row)
    for rows in tasks.values():
        for row, other in zip(rows, [*rows[1:], rows[0]], strict=True):
            if row["reference_answer"] != other["reference_answer"]:
                criterion = Criterion(key="meets", text=row["score_rubric"]["criteria"])
                prompt = Prompt.of(row["input"])
                for value, answer in ((1.0, row["reference_answer"]), (0.0, other["reference_answer"])):
                    target = Target(criterion, value, family="biggen", variant=row["capability"])
                    yield Example(prompt, Completion(text=answer, policy="reference"), (target,), "biggen")


def scholarqa(paths: list[Path]) -> Iterator[Example]:
    """Yield each criterion with the quotes that its author gave for it, and with those for the next one."""
    for row in _lines(paths):
        properties = [one for one in row["metric_config"]["config"]["other_properties"] if one.get("evidence")]
        prompt = Prompt.of(row["initial_prompt"])
        for one, other in zip(properties, [*properties[1:], *properties[:1]], strict=True):
            quotes, others = ("\n".join(some["evidence"]) for some in (one, other))
            if quotes != others:
                criterion = Criterion(key="meets", text=one["criterion"])
                for value, text in ((1.0, quotes), (0.0, others)):
                    target = Target(criterion, value, family="scholarqa")
                    yield Example(prompt, Completion(text=text, policy="evidence"), (target,), "scholarqa")


_LEVELS = Ordinal(
    levels=tuple(Level(label=label, value=n / 3) for n, label in enumerate(("bad", "fair", "good", "very good")))
)
_DIALOGUE_QUESTIONS = {
    "Q1": "How natural are the assistant's messages: could an intelligent human have written them?",
    "Q2": "How well can the sources answer the user's questions?",
    "Q3": "How many of the assistant's claims are followed by a citation?",
    "Q4": "How well do the citations support the claims that they are given for?",
    "Q5": "How well were the best of the available sources chosen for the citations?",
    "Q6": "How free are the assistant's messages of repetition and needless detail?",
    "Q7": "How concise are the assistant's messages?",
    "Q8": "How appropriate is the number of messages for what the user wanted to know?",
    "Q0": "How satisfied is the user with the whole conversation?",
}
"""In our own words: the set has the answers only, and the questions are in the paper (arXiv 2501.00274)."""


def llm_rubric(paths: list[Path]) -> Iterator[Example]:
    """Yield dialogues with a person's answers to nine questions; the sources, which are long, are not shown."""
    (folder,) = paths
    by_id = {one["_id"]: one for one in json.loads((folder / "real_data.json").read_text(encoding="utf-8"))}
    with (folder / "human_judges_real_convs_FIXED_ANON.tsv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream, delimiter="\t"):
            dialogue = by_id[row["text_id"]]
            text = "\n\n".join(f"[{one['role']}]\n{one['content'].strip()}" for one in dialogue["messages"])
            targets = tuple(
                Target(Criterion(key=key, text=question, scale=_LEVELS), (int(row[key]) - 1) / 3, family=key)
                for key, question in _DIALOGUE_QUESTIONS.items()
                if int(row[key])  # 0: does not apply
            )
            prompt = Prompt.of(f"Answer the user's questions on {dialogue['topic']}.")
            yield Example(prompt, Completion(text=text), targets, "llm_rubric", row["text_id"])


SETS = {
    "llmbar_natural": PublicSet(
        "llmbar/**/Natural/dataset.json", of_format("llmbar"), 100, "MIT", "the better of two answers", paired=True
    ),
    "llmbar_adversarial": PublicSet(
        "llmbar/**/Adversarial/*/dataset.json",
        of_format("llmbar"),
        100,
        "MIT",
        "the better of two answers, of which the worse one was made to look better",
        paired=True,
    ),
    "evalbiasbench": PublicSet(
        "evalbiasbench/*.json*",
        of_format("evalbiasbench"),
        60,
        "BSD-3-Clause",
        "the better of two answers, the other one with a bias of judges",
        paired=True,
    ),
    "llm_rubric": PublicSet(
        "llm_rubric/real_data",
        llm_rubric,
        24,
        "MIT",
        "a person's answers to nine questions on a dialogue; the sources are not shown",
        measure="macro_auroc",
    ),
    "gsm8k": PublicSet(
        "gsm8k/*solutions.jsonl", of_format("gsm8k"), 100, "MIT", "correct solutions, the right one shown"
    ),
    "biggen": PublicSet(
        "biggen_bench/*.jsonl",
        biggen,
        80,
        "Apache-2.0",
        "the reference answer, and that of another instance of the task (no labels of people)",
        paired=True,
    ),
    "scholarqa": PublicSet(
        "scholarqabench/rubrics.jsonl",
        scholarqa,
        60,
        "MIT",
        "quotes that an expert gave for a criterion, and those for another one of the same question",
    ),
    "ifbench": PublicSet(
        "ifbench/eval_results_strict.jsonl", ifbench, 60, "Apache-2.0", "outputs that pass all published checks"
    ),
    "cherrl": PublicSet(
        "cherrl*/rollouts.jsonl",
        of_format("cherrl"),
        40,
        "Apache-2.0",
        "outputs of policies before and after they learned to fool a judge; weak labels",
    ),
}

UNLABELLED = {
    "healthbench": "the set has criteria, but no completions and no labels",
    "ifeval": "the set has no outputs; its checks are among the checks in words",
    "hellobench, writingbench, deep_research_bench": "no labels of people or checks for completions",
    "paperbench": "the graded submissions are not in the set",
    "deepscholar_bench": "no labels of people; its abstracts are documents of `says that`",
}
"""What is not measured, and why."""


@cache
def truthfulqa(data: Path) -> list[Example]:
    """Return people's labels as a training reads them: ``true`` and ``helpful`` of each answer, without duplicates.

    Raises:
        UnavailableError: The set is absent.
    """
    paths = found(data, "truthfulqa_human/finetune_*.jsonl")
    examples = merge(chain.from_iterable(labelled_examples(path, "truthfulqa") for path in paths)).examples
    return [
        replace(one, targets=tuple(replace(target, family=target.criterion.key) for target in one.targets))
        for one in examples
    ]


def read_set(name: str, data: Path) -> list[Example]:
    """Return the examples of a public set, without duplicates.

    Raises:
        UnavailableError: It is absent.
    """
    one = SETS[name]
    return [replace(example, source=name) for example in merge(one.read(found(data, one.files))).examples]


def found(data: Path, files: str) -> list[Path]:
    """Return the files of a set.

    Raises:
        UnavailableError: There are none.
    """
    paths = sorted(data.glob(files))
    if not paths:
        raise UnavailableError(f"no {files.partition('/')[0]} in the folder of public sets")
    return paths


def sampled(
    examples: Iterable[Example], size: int, *, seed: int = 0, paired: bool = False, longest: int = LONGEST
) -> tuple[list[Example], int]:
    """Return up to ``size`` examples, and how many were left out because they are too long.

    If they are ``paired``, all examples of a prompt are taken or none.
    """
    groups: dict[str, list[Example]] = {}
    for number, example in enumerate(examples):
        groups.setdefault(example.split_group if paired else str(number), []).append(example)
    short = [group for group in groups.values() if all(_length(example) <= longest for example in group)]
    taken: list[Example] = []
    for group in random.Random(seed).sample(short, len(short)):
        if len(taken) + len(group) <= size:
            taken += group
    return taken, sum(map(len, groups.values())) - sum(map(len, short))


def _length(example: Example) -> int:
    return len(example.prompt.text) + len(example.completion.text)


def export(folder: Path, data: Path, names: Iterable[str]) -> Iterator[str]:
    """Write the sets as files of labelled records, and yield the tables of a training's configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        license = "Apache-2.0" if name == "truthfulqa" else SETS[name].license
        try:
            examples = truthfulqa(data) if name == "truthfulqa" else read_set(name, data)
        except UnavailableError as error:
            yield f"# {name}: {error}\n"
            continue
        path = folder / f"{name}.jsonl"
        with path.open("w", encoding="utf-8") as stream:
            writing.write_text(map(writing.plain, (_record(example, name) for example in examples)), stream, "jsonl")
        fields = {"kind": "file", "name": name, "path": str(path), "format": "native", "license": license}
        yield "[[data]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in fields.items())


def _record(example: Example, name: str) -> Record:
    keys = keys_of([one.criterion.key for one in example.targets])
    pairs = list(zip(keys, example.targets, strict=True))
    criteria = tuple(target.criterion.model_copy(update={"key": key}) for key, target in pairs)
    labels = tuple(Label(criterion=key, annotator="dataset", value=target.value) for key, target in pairs)
    completion = example.completion.model_copy(update={"id": None})
    return Record(example.prompt, Rubric(criteria=criteria), (completion,), labels, name=name)


def _lines(paths: list[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def main() -> None:
    """Export the public sets."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("action", choices=["export"])
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--data", type=Path, default=SHARED)
    names = ["truthfulqa", *SETS]
    arguments.add_argument("--only", nargs="*", choices=names, default=names)
    options = arguments.parse_args()
    try:
        for table in export(options.folder, options.data, options.only):
            print(table)
    except InvalidError as error:
        raise SystemExit(f"{error}") from error


if __name__ == "__main__":
    main()
