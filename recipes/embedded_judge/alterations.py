"""Statements in other words, and statements altered so that they say something else in almost the same words.

`words.yaml` has the tables of English; `frames.yaml` has invented facts about people, towns and companies in several
equivalent wordings and denials: they bring everyday English, numbers, and roles that can be exchanged.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise

from recipes.embedded_judge import load_yaml
from rubricsvc.core.prompt import Document

NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


_SENTENCE_END = re.compile(r"(?<=[.!?…])(?<!\n\d\.)(?<!\A\d\.) +")


def sentences(text: str) -> list[str]:
    """Split at spaces after ``.!?…``, but not after the number of a list item; line breaks are kept inside."""
    return [sentence for sentence in _SENTENCE_END.split(text.strip()) if sentence]


@cache
def lines(table: str) -> tuple[str, ...]:
    """Return the rows of a table of single phrases."""
    return tuple(line.strip() for line in load_yaml("words.yaml")[table].splitlines() if line.strip())


@cache
def exchanges(table: str) -> dict[str, tuple[str, ...]]:
    """Return what may take the place of each phrase of a table of pairs."""
    found: dict[str, tuple[str, ...]] = {}
    for line in lines(table):
        left, mark, right = re.split(r"\s+([|>])\s+", line)
        found[left] = (*found.get(left, ()), right)
        if mark == "|":
            found[right] = (*found.get(right, ()), left)
    return found


@cache
def term_groups() -> dict[str, list[tuple[str, ...]]]:
    """Return the groups of terms of one kind in which each term is, by the term in small letters."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for row in lines("kinds"):
        group = tuple(term.strip() for term in row.split(","))
        for term in group:
            groups.setdefault(term.lower(), []).append(group)
    return groups


@cache
def words_of(table: str) -> frozenset[str]:
    """Return the words of a table of single words."""
    return frozenset(load_yaml("words.yaml")[table].split())


@cache
def base_forms() -> dict[str, str]:
    """Return the base form of each verb's third person."""
    return {third_person(verb): verb for verb in words_of("verbs")}


