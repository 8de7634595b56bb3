"""The sentences of documents about which there are questions, and the two versions of each."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

from recipes.embedded_judge import load_yaml
from recipes.embedded_judge.alterations.alter import ALTERATIONS, alterations, code_names
from recipes.embedded_judge.alterations.frames import read
from recipes.embedded_judge.alterations.tables import words_of
from recipes.embedded_judge.documents import lower_first, plain_title, proper_names, prose
from recipes.embedded_judge.paraphrase import paraphrase
from rubricsvc.core.prompt import Completion, Document, Prompt
from rubricsvc.core.rubric import Criterion
from rubricsvc.errors import InvalidError
from trainer.judge_training.data import Example, Target

_CONDITION = re.compile(
    r"\b(?:if|when|while|where|whether|unless|until|which|that|who|whose|may|some|other|any)\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Statement:
    """A sentence of a document in its two versions, each in several wordings."""

    sentence: str
    kind: str
    wordings: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def key(self) -> tuple[str, bool]:
        """The kind of the alteration, and whether the sentence is invented."""
        return self.kind, read(self.sentence) is not None

    @property
    def conflicting(self) -> bool:
        """Whether the two versions cannot both be true; of two names or two conditions, both may be."""
        if self.kind == "negated" and read(self.sentence):
            return True
        if self.kind == "number" and is_negated(self.sentence):
            return False
        return self.kind in ("negated", "number", "opposite", "quantifier") and not _CONDITION.search(self.sentence)


@dataclass(frozen=True)
class Topic:
    """A document with the sentences about which there are questions, by passage, and the code that it names."""

    id: str
    title: str
    codes: tuple[str, ...]
    passages: tuple[tuple[str, ...], ...]

    @cached_property
    def sentences(self) -> list[str]:
        """The sentences of all passages."""
        return [sentence for passage in self.passages for sentence in passage]


@dataclass(frozen=True)
class Stated:
    """A statement of an answer: the version and the wording that the answer has."""

    statement: Statement
    version: int
    wording: int

    @property
    def text(self) -> str:
        """The statement as the answer has it."""
        return self.statement.wordings[self.version][self.wording]


def topics(documents: Iterable[Document], exclude: Iterable[str] = ()) -> tuple[list[Topic], frozenset[str]]:
    """Return the documents' sentences, and the proper names in them.

    Of a sentence that several documents have, only the first document has it. A sentence is left out if it shares
    most of its words with a sentence of the texts in ``exclude``.

    Raises:
        InvalidError: fewer than two documents, or than ten sentences.
    """
    documents = list(documents)
    names = proper_names(documents)
    excluded = [long_words(sentence) for text in exclude for sentence in re.split(r"[.?!]\s+", text)]
    seen: set[str] = set()
    found = []
    for document in documents:
        passages: list[tuple[str, ...]] = []
        for sentences in prose(document):
            kept = tuple(s for s in sentences if s not in seen and not _is_excluded(s, excluded))
            seen.update(kept)
            if kept:
                passages.append(kept)
        if sum(map(len, passages)) >= 4:
            found.append(
                Topic(document.id, plain_title(document, names), tuple(code_names(document.text)), tuple(passages))
            )
    if len(found) < 2:
        raise InvalidError(
            f"{len(found)} documents with four or more sentences; expected two or more", hint="give more documents"
        )
    return found, names


def is_negated(text: str) -> bool:
    """Whether a text has a word of negation."""
    return "n't" in text or not words_of("negations").isdisjoint(_words(text))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def shared_words(text: str, other: str) -> float:
    """Return the share of a text's words and pairs of words that another text has."""
    words, others = _words(text), _words(other)
    pairs, there, pairs_there = list(pairwise(words)), set(others), set(pairwise(others))
    shared = sum(word in there for word in words) / len(words)
    return (shared + sum(pair in pairs_there for pair in pairs) / max(1, len(pairs))) / 2


def long_words(text: str) -> frozenset[str]:
    """Return the words of three or more letters."""
    return frozenset(word for word in _words(text) if len(word) > 2)


