"""Criteria of one rubric that ask the same, and those that contradict each other.

Two criteria are compared by the words that carry their meaning: without stop words, verbs of saying (“mentions”) and
words of polarity (“fails to”), so that a criterion and its negation are found as well. Candidates are found by a prefix
filter (Chaudhuri et al. 2006; Bayardo et al. 2007): texts that are similar enough share one of their rarest words.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from math import ceil, inf
from typing import Literal

from rubricsvc.core.rubric import Criterion
from rubricsvc.lint.registry import ENGLISH, Language, LintHit, Subject
from rubricsvc.lint.wording import requirement

CONTAINED = 0.8  # share of the words of the shorter criterion that are in the other one, if the two ask the same
ALIKE = 0.35  # share of the words of either that are in both, if one asks the opposite of the other
PARAPHRASED = 0.85  # the same where both have the same sign
MOST_IN_A_ROW = 0.4  # share of these words in a row from which the two are one template with another word in it
ALIGNED = 500  # words of a criterion that are aligned, which takes the square of the time
RAREST = 4  # words by which candidates are found
MOST_SHARING = 64  # criteria that are compared for one word: a word that more share says nothing, and work stays linear

Languages = Mapping[str, Language] | None  # the language of each criterion, by key; by default English
_WORD = re.compile(r"[^\W_][\w.+%’'-]*(?<![.’'-])")


@dataclass(frozen=True, slots=True)
class _Text:
    """A criterion with the words that carry its meaning, in lower case, and those that name something.

    ``claim`` has no words of denial and one of each pair of opposites; ``wanted``: the reward is for what it says.
    """

    number: int
    criterion: Criterion
    tokens: frozenset[str]
    names: frozenset[str]
    order: tuple[str, ...]
    claim: frozenset[str]
    wanted: bool


def near_duplicate(subject: Subject) -> Iterator[LintHit]:
    """Find criteria that ask the same as an earlier one, or its negation."""
    for place, later in near_duplicates(subject.judged, subject.languages):
        first, second = subject.judged[place], subject.judged[later]
        what = "asks the opposite of" if (first.weight < 0) != (second.weight < 0) else "asks the same as"
        for one, other in ((first, second), (second, first)):
            yield one, f"{what} {other.key!r}"


def contradiction(subject: Subject) -> Iterator[LintHit]:
    """Find criteria of which one rewards what an earlier one punishes, or whose bounds exclude each other."""
    for text, candidates in _with_candidates(subject.judged, subject.languages):
        for one in [one for one in candidates if _relation(one, text) == "contradiction"][:1]:
            yield text.criterion, f"contradicts {one.criterion.key!r}: one rewards what the other punishes"
    by_noun: defaultdict[str, list[tuple[Criterion, float, float, frozenset[str]]]] = defaultdict(list)
    for criterion in subject.judged:
        language = subject.languages[criterion.key]
        asked = requirement(criterion.text, language)
        bounds = language["bound"].finditer(asked) if criterion.weight > 0 else ()
        for found in [one for one in bounds if not language["denial"].search(asked[: one.start()])]:
            number = found["number"].casefold()
            value = float(language.numbers.index(number) + 1 if number in language.numbers else number)
            low = value if found["low"] or found["both"] else -inf
            high = value if found["high"] or found["both"] else inf
            about = content_words(asked[: found.start()] + asked[found.end() :], language)
            same = by_noun[_stem(found["noun"].casefold(), language)]
            for before, least, most, rest in same[-MOST_SHARING:]:
                if (low > most or high < least) and before != criterion and (rest <= about or about <= rest):
                    yield criterion, f"“{found[0]}” contradicts {before.key!r}"
            same.append((criterion, low, high, about))


def content_words(text: str, language: Language = ENGLISH) -> frozenset[str]:
    """Return the stems of a text's words and its numbers, without the words that most criteria have."""
    return frozenset(token for _, _, token in _tokens(text, language))


def named_words(text: str, language: Language = ENGLISH) -> frozenset[str]:
    """Return those of the content words that name something: with a digit, or with capitals within a sentence."""
    return frozenset(
        token
        for place, word, token in _tokens(text, language)
        if any(one.isdigit() for one in word)
        or (place and word[0].isupper() and not language.capitalized_nouns)
        or not word[1:].islower()
    )


def _stem(token: str, language: Language) -> str:
    endings = (end for end in language.endings if len(token) - len(end) >= 4)
    return token.removesuffix(next(filter(token.endswith, endings), ""))


