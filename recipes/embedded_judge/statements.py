"""The plain sentences of documents, the two versions of each, and the questions about them."""

from __future__ import annotations

import ast
import random
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random

from recipes.embedded_judge import load_yaml
from recipes.embedded_judge.alterations import (
    ALTERATIONS,
    alterations,
    base_forms,
    code_names,
    lower_first,
    paraphrase,
    read,
    sentences,
    third_person,
    words_of,
)
from rubricsvc.collections.sources import python_reference
from rubricsvc.core.prompt import Completion, Document, Prompt
from rubricsvc.core.rubric import Criterion
from rubricsvc.errors import InvalidError
from trainer.judge_training.data import Example, Target

SHORTEST, LONGEST = 6, 30
"""Words of a sentence."""

_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`“_])|(?<=[.!?]\))\s+(?=[A-Z`“_])")
_BULLET = re.compile(r"^\s*(?:[*•-]|\d+[.)]|\([a-z0-9]+\))\s+")
_NOTES = re.compile(
    r"^(?:Note|Warning|See also|Changed in version|Added in version|New in version|Deprecated)\b[^.]{0,30}:"
)
_LEADING = re.compile(
    r"^(?:(?:However|Thus|Therefore|Hence|So|Also|Moreover|Furthermore|Consequently|Similarly|Likewise|Otherwise|Note|Again|"
    r"Finally|Then|Additionally|Instead|That is|In addition|As a result|In particular|In contrast|On the other hand|"
    r"Nevertheless|For example|For instance|In other words|In this case|In that case),|Note that|But|And)\s+"
)
_ASIDE = re.compile(
    r"\s*\((?:see|See|cf\.|described|discussed|e\.g\.|i\.e\.|for example)[^()]*\)|\s*\[\d+\]|\s*\*?\*?PEP \d+\*?\*?:? –"
)
_MARKS = (
    r"::|\.\.\.|\.\. |>>>|->|\\|[|<>{}=#“”;?!]|:$|\*\*|https?:|\w\. \S|^`[^`]+`: |[\w`\])]: [A-Z]|:\w+:| : | --? | \+ "
)
_REFERENCES = (
    r"\b(?:section|chapter|[Ss]ee|below|above|PEP|[Hh]ere|e\.g\.|i\.e\.|etc|TODO|XXX|I|we|[Ee]xample)\b|\bversions? \d|"
    r"\bfollow(?:s|ing):|^This is an? |^Note\b|"
    r"^(?!This)[A-Z][a-z]+s (?:an?|the|all|any|each|its|one)\b|^\w+: |^ +[A-Z]"
)
_JOINED = r"\w+ (?:The|An?|If|It|This|When|In|Documentation|Returns?)\b"


@cache
def _unfit() -> re.Pattern[str]:
    """Return what a sentence must not contain: marks, references to other places, a lost line break, an imperative."""
    third = "|".join(sorted(base_forms().keys() - words_of("nouns")))
    imperative = rf"^(?:With|Without|For|To|In|If|When|On)\b[^,]*, (?:{'|'.join(sorted(words_of('verbs')))})\b"
    return re.compile(
        rf"{_MARKS}|{_REFERENCES}|{_JOINED}|^(?:If|When)\b[^,]*, (?:does|is|are|has|{third})\b|{imperative}"
    )


_CODE_LINE = re.compile(r".*::=|\s*(?:>>>|\+-|\||\.\.\.|::)|\s*[*=~^-]{3,}\s*$")
_CODE_SPAN = re.compile(r"`[^`]*`")


def prose(document: Document) -> Iterator[tuple[str, ...]]:
    """Yield the document's paragraphs (and lists) as sentences that state something; without code, tables, headings."""
    for paragraph in _PARAGRAPH.split(document.text):
        lines = [line for line in paragraph.splitlines() if line.strip()]
        if not lines or any(map(_CODE_LINE.match, lines)):
            continue
        items: list[str] = []  # the lines joined, a list item for itself
        for line in lines:
            if _BULLET.match(line) or not items:
                items.append(_BULLET.sub("", line).strip())
            else:
                items[-1] += " " + line.strip()
        sentences = [fit for item in items for raw in _SENTENCE_END.split(item) if (fit := _statement(raw))]
        if sentences:
            yield tuple(dict.fromkeys(sentences))


def plain_title(document: Document, names: frozenset[str] = frozenset()) -> str:
    """Return the title as the subject of a question: ``The `if` statement`` becomes ``the `if` statement``."""
    title = re.sub(r"[*]", "", document.title).strip().rstrip(".:") or document.id
    return " ".join(lower_first(word, names) for word in title.split())


def proper_names(documents: Iterable[Document]) -> frozenset[str]:
    """Return the words that the documents have with a capital letter only, and not only in first place."""
    small, capital = set(), set()
    for document in documents:
        small.update(re.findall(r"\b[a-z]+\b", document.text))
        capital.update(re.findall(r"(?<=[a-z,] )[A-Z][a-z]+\b", document.text))
    return frozenset(word for word in capital if word.lower() not in small | words_of("openers"))