def _is_excluded(sentence: str, excluded: Sequence[frozenset[str]]) -> bool:
    words = long_words(sentence)
    return any(len(words & other) >= 0.6 * min(len(words), len(other)) for other in excluded if len(other) > 3)


SOURCE = "statements"
_SAYS = "says_that"
"""Family of the criteria that name a statement."""
REPHRASINGS = 3
"""Wordings of each version: the document's own, and two paraphrases."""
CONTRARIES = 0.65
"""How often a statement that the answer does not make is the contrary of one that it makes."""
_ATTEMPTS = 200
_SEARCHED = 30
"""Sentences among which one is looked for that can be altered in a certain kind."""
_SHOWN = 0.25
"""Share of the targets whose criterion shows a reference or a passage."""
_WITH_PROMPT = 0.5
"""How often a reference is shown with the prompt, where it is the only one: other criteria are not about it."""
_SUPPORTED = ("agrees_passage", "supported_by_passage")
_UNSUPPORTED = ("contradicts_passage", "unsupported_by_passage")
_MOST = 60
"""Sentences by which a document is drawn more often than another; more do not count."""


def statements(
    documents: Iterable[Document], seed: int, count: int, *, negated: float, exclude: Iterable[str] = ()
) -> Iterator[Example]:
    """Yield ``count`` answers on documents with three to six questions each about what the answer says.

    Args:
        documents: Texts in English. A document's id is the group of its examples.
        seed: Equal seeds and documents give equal examples.
        count: How many; fewer if the documents have no more.
        negated: Share of the targets that ask whether the answer does not say something, contradicts the reference or
            says what the passage does not support.
        exclude: Texts whose sentences are not used, such as those of a test.

    Raises:
        InvalidError: the documents hold too few sentences.
    """
    rng = random.Random(f"statements {seed}")
    maker = _Maker(topics(documents, exclude), rng, negated)
    seen: set[str] = set()
    attempts = 0
    while len(seen) < count and attempts < _ATTEMPTS:
        example = maker.example()
        attempts += 1
        if example.completion.text not in seen:
            seen.add(example.completion.text)
            attempts = 0
            yield example