@lru_cache(maxsize=8192)
def _tokens(text: str, language: Language) -> list[tuple[int, str, str]]:
    """Return place, word and stem of the words that say what is asked."""
    saying, elided = language["saying"], language["elided"]
    words = enumerate(_WORD.findall(language["justification"].sub("", text)))
    tokens = ((place, word, elided.sub("", word.casefold()).strip("'’-.,")) for place, word in words)
    kept = (one for one in tokens if one[2] not in language.stop and not saying.match(one[2]))
    return [(place, word, _stem(token, language)) for place, word, token in kept]


def _with_candidates(criteria: Sequence[Criterion], languages: Languages) -> Iterator[tuple[_Text, list[_Text]]]:
    """Yield each criterion with the earlier ones that share one of its rarest words."""
    texts = list[_Text]()
    for number, criterion in enumerate(criteria):
        language = (languages or {}).get(criterion.key, ENGLISH)
        words = [(word.casefold(), token) for _, word, token in _tokens(criterion.text, language)]
        order, denial = tuple(token for _, token in words), language["denial"]
        opposed = {word: _stem(language.opposites[word], language) for word, _ in words if word in language.opposites}
        claim = frozenset(opposed.get(word, token) for word, token in words if not denial.fullmatch(word))
        main = language["condition"].sub("", requirement(criterion.text, language))
        wanted = (criterion.weight > 0) == ((len(denial.findall(main)) + len(opposed)) % 2 == 0)
        names = named_words(criterion.text, language)
        texts.append(_Text(number, criterion, frozenset(order), names, order, claim, wanted))
    counts = Counter(token for one in texts for token in one.tokens)
    by_token: defaultdict[str, list[_Text]] = defaultdict(list)
    for text in [one for one in texts if one.tokens]:
        rarest = sorted(text.tokens, key=lambda token: (counts[token], token))
        prefix = rarest[: max(RAREST, len(rarest) - ceil(CONTAINED * len(rarest)) + 1)]
        yield text, list({one.number: one for token in prefix for one in by_token[token][-MOST_SHARING:]}.values())
        for token in prefix:
            by_token[token].append(text)


def near_duplicates(criteria: Sequence[Criterion], languages: Languages = None) -> Iterator[tuple[int, int]]:
    """Yield the places of criteria that ask the same, or the opposite: each with the most similar earlier one."""
    same: dict[tuple[frozenset[str], str], _Text] = {}
    for text, candidates in _with_candidates(criteria, languages):
        whole = text.tokens, " ".join(text.criterion.text.split()).casefold()
        found = [one for one in candidates if _relation(one, text) == "same"]
        if whole in same and _relation(same[whole], text) == "same":
            found = [same[whole]]
        if found:
            yield max(found, key=lambda one: len(one.tokens & text.tokens)).number, text.number
        same.setdefault(whole, text)


def _relation(one: _Text, other: _Text) -> Literal["same", "contradiction"] | None:
    """Return whether two criteria ask the same (or the opposite, with opposite signs), or contradict each other.

    They do if the reward is for what one says and against what the other says: the same, or something more general.
    """
    wanted, refused = (one.claim, other.claim) if one.wanted else (other.claim, one.claim)
    covers = bool(refused) and refused <= wanted and len(wanted - refused) <= min(2, len(refused) // 2)
    if one.wanted != other.wanted and covers:
        return "contradiction"
    added, removed = other.tokens - one.tokens, one.tokens - other.tokens
    shared, fewer = len(one.tokens & other.tokens), min(len(one.tokens), len(other.tokens))
    if (one.criterion.weight < 0) != (other.criterion.weight < 0):
        if one.claim == other.claim and one.claim:
            return "same"
        smaller = one if len(removed) <= len(added) else other
        named = (smaller.tokens - (one.tokens & other.tokens)) & smaller.names
        alike = shared >= max(3, CONTAINED * fewer, ALIKE * (shared + len(added) + len(removed)))
        return "same" if alike and not named else None
    if not added and not removed:
        return "same"
    if (added & other.names) or (removed & one.names) or shared < max(6, PARAPHRASED * fewer):
        return None  # another number, name or symbol: another thing
    run = SequenceMatcher(None, one.order[:ALIGNED], other.order[:ALIGNED], autojunk=False).find_longest_match().size
    return "same" if run < MOST_IN_A_ROW * fewer else None