def _statement(raw: str) -> str | None:
    """Return the sentence without marks and asides, if it states something in 6 to 30 words."""
    if read(raw.strip()):
        return raw.strip()
    text = _ASIDE.sub("", " ".join(raw.split())).replace("’", "'")
    text = re.sub(r"(?<!\w)\*(\w[^*`]*)\*(?!\w)", r"\1", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r":\w+:`[!~]?([^`]+)`", r"`\1`", text)
    text = _NOTES.sub("", text).strip()
    text = re.sub(r"(\w)- (\w)", r"\1-\2", text)
    text = re.sub(r"\.\.$", ".", text)
    while (shorter := _LEADING.sub("", text)) != text:
        text = shorter[:1].upper() + shorter[1:]
    words = re.sub(_CODE_SPAN, "code", text).split()
    plain = _CODE_SPAN.sub("", text)
    if not SHORTEST <= len(words) <= LONGEST or not text.endswith(".") or not re.match(r"[A-Z`]", text):
        return None
    if (
        _unfit().search(plain)
        or '"`' in text
        or '`"' in text
        or any(text.count(a) != text.count(b) for a, b in ("()", "[]"))
        or text.count("`") % 2
    ):
        return None
    if plain.count('"') % 2 or plain.count("'") - len(re.findall(r"\w'\w", plain)) > 0 or "*" in plain:
        return None
    first = words[0].lower()
    if (
        first in words_of("verbs") | words_of("auxiliaries")
        or first in base_forms()
        or first in ("only", "also", "do", "please", "or", "nor", "which", "that", "what", "why", "how", "where")
    ):
        return None  # an imperative, or a piece of a sentence
    return text if _has_main_verb(words) else None


def _has_main_verb(words: list[str]) -> bool:
    """Whether there are more finite verbs than words that begin a clause. A plural noun may look like a verb."""
    lowered = [word.strip(",.()").lower() for word in words]
    finite = 0
    for before, word in pairwise(lowered):
        if word in words_of("auxiliaries") - {"be", "had"}:
            finite += 1
        elif word in base_forms():
            finite += word not in words_of("nouns") or before in words_of("subjects") or before == "code"
    opening = ("which", "that", "who", "whose", "if", "when", "where", "because", "while", "since", "unless")
    return finite > sum(word in opening for word in lowered)