class _Maker:
    """Makes examples from topics with one generator of random numbers."""

    def __init__(self, found: tuple[list[Topic], frozenset[str]], rng: random.Random, negated: float = 0.0) -> None:
        self.topics, self.names = found
        self.rng = rng
        self.negated = negated
        self._weights = list(accumulate(min(_MOST, len(topic.sentences)) for topic in self.topics))
        self._kinds: dict[str, frozenset[str]] = {}
        self._leads: dict[tuple[str, bool], float] = {}

    def example(self) -> Example:
        topic, parts = self.answer()
        rng = self.rng
        targets: dict[str, Target] = {}
        wanted = rng.randint(3, 6)
        for number in range(4 * wanted):
            if len(targets) == wanted:
                break
            target = self._target(topic, parts, number)
            targets.setdefault(target.criterion.question, target)
        text = _styled(parts, rng.getrandbits(64))
        prompt = self.prompt(topic)
        shown = [name for name, target in targets.items() if target.criterion.reference]
        if len(shown) == 1 and rng.random() < _WITH_PROMPT:
            target = targets[shown[0]]
            prompt = prompt.model_copy(update={"reference": target.criterion.reference})
            criterion = target.criterion.model_copy(update={"reference": None})
            targets[shown[0]] = replace(target, criterion=criterion)
        return Example(
            prompt=prompt,
            completion=Completion(text=text),
            targets=tuple(
                replace(target, criterion=target.criterion.model_copy(update={"key": f"s{n}"}))
                for n, target in enumerate(targets.values(), start=1)
            ),
            source=SOURCE,
            group=topic.id,
        )

    def clause(self, sentence: str) -> str:
        """Return the sentence as it follows "that"."""
        return lower_first(sentence.rstrip("."), self.names)

    def prompt(self, topic: Topic) -> Prompt:
        return Prompt.of(self.rng.choice(_forms()["prompts"]).format(topic=topic.title))

    def answer(self) -> tuple[Topic, list[Stated]]:
        """Return the statements of an answer: one to four sentences near each other."""
        rng = self.rng
        for _ in range(_ATTEMPTS):
            topic, place, kind = self._anchor()
            flat = topic.sentences
            length = rng.choices((1, 2, 3, 4), (3, 4, 3, 2))[0]
            near = [n for n in range(max(0, place - 2), min(len(flat), place + length + 2)) if n != place]
            picked = sorted([place, *rng.sample(near, min(length - 1, len(near)))])
            made = [self._statement(topic, flat[n], kind if n == place else None) for n in picked]
            parts = [Stated(one, rng.randrange(2), rng.randrange(REPHRASINGS)) for one in made if one]
            if parts:
                return topic, parts
        raise InvalidError("no sentence can be altered", hint="give longer documents in English")

    def _anchor(self) -> tuple[Topic, int, str]:
        """Return a sentence that can be altered in a kind drawn at random, so that rare kinds become common."""
        rng = self.rng
        kind = rng.choice(ALTERATIONS)
        for _ in range(_SEARCHED):
            topic = rng.choices(self.topics, cum_weights=self._weights)[0]
            place = rng.randrange(len(topic.sentences))
            sentence = topic.sentences[place]
            if sentence not in self._kinds:
                self._kinds[sentence] = frozenset(alterations(sentence, topic.codes, rng))
            if kind in self._kinds[sentence]:
                break
        return topic, place, kind

    def _statement(self, topic: Topic, sentence: str, kind: str | None = None) -> Statement | None:
        """Return a sentence with an alteration, of the given kind if it is possible."""
        rng = self.rng
        possible = alterations(sentence, topic.codes, rng)
        if not possible:
            return None
        if kind not in possible:
            kind = rng.choice(list(possible))
        seeds = [rng.getrandbits(64) for _ in range(REPHRASINGS - 1)]
        original, altered = (
            (text, *(paraphrase(text, random.Random(seed), self.names) for seed in seeds))
            for text in (sentence, possible[kind])
        )
        if set(original) & set(altered):
            return None
        return Statement(sentence, kind, (original, altered))

    def _target(self, topic: Topic, parts: Sequence[Stated], number: int) -> Target:
        """Return a question with a fair coin as its label."""
        rng = self.rng
        met = rng.random() < 0.5
        one = parts[number % len(parts)]
        if rng.random() < _SHOWN:
            ask = self._on_passage if rng.random() < 0.5 else self._on_reference
            return ask(topic, parts, one, met)
        negated = rng.random() < self.negated
        if met != negated:
            text, variant = self._stated(one)
        elif rng.random() < CONTRARIES:
            text, variant = self._contrary(one)
        else:
            text, variant = self._elsewhere(topic, parts)
        form = rng.choice(_forms()["says_not" if negated else "says"])
        family = "does_not_say" if negated else _SAYS
        return Target(Criterion(key="s", text=form.format(s=self.clause(text))), float(met), family, variant)

    def _on_reference(self, topic: Topic, parts: Sequence[Stated], one: Stated, met: bool) -> Target:
        """Return a question with a statement as the reference."""
        rng = self.rng
        contradicts = rng.random() < self.negated and one.statement.conflicting
        draw = rng.random() < CONTRARIES
        if (met and not contradicts) or (not met and contradicts and draw):
            text, variant = self._stated(one)
        elif contradicts == met or draw:
            text, variant = self._contrary(one)
        else:
            text, variant = self._elsewhere(topic, parts)
        form = rng.choice(_forms()["contradicts_reference" if contradicts else "agrees_reference"])
        return Target(Criterion(key="s", text=form, reference=text), float(met), "reference", variant)

    def _on_passage(self, topic: Topic, parts: Sequence[Stated], one: Stated, met: bool) -> Target:
        """Return a question with a passage that has all that the answer says, or all but one statement."""
        rng = self.rng
        negated = rng.random() < self.negated
        form = rng.choice(_UNSUPPORTED if negated else _SUPPORTED)
        if form == "contradicts_passage" and not one.statement.conflicting:
            form = "agrees_passage"
        supported = met == (form in _SUPPORTED)
        if supported:
            text, variant = self._stated(one)
        elif rng.random() < CONTRARIES or form in ("agrees_passage", "contradicts_passage"):
            text, variant = self._contrary(one)
        else:
            text, variant = self._elsewhere(topic, parts)
        texts = [text if other is one else self._stated(other)[0] for other in parts]
        there = {other.statement.sentence for other in parts}
        passage = rng.choice(topic.passages)
        texts[:0] = [sentence for sentence in passage[:2] if sentence not in there and sentence != text]
        criterion = Criterion(key="s", text=rng.choice(_forms()[form]), passages=(" ".join(texts),))
        return Target(criterion, float(met), "reference", variant)

    def _stated(self, one: Stated) -> tuple[str, str]:
        """Return what the answer says, often in other words."""
        text = self._pair(one)[0]
        return text, "stated" if text == one.text else "paraphrased"

    def _contrary(self, one: Stated) -> tuple[str, str]:
        """Return the other version of what the answer says."""
        return self._pair(one)[1], one.statement.kind

    def _pair(self, one: Stated) -> tuple[str, str]:
        """Return wordings of what the answer says and of the contrary, on average equally near to the answer.

        The lead of the first over the second is added up for each kind of alteration; the next pair makes up for it.
        """
        statement = one.statement
        stated_texts, contrary_texts = (
            {text: shared_words(text, one.text) for text in wordings}
            for wordings in (statement.wordings[one.version], statement.wordings[1 - one.version])
        )
        pairs = [
            (stated_texts[stated] - contrary_texts[contrary], stated, contrary)
            for stated in stated_texts
            for contrary in contrary_texts
        ]
        lead = self._leads.get(statement.key, 0.0)
        difference, stated, contrary = self.rng.choice([pair for pair in pairs if pair[0] * lead <= 0] or pairs)
        self._leads[statement.key] = lead + max(-0.05, min(0.05, difference))
        return stated, contrary

    def _elsewhere(self, topic: Topic, parts: Sequence[Stated]) -> tuple[str, str]:
        """Return a statement that the answer does not hold, of the same document or of another."""
        rng = self.rng
        there = {one.statement.sentence for one in parts}
        words = [long_words(sentence) for sentence in there]
        for attempt in range(_ATTEMPTS):
            other = rng.choice(self.topics) if attempt > 20 or rng.random() < 0.35 else topic
            sentence = rng.choice(other.sentences)
            content = long_words(sentence)
            if sentence in there or any(len(content & w) > 0.6 * min(len(content), len(w)) for w in words):
                continue
            statement = self._statement(other, sentence)
            if statement:
                wordings = statement.wordings[rng.randrange(2)]
                return wordings[rng.randrange(REPHRASINGS)], "absent" if other.id == topic.id else "other"
        raise InvalidError("no other sentence can be altered", hint="give more documents")


def _forms() -> dict[str, list[str]]:
    """Return the wordings of prompts, criteria and answers."""
    return load_yaml("forms.yaml")  # type: ignore[no-any-return]


def _styled(parts: Sequence[Stated], seed: int) -> str:
    """Return an answer: sentences, a list or a paragraph, with or without an introduction, citations or a filler."""
    rng = random.Random(seed)
    texts = [one.text for one in parts]
    style = rng.random()
    if style < 0.15:
        texts = [f"{text} [{n}]" for n, text in enumerate(texts, start=1)]
    if style > 0.8 and len(texts) > 1:
        mark = rng.choice(("- ", "* ", "{n}. "))
        body = "\n".join(f"{mark.format(n=n)}{text}" for n, text in enumerate(texts, start=1))
        joint = "\n"
    else:
        body, joint = " ".join(texts), " "
    if rng.random() < 0.25:
        body = f"{rng.choice(_forms()['introductions'])}{joint}{body}"
    if rng.random() < 0.2:
        body = f"{body}{joint}{rng.choice(_forms()['fillers'])}"
    return body
