"""Make the questions by construction that `embedded.toml` trains on: `python -m recipes.embedded_judge [CONFIG.toml]`.

They are made of CPython's documents, invented facts, everyday answers, and completions of the configuration's labelled
files; each of its data sets of kind ``questions`` is written to its path, named after the kind of question.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from recipes.embedded_judge.alterations import invented_documents
from recipes.embedded_judge.answers import arithmetic, damaged, everyday_answers, everyday_criteria, swapped
from recipes.embedded_judge.checks import checks_in_words
from recipes.embedded_judge.derived import hard_negatives, scales
from recipes.embedded_judge.statements import document_answers, standard_library_docstrings, statements
from rubricsvc.collections.sources import python_reference
from rubricsvc.errors import InvalidError
from rubricsvc.formats import load
from trainer.judge_training.config import FileData, JudgeTrainConfig, QuestionData, load_config
from trainer.judge_training.data import EXAMPLE, Example, load_dataset, side_of

RECIPE = Path(__file__).with_name("embedded.toml")
COUNTS = {
    "statements": 5000,
    "checks": 5000,
    "swapped": 4500,
    "damaged": 800,
    "everyday": 1500,
    "arithmetic": 1500,
    "hard_negatives": 2000,
    "scales": 600,
}
"""Completions of each kind of question."""
NEGATED = 0.15
"""Share of the questions that are worded with a negation. Of equal parts of both an untrained model learns nothing."""
EXCLUDED = Path(__file__).parents[2] / "bench/run_questions/questions.yaml"
"""Rubrics of a later test, whose statements are not asked about."""
INVENTED_DOCUMENTS = 400
MAX_ANSWERS = 1500
"""Completions that questions are made of, of each kind."""

Make = Callable[[int, int], Iterator[Example]]


def makers(config: JudgeTrainConfig) -> dict[str, Make]:
    """Return for each kind of question what yields its examples, given a seed and a number of completions."""
    seed, settings = config.seed, config.split
    files = (one for one in config.data if isinstance(one, FileData))
    labelled = [example for one in files for example in load_dataset(one, _no_store).examples]
    documents = [*python_reference(), *standard_library_docstrings(), *invented_documents(seed, INVENTED_DOCUMENTS)]
    good = [one for one in labelled if all(target.value >= 0.5 for target in one.targets)]
    own = sorted(good, key=lambda one: one.content)[:MAX_ANSWERS]
    direct = [*everyday_answers(), *own]  # each answers its question and hardly another
    answers = [*direct, *document_answers(seed, MAX_ANSWERS)]
    labelled = sorted(labelled, key=lambda one: one.content)[:MAX_ANSWERS]
    criteria = [one for record in load(EXCLUDED) if record.rubric for one in record.rubric.criteria]
    excluded = [text for one in criteria for text in (one.text, one.reference, *(one.passages or ())) if text]
    excluded += [one.prompt.reference for one in load(EXCLUDED) if one.prompt and one.prompt.reference]

    def stated(seed: int, count: int) -> Iterator[Example]:
        return statements(documents, seed, count, negated=NEGATED, exclude=excluded)

    def checked(seed: int, count: int) -> Iterator[Example]:
        return checks_in_words(answers, seed, count, negated=NEGATED)

    def on_topic(seed: int, count: int) -> Iterator[Example]:
        sides: dict[str, list[Example]] = defaultdict(list)
        for one in direct:  # a completion of a test prompt is no foreign one in training
            sides[side_of(one.split_group, settings, config.seed)].append(one)
        for pool in sides.values():
            if len({one.split_group for one in pool}) > 1:
                yield from swapped(pool, seed, round(count * len(pool) / len(direct)), negated=NEGATED)

    def levels(seed: int, count: int) -> Iterator[Example]:
        def shown(one: Example) -> Example:  # kinds that are held out would be quoted in others
            return replace(one, targets=tuple(t for t in one.targets if t.family_name not in settings.held_out))

        made = [*stated(seed + 2, MAX_ANSWERS), *checked(seed + 2, MAX_ANSWERS)]
        return scales([shown(one) for one in made], seed, count)

    def worthless(seed: int, count: int) -> Iterator[Example]:
        made = [one for maker in (stated, on_topic, everyday_criteria) for one in maker(seed + 1, MAX_ANSWERS)]
        return hard_negatives([*labelled, *made], seed, count)

    return {
        "statements": stated,
        "checks": checked,
        "swapped": on_topic,
        "damaged": lambda seed, count: damaged(answers, seed, count, negated=NEGATED),
        "everyday": everyday_criteria,
        "arithmetic": lambda seed, count: arithmetic(seed, count, negated=NEGATED),
        "hard_negatives": worthless,
        "scales": levels,
    }


def write(config: JudgeTrainConfig, share: float = 1.0) -> Iterator[tuple[Path, int]]:
    """Write the questions of a configuration, a share of them; yield each file with its number of completions.

    Raises:
        InvalidError: A data set of the configuration is named after no kind of question.
    """
    made = makers(config)
    for entry in (one for one in config.data if isinstance(one, QuestionData)):
        if entry.name not in made:
            raise InvalidError(f"no kind of question {entry.name!r}", hint=f"name one of {', '.join(made)}")
        examples = list(made[entry.name](config.seed, max(1, round(share * COUNTS[entry.name]))))
        entry.path.parent.mkdir(parents=True, exist_ok=True)
        entry.path.write_bytes(b"".join(EXAMPLE.dump_json(one, exclude_none=True) + b"\n" for one in examples))
        yield entry.path, len(examples)


def _no_store() -> NoReturn:
    raise InvalidError("questions are made of files only", hint="leave labels and verdicts of the database out")


def main(arguments: Sequence[str]) -> None:
    """Write the questions of a configuration, by default of the judge that the package ships."""
    config = load_config(Path(arguments[0]) if arguments else RECIPE)
    for path, count in write(config):
        sys.stdout.write(f"{path}: {count} completions\n")


if __name__ == "__main__":
    main(sys.argv[1:])
