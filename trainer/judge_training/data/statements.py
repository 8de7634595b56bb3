"""Questions by construction: does an answer say what a criterion says? The labels are exact.

Of each sentence there are two versions: as the document has it, and altered (``statements_alter.KINDS``). A fair coin
decides which of them the answer says, and another which the criterion asks about, so that neither shows the label, and
paraphrases are dealt so that the words that answer and criterion share do not show it either.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rubricsvc.core.prompt import Completion, Document, Prompt
from rubricsvc.core.rubric import Criterion
from rubricsvc.errors import InvalidError
from trainer.judge_training.data.documents_text import lower_first, plain_title, prose
from trainer.judge_training.data.statements_alter import alterations, code_names
from trainer.judge_training.data.statements_paraphrase import paraphrase
from trainer.judge_training.data.statements_tables import forms
from trainer.judge_training.examples import Example, Preference, Target

SOURCE = "statements"
REPHRASINGS = 3
"""Wordings of each version: the document's own, and two paraphrases."""
REWORDED_STATED, REWORDED_CONTRARY = 0.85, 0.1
"""How often the criterion's wording is not the answer's: dealt so that shared words do not show the label."""
CONTRARIES = 0.65
"""How often a statement that the answer does not make is the contrary of one that it makes."""
_ATTEMPTS = 200


@dataclass(frozen=True)
class Statement:
    """A sentence of a document in its two versions, each in several wordings."""

    sentence: str
    kind: str
    wordings: tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Topic:
    """A document with the sentences about which there are questions, by passage."""

    id: str
    title: str
    names: tuple[str, ...]
    passages: tuple[tuple[str, ...], ...]


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


def statements(
    documents: Iterable[Document],
    seed: int,
    count: int,
    *,
    shown: float = 0.25,
    inverted: float = 0.1,
    exclude: Iterable[str] = (),
) -> Iterator[Example]:
    """Yield ``count`` answers on documents with three to six questions each about what the answer says.

    Args:
        documents: Texts in English. A document's id is the group of its examples.
        seed: Equal seeds and documents give equal examples.
        count: How many; fewer if the documents have no more.
        shown: Share of the targets whose criterion shows a reference or a passage.
        inverted: Share of the targets that ask whether the answer does not say something.
        exclude: Texts whose sentences are not used, such as those of a test.

    Raises:
        InvalidError: the documents hold too few sentences.
    """
    rng = random.Random(f"statements {seed}")
    maker = _Maker(topics(documents, exclude), rng, shown, inverted)
    seen: set[str] = set()
    attempts = 0
    while len(seen) < count and attempts < _ATTEMPTS:
        example = maker.example()
        attempts += 1
        if example.completion.text not in seen:
            seen.add(example.completion.text)
            attempts = 0
            yield example


def statement_preferences(
    documents: Iterable[Document], seed: int, count: int, *, exclude: Iterable[str] = ()
) -> Iterator[Preference]:
    """Yield pairs of answers of which the better one says what the criterion asks for, and the other the contrary.

    Raises:
        InvalidError: the documents hold too few sentences.
    """
    rng = random.Random(f"statement preferences {seed}")
    maker = _Maker(topics(documents, exclude), rng, 0.0, 0.0)
    for _ in range(count):
        topic, parts = maker.answer()
        asked = rng.randrange(len(parts))
        statement = parts[asked].statement
        style = rng.getrandbits(64)
        better, worse = (
            _styled([replace(one, version=version) if n == asked else one for n, one in enumerate(parts)], style)
            for version in (parts[asked].version, 1 - parts[asked].version)
        )
        text = rng.choice(forms()["says"]).format(s=_clause(rng.choice(statement.wordings[parts[asked].version])))
        yield Preference(
            prompt=maker.prompt(topic),
            criterion=Criterion(key="says", text=text),
            better=Completion(text=better),
            worse=Completion(text=worse),
            source=SOURCE,
            group=topic.id,
            variant=statement.kind,
        )


