"""What a judge is measured on without training: examples that its recipe holds out, and sets that it never sees.

The parts are those of `trainer.judge_training.data`: a recipe's share of the test, its seed and the families of
criteria that it holds out name what was not trained on. The questions are made again, with another seed.
"""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

from bench import judge_sets
from bench.judge_sets import LONGEST, SETS, sampled
from recipes.embedded_judge.alterations import ALTERATIONS, lower_first, paraphrase
from recipes.embedded_judge.answers import ON_TOPIC, everyday_answers, swapped
from recipes.embedded_judge.checks import checks_in_words
from recipes.embedded_judge.statements import document_answers, standard_library_docstrings, statements, topics
from rubricsvc.collections.sources import python_reference
from rubricsvc.core.passport import Measure
from rubricsvc.core.prompt import Document
from rubricsvc.core.rubric import Criterion
from rubricsvc.errors import UnavailableError
from trainer.judge_training.config import JudgeTrainConfig, SplitConfig
from trainer.judge_training.data import Example, Part, Question, Target, side_of
from trainer.judge_training.run import By

SEED = 2026
"""Of the questions; a training's own seed makes others of the same texts."""
TRAIN = 400
"""Examples that the baselines of questions by construction are fitted to."""
COUNTING = ("count_words_max", "count_words_min", "count_sentences", "count_items")


@dataclass(frozen=True)
class Recipe:
    """How a training divides its data: see ``[split]`` of its configuration."""

    split: SplitConfig = field(default_factory=SplitConfig)
    seed: int = 0

    @classmethod
    def of(cls, config: JudgeTrainConfig) -> Recipe:
        """Return the recipe of a training's configuration."""
        return cls(config.split, config.seed)

    def side(self, name: str) -> Part:
        """Return the part of a group of examples."""
        return side_of(name, self.split, self.seed)

    def parts(self, examples: Iterable[Example]) -> tuple[list[Example], list[Example]]:
        """Return the examples to learn from, and those of the test."""
        parts: dict[Part, list[Example]] = {"train": [], "validation": [], "test": []}
        for example in examples:
            parts[self.side(example.split_group)].append(example)
        return parts["train"], parts["test"]


def every(_: Question) -> bool:
    """Return whether a question is in the view of a whole test."""
    return True


@dataclass(frozen=True)
class View:
    """A part of a test with a figure of its own.

    Attributes:
        name: Name of its table.
        target: What was asked for, if anything was.
        keep: Which questions are in it.
        by: What the table is broken down by.
        other: Whether it is a set that was never trained on, which is counted with the others.
    """

    name: str
    measure: Measure = "auroc"
    target: float | None = None
    keep: Callable[[Question], bool] = every
    by: By | None = None
    other: bool = False


@dataclass(frozen=True)
class JudgeTest:
    """Examples to ask about, those that baselines are fitted to (none: they are not fitted), and what is shown."""

    name: str
    about: str
    test: Sequence[Example]
    views: tuple[View, ...]
    train: Sequence[Example] = ()
    left_out: int = 0


@dataclass(frozen=True)
class Source:
    """Makes tests: of which data, by which recipe, and how large."""

    data: Path
    recipe: Recipe
    scale: float = 1.0
    longest: int = LONGEST

    def size(self, full: int) -> int:
        """Return a number of examples at this scale, at least 4."""
        return max(4, round(full * self.scale))


def truthfulqa(source: Source) -> JudgeTest:
    """Return people's labels of answers: of questions that were not trained on, or new answers to known ones."""
    train, test = source.recipe.parts(judge_sets.truthfulqa(source.data))
    chosen, left_out = sampled(test, source.size(150), longest=source.longest)
    measure: Measure = "auroc"
    targets = {"helpful": 0.95, "true": 0.82}
    what = "questions not trained on"
    views = tuple(
        View(f"TruthfulQA, {what}: {name}", measure, target, keep=_in_family(name)) for name, target in targets.items()
    )
    return JudgeTest("truthfulqa", "people's labels", chosen, views, train, left_out)


def says_that(source: Source) -> JudgeTest:
    """Return questions about what answers on CPython's documents say, of documents that were not trained on."""
    documents = [*python_reference(), *standard_library_docstrings()]
    size, test, train = source.size(150), list[Example](), list[Example]()
    for example in statements(documents, SEED, 100_000, negated=0.1):
        part = source.recipe.side(example.split_group)
        if part == "test" and len(test) < size:
            test.append(example)
        elif part == "train" and len(train) < source.size(TRAIN):
            train.append(example)
        if len(test) == size:
            break
    return JudgeTest("says_that", "by construction, CPython's documents", test, _statement_views("unseen"), train)