def standard_library_docstrings() -> Iterator[Document]:
    """Yield the documentation of the standard library's modules, read from their source: a document for each module.

    An imperative first sentence ("Return the value …") becomes a statement about its function. Modules of tests and
    those that hold no prose are left out. CPython's licence (PSF-2.0) applies to the texts.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    skipped = ("test", "tests", "idlelib", "lib2to3", "turtledemo", "site-packages", "__pycache__", "ensurepip")
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if any(part in skipped for part in parts) or (parts[-1].startswith("_") and parts[-1] != "__init__"):
            continue
        name = ".".join(parts).removesuffix(".__init__")
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, UnicodeDecodeError):
            continue
        text = "\n\n".join(filter(None, _docstrings(tree, "")))
        if len(text.split()) >= 60:
            yield Document(id=f"stdlib.{name}", text=text, title=f"the module `{name}`")


def _docstrings(tree: ast.AST, owner: str) -> Iterator[str]:
    """Yield docstrings; one whose first word is a verb begins with its subject, and has the third person."""
    if isinstance(tree, ast.Module):
        yield ast.get_docstring(tree) or ""
    verbs = words_of("verbs")
    other_verb = rf"\b(and|or|then) ({'|'.join(sorted(verbs))}) (?=(?:an?|the|its?|all|any|each|True|None)\b)"
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        docstring = ast.get_docstring(node) or ""
        first, _, rest = docstring.strip().partition(" ")
        if (verb := base_forms().get(first.lower(), first.lower())) in verbs:
            sentence, end, others = rest.partition(".")
            sentence = re.sub(other_verb, lambda found: f"{found.group(1)} {third_person(found.group(2))} ", sentence)
            subject = f"`{owner}{node.name}{'' if isinstance(node, ast.ClassDef) else '()'}`"
            docstring = f"{subject} {third_person(verb)} {sentence}{end}{others}"
        yield docstring
        if isinstance(node, ast.ClassDef):
            yield from _docstrings(node, f"{owner}{node.name}.")


_PLAIN_SENTENCE = re.compile(r"[A-Z](?:(?!- )[^\n:=>|])*[^\d\n][.]")


def document_answers(seed: int, count: int) -> Iterator[Example]:
    """Yield completions of one to four sentences from a passage of CPython's language reference, without targets.

    Raises:
        UnavailableError: This Python was installed without its language reference.
    """
    rng = Random(f"documents {seed}")
    prose = []
    for document in python_reference():
        for passage in passages(document):
            whole = [  # of 5 to 45 words: a capital, a full stop, no code, no number of a list item
                one for one in sentences(passage.text) if 5 <= len(one.split()) <= 45 and _PLAIN_SENTENCE.fullmatch(one)
            ]
            if whole:
                prose.append((document.id, document.title.strip("* "), whole))
    for _ in range(count):
        ident, title, whole = rng.choice(prose)
        number = min(rng.randint(1, 4), len(whole))
        first = rng.randint(0, len(whole) - number)
        text = " ".join(whole[first : first + number])
        prompt = Prompt.of(rng.choice(load_yaml("wordings.yaml")["requests"]).format(title=title))
        yield Example(prompt, Completion(text=text), (), source="documents", group=ident)


PASSAGE_WORDS = 60
"""Target length of a passage, in words."""

_UNDERLINE = re.compile(r"^[*=~^-]{3,}$", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*“])")


def passages(document: Document, words: int = PASSAGE_WORDS) -> Iterator[Document]:
    """Split a document into passages of about ``words`` words at most.

    It is split between paragraphs, a long paragraph of prose between sentences, and always before a heading. Line
    breaks inside a paragraph of prose become spaces.
    """
    pending: list[str] = []
    number = 1
    for heading, text in [*_pieces(document.text, words), (False, "")]:
        full = len(" ".join([*pending, text]).split()) > words
        if pending and (heading or full or not text):
            ident = document.id if number == 1 else f"{document.id}.{number}"
            yield Document(id=ident, text="\n".join(pending), title=document.title)
            pending, number = [], number + 1
        if text:
            pending.append(text)


def _pieces(text: str, words: int) -> Iterator[tuple[bool, str]]:
    """Yield whether it begins with a heading, and a paragraph or a part of one. Code and grammar keep their lines."""
    for paragraph in _PARAGRAPH.split(text):
        lines = [line for line in _UNDERLINE.sub("", paragraph).splitlines() if line.strip()]
        heading = _UNDERLINE.search(paragraph) is not None
        if any("::=" in line or line.lstrip().startswith((">>>", "+-", "|")) for line in lines):
            yield heading, "\n".join(lines)
            continue
        joined = " ".join(line.strip() for line in lines)
        part: list[str] = []
        for sentence in _SENTENCE.split(joined):
            if part and len(" ".join([*part, sentence]).split()) > words:
                yield heading, " ".join(part)
                part, heading = [], False
            part.append(sentence)
        if joined:
            yield heading, " ".join(part)


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
        for paragraph in prose(document):
            new = ((s, long_words(s)) for s in paragraph if s not in seen)
            kept = tuple(
                s for s, w in new if not any(len(w & e) >= 0.6 * min(len(w), len(e)) for e in excluded if len(e) > 3)
            )
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


_FORMS: dict[str, list[str]] = load_yaml("forms.yaml")
"""Wordings of prompts, criteria and answers."""
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
        prompt = Prompt.of(rng.choice(_FORMS["prompts"]).format(topic=topic.title))
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
            source="statements",
            group=topic.id,
        )

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
            text, variant = self._pair(one)[1], one.statement.kind
        else:
            text, variant = self._elsewhere(topic, parts)
        form = rng.choice(_FORMS["says_not" if negated else "says"])
        family = "does_not_say" if negated else _SAYS
        return Target(
            Criterion(key="s", text=form.format(s=lower_first(text.rstrip("."), self.names))),
            float(met),
            family,
            variant,
        )

    def _on_reference(self, topic: Topic, parts: Sequence[Stated], one: Stated, met: bool) -> Target:
        """Return a question with a statement as the reference."""
        rng = self.rng
        contradicts = rng.random() < self.negated and one.statement.conflicting
        draw = rng.random() < CONTRARIES
        if (met and not contradicts) or (not met and contradicts and draw):
            text, variant = self._stated(one)
        elif contradicts == met or draw:
            text, variant = self._pair(one)[1], one.statement.kind
        else:
            text, variant = self._elsewhere(topic, parts)
        form = rng.choice(_FORMS["contradicts_reference" if contradicts else "agrees_reference"])
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
            text, variant = self._pair(one)[1], one.statement.kind
        else:
            text, variant = self._elsewhere(topic, parts)
        texts = [text if other is one else self._stated(other)[0] for other in parts]
        there = {other.statement.sentence for other in parts}
        passage = rng.choice(topic.passages)
        texts[:0] = [sentence for sentence in passage[:2] if sentence not in there and sentence != text]
        criterion = Criterion(key="s", text=rng.choice(_FORMS[form]), passages=(" ".join(texts),))
        return Target(criterion, float(met), "reference", variant)

    def _stated(self, one: Stated) -> tuple[str, str]:
        """Return what the answer says, often in other words."""
        text = self._pair(one)[0]
        return text, "stated" if text == one.text else "paraphrased"

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
        key = statement.kind, read(statement.sentence) is not None  # the alteration, and whether it is invented
        lead = self._leads.get(key, 0.0)
        difference, stated, contrary = self.rng.choice([pair for pair in pairs if pair[0] * lead <= 0] or pairs)
        self._leads[key] = lead + max(-0.05, min(0.05, difference))
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
        body = f"{rng.choice(_FORMS['introductions'])}{joint}{body}"
    if rng.random() < 0.2:
        body = f"{body}{joint}{rng.choice(_FORMS['fillers'])}"
    return body