def topics(documents: Iterable[Document], exclude: Iterable[str] = ()) -> list[Topic]:
    """Return the documents' sentences; of a sentence that several documents have, the first document has it.

    A sentence is left out if one of the texts in ``exclude`` shares most of its words.

    Raises:
        InvalidError: fewer than two documents, or than ten sentences.
    """
    excluded = [_content(text) for text in exclude]
    seen: set[str] = set()
    found = []
    for document in documents:
        passages: list[tuple[str, ...]] = []
        for passage in prose(document):
            kept = tuple(s for s in passage.sentences if s not in seen and not _is_excluded(s, excluded))
            seen.update(kept)
            if kept:
                passages.append(kept)
        if sum(map(len, passages)) >= 4:
            found.append(Topic(document.id, plain_title(document), tuple(code_names(document.text)), tuple(passages)))
    if len(found) < 2:
        raise InvalidError(
            f"{len(found)} documents with four or more sentences; expected two or more", hint="give more documents"
        )
    return found


def _content(text: str) -> frozenset[str]:
    return frozenset(word for word in re.findall(r"\w+", text.lower()) if len(word) > 2)


def _is_excluded(sentence: str, excluded: Sequence[frozenset[str]]) -> bool:
    words = _content(sentence)
    return any(len(words & other) >= 0.6 * min(len(words), len(other)) for other in excluded if other)