def says_that_elsewhere(source: Source) -> JudgeTest:
    """Return the same questions about abstracts and experts' answers, which no recipe has."""
    documents = list(research_documents(source.data))
    made = list(statements(documents, SEED, source.size(120) + source.size(TRAIN), negated=0.1))
    size = source.size(120)
    train_of = {example.split_group for example in made[size:]} - {example.split_group for example in made[:size]}
    train = [example for example in made[size:] if example.split_group in train_of]
    views = _statement_views("research")
    return JudgeTest("says_that_elsewhere", "by construction, abstracts and answers", made[:size], views, train)


_NAMED = re.compile(r"[^:]*? that (.*?)[.?]?", re.DOTALL)


def passage_shown(source: Source) -> JudgeTest:
    """Return "says that" where a passage is shown that states what is asked about, whether the answer does or not.

    Of each answer two drawn statements are asked about, and of each second one another statement of its document.
    """
    found, names = topics(research_documents(source.data))
    sentences, rng, test = {one.id: one.sentences for one in found}, random.Random(SEED), list[Example]()
    for example in statements(research_documents(source.data), SEED, 10 * source.size(75), negated=0.0):
        own, kept = example.completion.text, list[Target]()
        lacking = [one for one in sentences[example.group] if one not in own]
        drawn = [one for one in example.targets if one.family == "says_that" and not one.criterion.passages][:2]
        if len(test) % 2 == 0 and drawn and lacking:
            text = f"Mentions that {lower_first(rng.choice(lacking), names)}"
            drawn.append(Target(Criterion(key="c", text=text), 0.0, "says_that", "absent"))
        for number, target in enumerate(drawn):
            named, around = _NAMED.fullmatch(target.criterion.text), rng.sample(lacking, min(2, len(lacking)))
            if named:
                claim = paraphrase(f"{named[1][:1].upper()}{named[1][1:]}.", rng, names)
                passage = " ".join(rng.sample([claim, *around], len(around) + 1))
                criterion = target.criterion.model_copy(update={"key": f"c{number}", "passages": (passage,)})
                kept.append(replace(target, criterion=criterion))
        test += [replace(example, targets=tuple(kept))] if kept else []
        if len(test) == source.size(75):
            break
    view = View('"says that", the claim stands in a passage that is shown', "auroc", 0.90, by="variant")
    return JudgeTest("passage_shown", "by construction, abstracts and answers", test, (view,))


def checks(source: Source) -> JudgeTest:
    """Return checks in words: families that were not trained on, and nothing that needs counting."""
    held_out = frozenset(source.recipe.split.held_out)
    if not held_out:
        raise UnavailableError("the recipe holds out no kind of check")
    known, new = source.recipe.parts(_answers(source))
    size = source.size(500)
    tested = _of_families(checks_in_words(new, SEED, 40 * size, negated=0.4), lambda name: name in held_out)
    trained = _of_families(
        checks_in_words(known, SEED, source.size(TRAIN), negated=0.4), lambda name: name not in held_out
    )
    test, left_out = sampled(islice(tested, size), size, longest=source.longest)
    name = "checks in words, kinds not trained on"
    views = (
        View(name, "macro_auroc", 0.95, keep=plainly_worded, by="family"),
        View(f"{name}: negated wordings", "macro_auroc", keep=negated, by="family"),
    )
    return JudgeTest("checks", f"families {', '.join(sorted(held_out))}", test, views, list(trained), left_out)


def answer_swaps(source: Source) -> JudgeTest:
    """Return prompts with their own answer or another one's: TruthfulQA's and everyday ones, not trained on."""
    known, new = source.recipe.parts(_answers(source, documents=False))
    train = list(swapped(known, SEED, source.size(TRAIN), negated=0.5))
    test: list[Example] = []
    for name in ("everyday", "truthfulqa"):
        pool = [example for example in new if example.source == name]
        count = min(source.size(150), 4 * len(pool))
        if pool:
            test += [replace(one, source=name) for one in swapped(pool, SEED, count, negated=0.5)]
    return JudgeTest("swapped", "by construction", test, _swap_views("prompts not trained on", "source"), train)