@cache
def third_person(verb: str) -> str:
    """Return the verb's form after "it"."""
    if verb in ("have", "be", "do"):
        return {"have": "has", "be": "is", "do": "does"}[verb]
    if verb.endswith(("s", "x", "ch", "sh", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"


@cache
def pattern(phrases: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern of whole phrases, the longest first, in small letters or at the beginning of a sentence."""
    ordered = sorted(phrases, key=lambda phrase: (-len(phrase), phrase))
    return re.compile(rf"(?<![\w`'.-])(?:{'|'.join(map(re.escape, ordered))})(?![\w`'-]|\.\w)", re.IGNORECASE)


def outside_code(text: str, found: re.Match[str]) -> bool:
    """Whether a match lies outside of code in backticks and of quotations."""
    before = text[: found.start()]
    return before.count("`") % 2 == 0 and before.count('"') % 2 == 0


def replaced(text: str, found: re.Match[str], by: str) -> str:
    """Return the text with a match replaced; the first letter stays a capital, and a or an fits the next word."""
    old = found.group()
    if old[:1].isupper() and not (len(old) > 1 and old.isupper()):
        by = by[:1].upper() + by[1:]
    return with_articles(f"{text[: found.start()]}{by}{text[found.end() :]}")


_ARTICLE = re.compile(r"\b([Aa])n? (?=(`?)([A-Za-z][\w-]*))")
_CONSONANT = re.compile(r"uni(?!n|m)|unary|us[eau]|uti|utf|eu|one\b|once\b|u\b", re.IGNORECASE)


def with_articles(text: str, codes: bool = False) -> str:
    """Return the text with "a" or "an" as the next word's first sound asks for; before code only if ``codes``."""

    def article(found: re.Match[str]) -> str:
        word = found.group(3)
        if (found.group(2) and not codes) or word[:2].isupper() or (found.group(2) and not word[:1].isalpha()):
            return found.group()
        vowel = word.startswith(("hour", "honest")) or (word[0] in "aeiouAEIOU" and not _CONSONANT.match(word))
        return f"{found.group(1)}{'n' if vowel else ''} "

    return _ARTICLE.sub(article, text)


_SLOT = re.compile(r"\{(\w)\}")
_SENTENCES = (8, 14)
"""Fewest and most sentences of an invented document."""


@dataclass(frozen=True)
class Fact:
    """A sentence that was read with a frame: the frame's number, whether it affirms, and what is in the slots."""

    frame: int
    affirms: bool
    wording: int
    slots: Mapping[str, str]

    def wordings(self) -> list[str]:
        """Return the sentences that state the fact, the one that was read among them."""
        return [_filled(template, self.slots) for template in _templates(self.frame, self.affirms)]


@cache
def _fillers() -> dict[str, tuple[str, ...]]:
    """Return what may stand in each slot; numbers and years are not listed."""
    return {
        letter: tuple(word.strip() for word in words.split(","))
        for letters, words in load_yaml("frames.yaml")["slots"].items()
        for letter in str(letters)
    }


def lower_first(text: str, names: frozenset[str] = frozenset()) -> str:
    """Return the text with a small first letter, unless it begins with one of the names, code or an abbreviation."""
    first = re.split(r"[\s,.]|'s\b", text, maxsplit=1)[0]
    invented = {word.split()[0] for words in _fillers().values() for word in words if word[0].isupper()}
    plain = first.replace("'", "").replace("-", "").isalpha()
    if not plain or any(letter.isupper() for letter in first[1:]) or first in words_of("proper") | names | invented:
        return text
    return text[:1].lower() + text[1:]


def _templates(frame: int, affirms: bool) -> list[str]:
    return load_yaml("frames.yaml")["frames"][frame]["states" if affirms else "denies"]  # type: ignore[no-any-return]


def _filled(template: str, slots: Mapping[str, str]) -> str:
    text = _SLOT.sub(lambda found: slots[found.group(1)], template)
    return with_articles(f"{text[:1].upper()}{text[1:]}.")


@cache
def _readers() -> list[tuple[Fact, re.Pattern[str], frozenset[str]]]:
    """Return for each wording of a frame its pattern, and the words that a sentence must have for it."""
    readers = []
    for frame, _ in enumerate(load_yaml("frames.yaml")["frames"]):
        for affirms in (True, False):
            for wording, template in enumerate(_templates(frame, affirms)):
                parts = _SLOT.split(re.sub(r"\ba (?=\{)", "an? ", template))
                form = "".join(rf"(?P<{part}>[\w ]+)" if n % 2 else part for n, part in enumerate(parts))
                words = frozenset(re.findall(r"\w+", _SLOT.sub("", template).lower())) - {"a", "s"}
                readers.append((Fact(frame, affirms, wording, {}), re.compile(rf"{form}\.", re.IGNORECASE), words))
    return readers


@lru_cache(maxsize=65536)
def read(sentence: str) -> Fact | None:
    """Return the fact that an invented sentence states, or None for any other sentence."""
    words = set(re.findall(r"\w+", sentence.lower()))
    for fact, form, needed in _readers() if "`" not in sentence else ():
        if needed <= words and (found := form.fullmatch(sentence)):
            slots = {}
            for letter, text in ((letter, text.lower()) for letter, text in found.groupdict().items()):
                known = text if text.isdecimal() or (letter == "N" and text in NUMBERS) else None
                if letter not in "NY":
                    known = next((word for word in _fillers()[letter] if word.lower() == text), None)
                if known is not None:
                    slots[letter] = known
            if len(slots) == form.groups:
                return replace(fact, slots=slots)
    return None


def altered(fact: Fact, rng: random.Random) -> dict[str, list[str]]:
    """Return sentences that state something else, by kind of alteration."""
    kinds = {letter: str(letters) for letters in load_yaml("frames.yaml")["slots"] for letter in str(letters)}
    made: dict[str, list[str]] = {"negated": [], "number": [], "name": [], "order": []}
    made["negated"] = replace(fact, affirms=not fact.affirms).wordings()

    def with_slots(**slots: str) -> str:
        return replace(fact, slots={**fact.slots, **slots}).wordings()[fact.wording]

    for letter, text in fact.slots.items():
        if letter in "NY":
            made["number"].append(with_slots(**{letter: _other_number(text, letter == "Y", rng)}))
            continue
        others = [word for word in _fillers()[letter] if word not in fact.slots.values()]
        made["name"].append(with_slots(**{letter: rng.choice(others)}))
        twin = kinds[letter].replace(letter, "")
        if twin in fact.slots and twin > letter and not load_yaml("frames.yaml")["frames"][fact.frame].get("symmetric"):
            made["order"].append(with_slots(**{letter: fact.slots[twin], twin: text}))
    return made


def _other_number(text: str, year: bool, rng: random.Random) -> str:
    if text in NUMBERS:
        return rng.choice([word for word in NUMBERS if word != text])
    number = int(text)
    if year:
        return str(number + rng.choice((-40, -13, -10, -3, -2, -1, 1, 2, 5, 10, 11, 30)))
    near = (number + 1, number + 2, number + 10, number * 2, number * 10, max(2, number // 2), max(3, number - 1))
    return str(rng.choice([other for other in near if other != number]))


def invented_documents(seed: int, count: int) -> Iterator[Document]:
    """Yield documents of invented facts, each about a few people, towns and companies."""
    tables = load_yaml("frames.yaml")
    for number in range(count):
        rng = random.Random(ident := f"invented.{seed}.{number}")
        casts = {str(letters): _fillers()[str(letters)[0]] for letters in tables["slots"]}
        cast = {letters: rng.sample(words, min(4, len(words))) for letters, words in casts.items()}
        sentences = []
        for frame in rng.sample(range(len(tables["frames"])), rng.randint(*_SENTENCES)):
            template = rng.choice(tables["frames"][frame]["states" if rng.random() < 0.8 else "denies"])
            slots = {"N": str(rng.choice((*range(2, 20), *range(20, 100, 5), 120, 150, 300)))}
            slots["Y"] = str(rng.randint(1880, 2020))
            for letters, words in cast.items():
                slots |= dict(zip(letters, rng.sample(words, len(letters)), strict=True))
            sentences.append(_filled(template, slots))
        named = {letter: name for letters, names in cast.items() for letter, name in zip(letters, names, strict=False)}
        title = _SLOT.sub(lambda found, named=named: named[found.group(1)], rng.choice(tables["titles"]))  # type: ignore[misc]
        yield Document(id=ident, text=" ".join(sentences), title=title)


ALTERATIONS = ("negated", "number", "name", "order", "opposite", "quantifier")

_AUXILIARY = re.compile(
    r"(?<![\w`.-])(?:is|are|was|were|will|should|must|may|might|could|would|can|has been|have been|has|have)(?= \w| `)"
)
_NO_NEGATION_BEFORE = re.compile(
    r"\b(?:whether|all|every|each|any|no|none|neither|nothing|unless|not|never|only|either)\b", re.I
)
_NO_NEGATION_AFTER = re.compile(
    r" (?:not|never|only|no|both|either|neither|also|always|any|nothing|none|n't|to|just|yet|in fact)\b"
)
_NEGATION = re.compile(
    r"\b(is|are|was|were|will|should|must|may|might|could|would|can|has|have|be|does|do)(?: not|(not))\b"
    r"(?! (?:only|yet|necessarily|just))"
)
_NO_REMOVAL_AFTER = re.compile(r"\b(?:any|either|yet|nor|but|until|unless|at all|anything|even|or not)\b")
_DO = re.compile(r"\b(does|do) not (\w+)")
_NUMBER = re.compile(rf"(?<![\w`.:,/+-])(?:\d+|{'|'.join(NUMBERS)}|first|second|third|twice)(?![\w`:/+-]|[.,]\d)")
_ORDINALS = ("first", "second", "third", "fourth")
_COUNTED = re.compile(
    r" (?:time|argument|element|item|line|parameter|form|case|part|digit|character|operand|value|call|step|field|one)\b"
)
_BOUND = re.compile(
    r"\b(?:at least|at most|than|up to|or more|exceeds?|under|over|below|above|within) $", re.IGNORECASE
)
_WHETHER = re.compile(
    r"\b(?:whether|(?:determin|check|test|indicat|decid|know|find|see|ask|specif)\w* (?:out )?if)\b", re.I
)
_CODE = re.compile(r"`([^`\s]+)`")
_SYMMETRIC = re.compile(
    r"\b(?:and|or|nor|equivalent|equals?|same|identical|between|both|either|neither|alias|synonym|different|differs?|with|vs)\b|,|/"
)


def alterations(sentence: str, names: Sequence[str], rng: random.Random) -> dict[str, str]:
    """Return altered forms of a sentence, at most one of each of ``ALTERATIONS``.

    Args:
        sentence: A statement.
        names: Code names of the same document, one of which may take another's place.
        rng: Chooses among the possible alterations of a kind.
    """
    makers: dict[str, Iterable[str]] = {
        "negated": _negated(sentence),
        "number": _numbers(sentence, rng),
        "name": _names(sentence, names, rng),
        "order": _orders(sentence),
        "opposite": _exchanged(sentence, "opposites"),
        "quantifier": _exchanged(sentence, "quantifiers"),
    }
    if fact := read(sentence):
        makers = dict(altered(fact, rng))
    found = {}
    for kind, made in makers.items():
        possible = sorted({text for text in made if text != sentence and not _ODD.search(text)})
        if possible:
            found[kind] = rng.choice(possible)
    return found


_ODD = re.compile(
    r"\b(\w+) \1\b|\bnot (?:not|no|never)\b|\bno no\b|\b(?:always|never) (?:always|never)\b", re.IGNORECASE
)


def _negated(sentence: str) -> Iterator[str]:
    if re.search(r"\b(?:not|cannot)\b", sentence):
        yield from _affirmed(sentence)
        return
    for found in _AUXILIARY.finditer(sentence):
        before, after = sentence[: found.start()], sentence[found.end() :]
        inside = not outside_code(sentence, found) or before.count("(") > before.count(")")
        if inside or _NO_NEGATION_BEFORE.search(before) or _WHETHER.search(before) or _NO_NEGATION_AFTER.match(after):
            continue
        word = found.group()
        if word in ("has", "have"):
            if not re.match(r" (?:a|an|the|its|their|one|two|three|to)\b", after):
                continue
            if word == "have" and re.search(r"\b(?:to|can|may|must|will|should|could|would|might) $", before):
                continue
            negated = "does not have" if word == "has" else "do not have"
        else:
            negated = "cannot" if word == "can" else f"{word.removesuffix(' been')} not{' been' * (' ' in word)}"
        yield f"{before}{negated}{after}"
        return
    for found in _simple_verb().finditer(sentence):
        before = sentence[: found.start()]
        if outside_code(sentence, found) and not (_NO_NEGATION_BEFORE.search(before) or _WHETHER.search(before)):
            yield f"{before}does not {base_forms()[found.group(1)]}{sentence[found.end(1) :]}"
            return


@cache
def _simple_verb() -> re.Pattern[str]:
    third = "|".join(sorted(base_forms().keys() - {"has", "is", "does", "lists", "sets", "means"}))
    object_ = "a|an|the|its|their|that|whether|in|on|to|for|from|with|as|by|into|one|two|three|another|True|False|None"
    return re.compile(rf"(?<=[\w`)] )({third})(?= (?:{object_})\b| `)")


def _affirmed(sentence: str) -> Iterator[str]:
    for found in _NEGATION.finditer(sentence):
        before, after = sentence[: found.start()], sentence[found.end() :]
        if not outside_code(sentence, found) or _NO_REMOVAL_AFTER.search(after):
            continue
        auxiliary = found.group(1)
        if auxiliary in ("does", "do"):
            verb = _DO.match(sentence, found.start())
            if not verb or re.search(r"\b(?:only|if|whether)$", before.strip()):
                continue
            base = verb.group(2)
            if auxiliary == "does" and base not in base_forms().values():
                continue
            yield f"{before}{third_person(base) if auxiliary == 'does' else base}{sentence[verb.end() :]}"
        else:
            yield f"{before}{auxiliary}{after}"


def _numbers(sentence: str, rng: random.Random) -> Iterator[str]:
    for found in _NUMBER.finditer(sentence):
        word = found.group()
        if not outside_code(sentence, found):
            continue
        if word in _ORDINALS:
            if _COUNTED.match(sentence[found.end() :]):
                choices: Sequence[str] = [other for other in _ORDINALS if other != word]
            else:
                continue
        elif word == "twice":
            choices = ["three times", "four times", "once"]
        elif word in NUMBERS:
            choices = [other for other in NUMBERS[:6] if other != word]
        else:
            number = int(word) if len(word) < 12 else 0
            if number < 2 or (len(word) > 1 and word[0] == "0"):
                continue
            near = [number + 1, number + 2, number * 2, number * 10, max(2, number - 1), max(2, number // 2)]
            choices = [str(other) for other in dict.fromkeys(near) if other != number]
        choices = [other for other in choices if not re.search(rf"\b{other}\b", sentence)]
        if choices and not _BOUND.search(sentence[: found.start()]):
            yield replaced(sentence, found, rng.choice(choices))


_SHAPES = {
    "special call": r"(?:\w+\.)*__\w+__\(.*\)",
    "special": r"(?:\w+\.)*__\w+__",
    "call": r"[\w.]+\(.*\)",
    "exception": r"(?:\w+\.)*[A-Z]\w+(?:Error|Warning|Exception|Exit|Iteration|Interrupt)",
    "singleton": r"True|False|None|NotImplemented|Ellipsis",
    "constant": r"[A-Z][A-Z0-9_]+",
    "class": r"(?:\w+\.)*[A-Z]\w+",
    "word": r"[a-z_]+",
    "dotted": r"[a-z_]\w*\.[\w.]+",
    "other": r"\w+",
}


@cache
def _shape(name: str) -> str:
    """Return which kind of name it is, or nothing for another piece of code."""
    return next((shape for shape, form in _SHAPES.items() if re.fullmatch(form, name)), "")


def code_names(text: str) -> list[str]:
    """Return the names set in backticks, each once, in order."""
    return [name for name in dict.fromkeys(_CODE.findall(text)) if _shape(name)]


def _names(sentence: str, names: Sequence[str], rng: random.Random) -> Iterator[str]:
    there = code_names(sentence)
    for name in there:
        others = [other for other in names if other not in there and _shape(other) == _shape(name)]
        if others:
            yield with_articles(sentence.replace(f"`{name}`", f"`{rng.choice(others)}`"), codes=True)
    lowered = sentence.lower()
    for found in pattern(tuple(term_groups())).finditer(sentence):
        for group in _groups(sentence, found):
            others = [term for term in group if not re.search(rf"\b{re.escape(term.lower())}\b", lowered)]
            if others:
                yield replaced(sentence, found, rng.choice(others))


def _groups(sentence: str, found: re.Match[str]) -> list[tuple[str, ...]]:
    """Return the groups of a term; none in code, and after code, where "sets" and "lists" are verbs."""
    if not outside_code(sentence, found) or sentence[: found.start()].endswith("` "):
        return []
    return term_groups()[found.group().lower()]


def _orders(sentence: str) -> Iterator[str]:
    for left, right in _exchangeable(sentence):
        between = sentence[left.end() : right.start()]
        truth = {left.group().lower(), right.group().lower()} == {"true", "false"}
        if left.group() == right.group() or len(between.split()) > 12 or not re.search(r"\w", between):
            continue
        if _SYMMETRIC.search(between) and not (truth and re.search(r"\b(?:if|when|otherwise)\b", sentence)):
            continue
        a, b = left.group(), right.group()
        if len({a.isupper(), b.isupper()}) > 1:
            continue
        if a[:1].isupper() and b[:1].islower():
            a, b = a[:1].lower() + a[1:], b[:1].upper() + b[1:]
        yield with_articles(f"{sentence[: left.start()]}{b}{between}{a}{sentence[right.end() :]}", codes=True)


def _exchangeable(sentence: str) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    codes = [found for found in _CODE.finditer(sentence) if _shape(found.group(1))]
    for left, right in pairwise(codes):
        if sentence.count(left.group()) == sentence.count(right.group()) == 1 and (
            _shape(left.group(1)) == _shape(right.group(1))
        ):
            yield left, right
    by_group: dict[tuple[str, ...], list[re.Match[str]]] = {}
    for found in pattern(tuple(term_groups())).finditer(sentence):
        for group in _groups(sentence, found):
            by_group.setdefault(group, []).append(found)
    for terms in by_group.values():
        if len(terms) == 2:
            yield terms[0], terms[1]


_AT_THE_START = ("every", "each")
_NOT_AT_THE_START = ("sometimes", "often", "usually", "commonly", "only", "all the")


def _exchanged(sentence: str, table: str) -> Iterator[str]:
    """Yield the sentence with one phrase of the table exchanged, if the sentence does not have the other phrase too."""
    choices = exchanges(table)
    for found in pattern((*choices, *lines("fixed"))).finditer(sentence):
        phrase = found.group().lower()
        begins = found.start() == 0
        if not outside_code(sentence, found) or phrase in (_NOT_AT_THE_START if begins else _AT_THE_START):
            continue
        if re.search(r"\bnot (?:the )?$", sentence[: found.start()], re.IGNORECASE):
            continue
        if phrase == "only" and sentence[: found.start()].endswith(", "):
            continue
        for other in choices.get(phrase, ()):
            if not re.search(rf"\b{other}\b", sentence, re.IGNORECASE) or other in phrase or phrase in other:
                yield replaced(sentence, found, other)


_WORD = re.compile(r"(?:a |[a-z]{2,} |`|[A-Z])")
_CLAUSE = re.compile(
    r"^(If|When|Because|Although|Since|While|Unless|After|Before|Once) ([^,;:()]+), (?:then )?([^;:]+)\.$"
)
_TRAILING = re.compile(r"^([^,;:()]+?) (if|when|because|although|unless) ([^,;:()]+)\.$")
_NO_MOVE = re.compile(
    r"\b(?:only|even|just|right|except|as|and|or|that|whether|which|not|then|such|than)$|\b(?:whether|if)\b"
)


def paraphrase(sentence: str, rng: random.Random, names: frozenset[str] = frozenset()) -> str:
    """Return the sentence in other words, or the same sentence where no rule applies."""
    fact = read(sentence)
    others = [wording for wording in fact.wordings() if wording != sentence] if fact else []
    text = rng.choice(others) if others else sentence
    if rng.random() < 0.5:
        text = _moved(text, names)
    for rule in (_result_first, _pairs_swapped, _numbers_respelled):
        if rng.random() < 0.5:
            text = rule(text)
    synonyms = exchanges("synonyms")
    for match in reversed(list(pattern((*synonyms, *lines("fixed"))).finditer(text))):
        phrase = match.group().lower()
        if outside_code(text, match) and phrase in synonyms and rng.random() < 0.8:
            text = replaced(text, match, rng.choice(synonyms[phrase]))
    for match in reversed(list(pattern(lines("droppable")).finditer(text))):
        if rng.random() < 0.7 and outside_code(text, match) and text[match.end() : match.end() + 1] == " ":
            before = text[: match.start()]
            if before.endswith(" ") and not before.endswith((", ", "not ", "and ", "or ")):
                text = before + text[match.end() + 1 :]
    return text


_RETURNS = re.compile(
    r"^(`[^`]+`|This (?:function|method)|The (?:function|method) `[^`]+`) returns ((?:a|an|the|True) .+)\.$"
)
_PAIR = re.compile(r"(`[^`]+`) (and|or) (`[^`]+`)(?! and| or|,)")
_RESPELLED = re.compile(r"(?<![\w`.:,/+%(-])(?:[2-9]|10|two|three|four|five|six|seven|eight|nine|ten)(?= [a-z]| `)")
_SPELLED = {word: str(number) for number, word in enumerate(NUMBERS, start=2)}
_SPELLED |= {digits: word for word, digits in _SPELLED.items()}


def _result_first(text: str) -> str:
    found = _RETURNS.match(text)
    if found and re.search(r" or | and |, |\bit\b", found.group(2)):
        return text
    return f"What {lower_first(found.group(1))} returns is {found.group(2)}." if found else text


def _pairs_swapped(text: str) -> str:
    """Return the text with "`x` and `y`" as "`y` and `x`"; not in longer lists, or where the order counts."""
    if re.search(r"\brespectively\b|\bfrom\b|\bin that order\b|\bthen\b|\bbetween\b", text):
        return text
    return _PAIR.sub(
        lambda m: m.group() if text[: m.start()].endswith(("`, ", "`,")) else f"{m.group(3)} {m.group(2)} {m.group(1)}",
        text,
    )


def _numbers_respelled(text: str) -> str:
    """Return the text with "two" as "2" and the reverse."""
    return _RESPELLED.sub(lambda m: _SPELLED[m.group()] if outside_code(text, m) else m.group(), text)


def _moved(sentence: str, names: frozenset[str]) -> str:
    """Return the sentence with its condition at the other end."""
    first = _CLAUSE.match(sentence)
    if first and "," not in first.group(3):
        word, clause, main = first.groups()
        return f"{main[:1].upper()}{main[1:]} {word.lower()} {clause}." if _WORD.match(main) else sentence
    last = _TRAILING.match(sentence)
    if last and not _NO_MOVE.search(last.group(1)) and len(last.group(1).split()) > 2:
        main, word, clause = last.groups()
        if f" {word} " in f" {main} " or sum(f" {other} " in clause for other in ("if", "when", "because")):
            return sentence
        return f"{word.capitalize()} {clause}, {lower_first(main, names)}."
    return sentence