class _Maker:
    """Makes examples from topics with one generator of random numbers."""

    def __init__(self, found: list[Topic], rng: random.Random, shown: float, inverted: float) -> None:
        self.topics = found
        self.rng = rng
        self.shown = shown
        self.inverted = inverted
        self._kinds: dict[str, int] = {}

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
        return Example(
            prompt=self.prompt(topic),
            completion=Completion(text=text),
            targets=tuple(
                replace(target, criterion=target.criterion.model_copy(update={"key": f"s{n}"}))
                for n, target in enumerate(targets.values(), start=1)
            ),
            source=SOURCE,
            group=topic.id,
        )

    def prompt(self, topic: Topic) -> Prompt:
        return Prompt.of(self.rng.choice(forms()["prompts"]).format(topic=topic.title))

    def answer(self) -> tuple[Topic, list[Stated]]:
        """Return the statements of an answer: one to four sentences near each other."""
        rng = self.rng
        for _ in range(_ATTEMPTS):
            topic = rng.choices(self.topics, [min(60, sum(map(len, t.passages))) for t in self.topics])[0]
            flat = [sentence for passage in topic.passages for sentence in passage]
            length = rng.choices((1, 2, 3, 4), (3, 4, 3, 2))[0]
            start = rng.randrange(len(flat))
            window = flat[start : start + length + 2]
            picked = sorted(rng.sample(range(len(window)), min(length, len(window))))
            made = [one for n in picked if (one := self._statement(topic, window[n]))]
            if made:
                return topic, [Stated(one, rng.randrange(2), rng.randrange(REPHRASINGS)) for one in made]
        raise InvalidError("no sentence can be altered", hint="give longer documents in English")

    def _statement(self, topic: Topic, sentence: str) -> Statement | None:
        """Return a sentence with an alteration; rarer kinds are preferred, so that all become common."""
        rng = self.rng
        possible = alterations(sentence, topic.names, rng)
        if not possible:
            return None
        weights = [1 / (1 + self._kinds.get(kind, 0)) for kind in possible]
        kind = rng.choices(list(possible), weights)[0]
        self._kinds[kind] = self._kinds.get(kind, 0) + 1
        seeds = [rng.getrandbits(64) for _ in range(REPHRASINGS - 1)]
        original, altered = (
            (text, *(paraphrase(text, random.Random(seed)) for seed in seeds)) for text in (sentence, possible[kind])
        )
        if set(original) & set(altered):
            return None
        return Statement(sentence, kind, (original, altered))

    def _target(self, topic: Topic, parts: Sequence[Stated], number: int) -> Target:
        """Return a question with a fair coin as its label."""
        rng = self.rng
        met = rng.random() < 0.5
        one = parts[number % len(parts)]
        if rng.random() < self.shown:
            return (
                self._on_passage(topic, parts, one, met)
                if rng.random() < 0.5
                else self._on_reference(topic, parts, one, met)
            )
        inverted = rng.random() < self.inverted
        if met != inverted:
            text, variant = self._stated(one)
        elif rng.random() < CONTRARIES:
            text, variant = self._contrary(one)
        else:
            text, variant = self._elsewhere(topic, parts)
        form = rng.choice(forms()["says_not" if inverted else "says"])
        family = "does_not_say" if inverted else "says_that"
        return Target(Criterion(key="s", text=form.format(s=_clause(text))), float(met), family, variant)

    def _on_reference(self, topic: Topic, parts: Sequence[Stated], one: Stated, met: bool) -> Target:
        """Return a question with a statement as the reference."""
        rng = self.rng
        contradicts = rng.random() < 0.35
        draw = rng.random() < CONTRARIES
        if (met and not contradicts) or (not met and contradicts and draw):
            text, variant = self._stated(one)
        elif contradicts == met or draw:
            text, variant = self._contrary(one)
        else:
            text, variant = self._elsewhere(topic, parts)
        form = rng.choice(forms()["contradicts_reference" if contradicts else "agrees_reference"])
        return Target(Criterion(key="s", text=form, reference=text), float(met), "reference", variant)

    def _on_passage(self, topic: Topic, parts: Sequence[Stated], one: Stated, met: bool) -> Target:
        """Return a question with a passage that has all that the answer says, or all but one statement."""
        rng = self.rng
        form = rng.choice(("agrees_passage", "contradicts_passage", "supported_by_passage", "unsupported_by_passage"))
        supported = met == (form in ("agrees_passage", "supported_by_passage"))
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
        criterion = Criterion(key="s", text=rng.choice(forms()[form]), passages=(" ".join(texts),))
        return Target(criterion, float(met), "reference", variant)

    def _stated(self, one: Stated) -> tuple[str, str]:
        """Return what the answer says, mostly in other words."""
        text = one.statement.wordings[one.version][self._wording(one, REWORDED_STATED)]
        return text, "stated" if text == one.text else "paraphrased"

    def _contrary(self, one: Stated) -> tuple[str, str]:
        """Return the other version of what the answer says, mostly in the same words."""
        return one.statement.wordings[1 - one.version][self._wording(one, REWORDED_CONTRARY)], one.statement.kind

    def _wording(self, one: Stated, reworded: float) -> int:
        if self.rng.random() >= reworded:
            return one.wording
        texts = one.statement.wordings[one.version]
        others = [n for n in range(REPHRASINGS) if n != one.wording]
        return self.rng.choice([n for n in others if texts[n] != one.text] or others)

    def _elsewhere(self, topic: Topic, parts: Sequence[Stated]) -> tuple[str, str]:
        """Return a statement that the answer does not hold, of the same document or of another."""
        rng = self.rng
        there = {one.statement.sentence for one in parts}
        words = [_content(sentence) for sentence in there]
        for attempt in range(_ATTEMPTS):
            other = rng.choice(self.topics) if attempt > 20 or rng.random() < 0.35 else topic
            sentence = rng.choice([s for passage in other.passages for s in passage])
            content = _content(sentence)
            if sentence in there or any(len(content & w) > 0.6 * min(len(content), len(w)) for w in words):
                continue
            statement = self._statement(other, sentence)
            if statement:
                wordings = statement.wordings[rng.randrange(2)]
                return wordings[rng.randrange(REPHRASINGS)], "absent" if other.id == topic.id else "other"
        raise InvalidError("no other sentence can be altered", hint="give more documents")


def _clause(sentence: str) -> str:
    return lower_first(sentence.rstrip("."))


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
        body = f"{rng.choice(forms()['introductions'])}{joint}{body}"
    if rng.random() < 0.2:
        body = f"{body}{joint}{rng.choice(forms()['fillers'])}"
    return body
