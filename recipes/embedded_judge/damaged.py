"""A criterion in several wordings, of which some are met where the others are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from recipes.embedded_judge.edits import sentences
from rubricsvc.core.prompt import Completion
from rubricsvc.core.rubric import Criterion
from rubricsvc.errors import InvalidError
from trainer.judge_training.data import Example, Target


@dataclass(frozen=True, slots=True)
class Wordings:
    """What is asked in several ways: ``met`` where the property holds, ``unmet`` where it does not."""

    family: str
    met: tuple[str, ...]
    unmet: tuple[str, ...]

    def sample(self, rng: Random, *, negated: bool) -> str:
        """Return one of the wordings, some with a full stop."""
        text = rng.choice(self.unmet if negated else self.met)
        return f"{text}." if rng.random() < 0.5 else text


SOURCE = "damaged"

COMPLETE = Wordings(
    "complete",
    met=(
        "Is complete", "Ends with a whole sentence", "The last sentence is finished", "Is not cut off",
        "Has a proper end", "Every sentence is complete", "Does not break off", "Comes to an end",
    ),
    unmet=(
        "Ends in the middle of a sentence", "Is cut off", "Breaks off before the end", "Is truncated",
        "The last sentence is not finished", "Stops in mid-sentence", "Is incomplete at the end",
    ),
)  # fmt: skip
READABLE = Wordings(
    "readable",
    met=(
        "Is readable", "Its words are in a sensible order", "Makes sense as English text", "Consists of sentences",
        "Is coherent", "Is written in grammatical sentences", "Can be understood", "The order of the words is right",
    ),
    unmet=(
        "Is unreadable", "Its words are in a random order", "Is gibberish", "Makes no sense as a text",
        "Is incoherent", "The words are jumbled", "Cannot be understood", "Is a jumble of words",
    ),
)  # fmt: skip
CONCISE = Wordings(
    "concise",
    met=(
        "Is concise", "Gets to the point without padding", "Contains no filler", "Every sentence says something",
        "Wastes no words", "Is free of empty phrases", "Has no sentence that adds nothing",
    ),
    unmet=(
        "Contains filler that adds nothing", "Is padded", "Has empty phrases", "Wastes words",
        "Has sentences that say nothing", "Is padded with phrases that could be left out", "Contains empty talk",
    ),
)  # fmt: skip

FILLER = (
    "It is important to keep in mind that this is a topic worth considering.",
    "There is a lot that could be said about this.",
    "As is so often the case, things are not always as simple as they seem.",
    "This is a question that many people ask themselves at some point.",
    "Needless to say, this is something that deserves attention.",
    "In this context, it should be mentioned that context matters.",
    "At the end of the day, it is what it is.",
    "When all is said and done, that is how it is.",
    "It goes without saying that every case is different.",
    "Let us take a closer look at this interesting matter.",
    "As already mentioned, this has been mentioned before.",
    "One could say a great deal more, but that would lead too far.",
    "It is worth noting that this is worth noting.",
    "With that in mind, let us continue.",
    "Before we go on, it makes sense to pause for a moment.",
    "This is, of course, only one way of looking at things.",
    "All things considered, there are many things to consider.",
    "Having said that, it remains to be said.",
    "In other words, this can also be put in other words.",
    "The importance of this cannot be stressed enough.",
    "That being said, we should not forget what was said.",
    "To make a long story short, it is a long story.",
    "As you can see, this is something one can see.",
    "This brings us to the next point, which follows now.",
    "For what it is worth, this is an aspect among others.",
    "It has to be said that such things happen.",
    "Basically, what this basically means is quite basic.",
    "I am very glad that you have asked this interesting question.",
    "Now that we have covered this, we have covered it.",
    "Everyone will agree that opinions differ on this.",
)
"""Sentences that say nothing."""

_DANGLING = (
    "a an and as at because between by for from if in into is of on or that the their this to when which with your"
)


def damaged(examples: Sequence[Example], seed: int, count: int, *, negated: float) -> Iterator[Example]:
    """Yield ``count`` examples, half of them damaged: cut off, with their words in a random order, or padded.

    Each is asked about in wordings that are met where the damage is and in as many that are met where it is not.

    Args:
        examples: Prompts with good completions; their targets are ignored.
        seed: Seed of all choices.
        count: Number of examples.
        negated: Share of the criteria that a damaged completion meets.

    Raises:
        InvalidError: No completion has a sentence of eight words.
    """
    rng = Random(f"damaged {seed}")
    pool = [example for example in examples if any(len(s.split()) >= 8 for s in sentences(example.completion.text))]
    pool = sorted((e for e in pool if e.completion.text.strip()[-1] in ".!?"), key=lambda example: example.content)
    if not pool:
        raise InvalidError("no completion with a sentence of eight words")
    for number in range(count):
        example, harm = rng.choice(pool), number % 2 == 1
        if number // 2 % 3 == 0:
            text = _jumbled(example.completion.text, rng) if harm else example.completion.text
            yield _example(example, text, {READABLE: not harm}, negated, rng)
            continue
        cut, padded = harm, rng.random() < 0.5
        text = _padded(example.completion.text, rng) if padded else example.completion.text
        text = _cut(text, rng) if cut else text if rng.random() < 0.85 else text.rstrip(".")
        yield _example(example, text, {COMPLETE: not cut, CONCISE: not padded}, negated, rng)


def _jumbled(text: str, rng: Random) -> str:
    """Return the words in a random order, some with the capital and the full stop of a sentence."""
    words = text.split()
    if rng.random() < 0.3:  # within each sentence
        return " ".join(" ".join(_shuffled(sentence.split(), rng)) for sentence in sentences(text))
    shuffled = _shuffled(words, rng)
    if rng.random() < 0.5:
        joined = " ".join(word.strip(".,;!?").lower() for word in shuffled)
        return f"{joined[:1].upper()}{joined[1:]}."
    return " ".join(shuffled)


def _shuffled(words: list[str], rng: Random) -> list[str]:
    return rng.sample(words, len(words))


def _cut(text: str, rng: Random) -> str:
    """Return the text up to the middle of a sentence; some end with a full stop after a word such as "the"."""
    parts = sentences(text)
    long = [n for n, part in enumerate(parts) if len(part.split()) >= 6]
    at = rng.choice(long or [len(parts) - 1])
    words = parts[at].split()
    dangling = [n for n in range(2, len(words) - 1) if words[n].lower() in _DANGLING.split()]
    if dangling and rng.random() < 0.4:
        last = [*words[: rng.choice(dangling) + 1]]
        ending = rng.choice((".", ".", "...", ""))
    else:
        last, ending = words[: rng.randint(2, max(2, len(words) - 2))], ""
        last[-1] = last[-1].rstrip(".,;:!?")
        if rng.random() < 0.3 and len(last[-1]) > 4:
            last[-1] = last[-1][: rng.randint(2, len(last[-1]) - 2)]
    return " ".join([*parts[:at], *last]) + ending


def _padded(text: str, rng: Random) -> str:
    """Return some of the sentences, with two to four of filler."""
    parts = sentences(text)
    if len(parts) > 1 and rng.random() < 0.6:
        parts = parts[: rng.randint(1, len(parts) - 1)]
    for filler in rng.sample(FILLER, rng.randint(2, 4)):
        parts.insert(rng.randint(0, len(parts)), filler)
    return " ".join(parts)


def _example(example: Example, text: str, properties: dict[Wordings, bool], share: float, rng: Random) -> Example:
    targets: list[Target] = []
    for wordings, holds in properties.items():
        for negated in (rng.random() < share, rng.random() < share):
            criterion = Criterion(key=f"c{len(targets) + 1}", text=wordings.sample(rng, negated=negated))
            variant = "whole" if holds else "damaged"
            targets.append(Target(criterion, float(holds != negated), family=wordings.family, variant=variant))
    completion = Completion(text=text)
    return Example(example.prompt, completion, tuple(targets), SOURCE, example.split_group)