def answer_swaps_elsewhere(source: Source) -> JudgeTest:
    """Return the same with BiGGen's reference answers, which no recipe has."""
    pool = [one for one in judge_sets.read_set("biggen", source.data) if one.targets[0].value == 1.0]
    short, left_out = sampled(pool, len(pool), longest=source.longest // 2)
    made = list(swapped(short, SEED, source.size(150), negated=0.5))
    return JudgeTest("swapped_elsewhere", "by construction", made, _swap_views("BiGGen", None), left_out=left_out)


def public_set(name: str, source: Source) -> JudgeTest:
    """Return a public set that no recipe has."""
    one = SETS[name]
    examples = judge_sets.read_set(name, source.data)
    test, left_out = sampled(examples, source.size(one.size), paired=one.paired, longest=source.longest)
    by: By | None = "family" if name == "llm_rubric" else "variant" if name in ("evalbiasbench", "biggen") else None
    return JudgeTest(name, one.about, test, (View(name, one.measure, by=by, other=True),), left_out=left_out)


TESTS: dict[str, Callable[[Source], JudgeTest]] = {
    "truthfulqa": truthfulqa,
    "says_that": says_that,
    "says_that_elsewhere": says_that_elsewhere,
    "passage_shown": passage_shown,
    "checks": checks,
    "swapped": answer_swaps,
    "swapped_elsewhere": answer_swaps_elsewhere,
    **{name: partial(public_set, name) for name in SETS},
}


def contrary(one: Question) -> bool:
    """Return whether a statement is made, or its contrary in the same words; not whether another one is made."""
    return one[1].variant in ("stated", "paraphrased", *ALTERATIONS)


def negated(one: Question) -> bool:
    """Return whether a check or a question on swapped answers is worded with a negation."""
    _, target = one
    if target.family == ON_TOPIC.family:
        return (target.value >= 0.5) != (target.variant == "own")
    return target.variant == "negated wording"


def plainly_worded(one: Question) -> bool:
    """Return whether a check or a question on swapped answers is worded without a negation."""
    return not negated(one)


def _swap_views(prompts: str, by: By | None) -> tuple[View, ...]:
    """Return the views of swapped answers: with any other prompt's, with the nearest one's, and negated wordings."""
    name = f"answers swapped, {prompts}"
    return (
        View(name, "auroc", 0.97, keep=lambda one: plainly_worded(one) and one[1].variant != "near", by=by),
        View(f"{name}: with the nearest prompt", keep=lambda one: plainly_worded(one) and one[1].variant != "far"),
        View(f"{name}: negated wordings", keep=negated),
    )


def _statement_views(documents: str) -> tuple[View, ...]:
    return (
        View(f'"says that", {documents} documents', "auroc", 0.95, by="variant"),
        View(f'"says that", {documents} documents: contraries', "auroc", 0.80, keep=contrary),
    )


def _in_family(name: str) -> Callable[[Question], bool]:
    return lambda one: one[1].family == name


def _of_families(examples: Iterable[Example], wanted: Callable[[str], bool]) -> Iterator[Example]:
    for example in examples:
        kept = tuple(one for one in example.targets if one.family not in COUNTING and wanted(one.family))
        if kept:
            yield replace(example, targets=kept)


def _answers(source: Source, *, documents: bool = True) -> list[Example]:
    """Return the completions that a recipe makes questions of."""
    made = list(document_answers(SEED, source.size(600))) if documents else []
    try:
        labelled = judge_sets.truthfulqa(source.data)
    except UnavailableError:
        labelled = []
    good = [replace(one, source="truthfulqa") for one in labelled if all(each.value >= 0.5 for each in one.targets)]
    return [*everyday_answers(), *made, *good]


def research_documents(data: Path) -> Iterator[Document]:
    """Yield abstracts of papers, and experts' answers to research questions.

    Raises:
        UnavailableError: Both are absent.
    """
    found = False
    for path in data.glob("deepscholar_bench/papers.csv"):
        found = True
        with path.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                yield Document(id=row["arxiv_id"], title=row["title"], text=" ".join(row["abstract"].split()))
    for path in data.glob("scholarqabench/human_answers.json"):
        found = True
        for number, row in enumerate(json.loads(path.read_text(encoding="utf-8"))):
            yield Document(id=f"scholarqa-{number}", title=row["input"].rstrip("?"), text=row["output"])
    if not found:
        raise UnavailableError("no deepscholar_bench and no scholarqabench in the folder of public sets")
