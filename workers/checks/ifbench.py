"""Instructions of IFBench (arXiv 2507.02833) that hold for any prompt, decided as its published evaluation does.

Left out: ``custom:…``, each of which is one prompt; and five that need its own lists of words, or models:
``count:person_names``, ``count:pronouns``, ``ratio:stop_words``, ``words:start_verb``, ``words:odd_even_syllables``.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from workers.checks.english import marked_sentences, tokens
from workers.checks.ifeval import Count, Word
from workers.checks.instructions import instruction, register

_MARKS = string.punctuation
_NO_MARKS = str.maketrans("", "", _MARKS)
_Position = Annotated[int, Field(ge=1)]
_VOWELS = set("aeiou")
_ADJACENT_CONSONANTS = re.compile("[bcdfghjklmnpqrstvwxyz]{2}")


def _bare(text: str) -> list[str]:
    """Words in lower case, without any punctuation."""
    return text.lower().translate(_NO_MARKS).split()


@instruction("count:word_count_range")
def word_count_range(text: str, *, min_words: Count, max_words: Count) -> bool:
    return min_words <= len(re.findall(r"\w+", text)) <= max_words


@instruction("count:unique_word_count")
def unique_word_count(text: str, *, N: Count) -> bool:  # noqa: N803 - the data sets' name
    return len({word.strip(_MARKS) for word in text.lower().split()}) >= N


@instruction("count:conjunctions")
def conjunctions(text: str, *, small_n: Count) -> bool:
    """Different spellings count apart, as there: ``And`` and ``and``, ``so`` and ``so,``."""
    wanted = {"and", "but", "for", "nor", "or", "so", "yet"}
    return len({word for word in text.split() if word.strip(_MARKS).lower() in wanted}) >= small_n


@instruction("count:numbers")
def numbers(text: str, *, N: Count) -> bool:  # noqa: N803
    return len(re.findall(r"\d+", text.translate(_NO_MARKS))) == N


@instruction("count:punctuation")
def punctuation(text: str) -> bool:
    if not any(mark in text for mark in ("!?", "?!", "‽")):
        return False
    rest = text.replace("?!", "", 1) if "?!" in text else text.replace("!?", "", 1)
    return set(".,!?;:") <= set(rest)


@instruction("count:words_japanese")
def words_japanese(text: str, *, N: _Position) -> bool:  # noqa: N803
    every = [word.strip(_MARKS) for word in text.split()][N - 1 :: N]
    return all(re.search("[぀-ヿ一-鿿]", word) for word in every if word and not word.isdigit())


@instruction("count:keywords_multiple")
def keywords_multiple(
    text: str, *, keyword1: Word, keyword2: Word, keyword3: Word, keyword4: Word, keyword5: Word
) -> bool:
    words, low = (keyword1, keyword2, keyword3, keyword4, keyword5), text.lower()
    return all(low.count(word.strip().lower()) == n for word, n in zip(words, (1, 2, 3, 5, 7), strict=True))


def _ends(text: str) -> list[str]:
    """The mark at the end of each sentence, before a closing quotation mark."""
    return [sentence.rstrip("\"'”’")[-1:] for sentence in marked_sentences(text)]


@instruction("ratio:overlap")
def overlap(text: str, *, reference_text: str, percentage: Annotated[float, Field(ge=0, le=100)]) -> bool:
    """The share of the text's trigrams of characters that the reference has, within two points."""
    own, other = _trigrams(text), _trigrams(reference_text)
    return bool(own) and abs(100 * len(own & other) / len(own) - percentage) <= 2


def _trigrams(text: str) -> set[str]:
    return {text[n : n + 3] for n in range(len(text) - 2)}


@instruction("words:alphabet")
def alphabet(text: str) -> bool:
    """Each word begins with the letter after that of the word before; z is followed by a."""
    first = [word[0] for word in _bare(text)]
    letters = string.ascii_lowercase
    if not first or first[0] not in letters:
        return False
    begin = letters.index(first[0])
    return all(letter == letters[(begin + n) % 26] for n, letter in enumerate(first))


def _is_prime(n: int) -> bool:
    return 1 < n < 100 and all(n % d for d in range(2, int(n**0.5) + 1))


@instruction("words:repeats")
def repeats(text: str, *, small_n: Count) -> bool:
    return all(count <= small_n for count in Counter(_bare(text)).values())


@instruction("words:last_first")
def last_first(text: str) -> bool:
    """Each sentence begins with the last word of the one before."""
    for one, following in pairwise(marked_sentences(text)):
        last, first = one.rstrip(_MARKS + " ").split(), following.lstrip(_MARKS + " ").split()
        if not last or not first or last[-1].lower() != first[0].lower():
            return False
    return True


@instruction("words:words_position")
def words_position(text: str, *, keyword: Word) -> bool:
    """The second word and the last but one; a mark at the very end is not a word."""
    words = [token.lower() for token in tokens(text)]
    if words and words[-1] in _MARKS:
        words = words[:-1]
    return len(words) >= 2 and words[1] == words[-2] == keyword.strip().lower()


@instruction("words:keywords_specific_position")
def keywords_specific_position(text: str, *, keyword: Word, n: _Position, m: _Position) -> bool:
    """The m-th word of the n-th sentence."""
    sentences = marked_sentences(text)[n - 1 : n]
    words = [token for token in tokens(sentences[0]) if any(map(str.isalnum, token))] if sentences else []
    return len(words) >= m and words[m - 1].lower() == keyword.strip().lower()


@instruction("sentence:keyword")
def sentence_keyword(text: str, *, word: Word, N: _Position) -> bool:  # noqa: N803
    sentences = marked_sentences(text)[N - 1 : N]
    return any(re.search(rf"\b{re.escape(word)}\b", sentence, re.IGNORECASE) for sentence in sentences)


@instruction("sentence:increment")
def increment(text: str, *, small_n: Count) -> bool:
    lengths = [len(_bare(sentence)) for sentence in marked_sentences(text)]
    return all(b == a + small_n for a, b in pairwise(lengths))


def _alliterating(sentence: str) -> int:
    words = [word for raw in sentence.lower().split() if (word := raw.lstrip(_MARKS))]
    same = [a[0] == b[0] for a, b in pairwise(words)]
    return sum(now + (now and not before) for before, now in pairwise([False, *same]))


@instruction("format:parentheses")
def parentheses(text: str) -> bool:
    """Brackets five deep, the innermost closed. A wrong closing bracket starts over."""
    closing, opened, deepest = {")": "(", "]": "[", "}": "{"}, list[str](), 0
    for mark in text:
        if mark in "([{":
            opened.append(mark)
            deepest = max(deepest, len(opened))
        elif mark in closing:
            if opened and opened[-1] == closing[mark]:
                opened.pop()
                if deepest >= 5:
                    return True
            else:
                opened, deepest = [], 0
    return False


@instruction("format:quotes")
def quotes(text: str) -> bool:
    """Quotes in quotes in quotes, double and single in turn."""
    opened, deepest = list[str](), 0
    for mark in text:
        if opened and mark == opened[-1]:
            opened.pop()
            if deepest - len(opened) >= 3:
                return True
        elif mark in "\"'":
            opened.append(mark)
            deepest = max(deepest, len(opened))
    return False


@instruction("format:quote_unquote")
def quote_unquote(text: str) -> bool:
    """No quotation follows another without a word between, and none ends the text."""
    plain = "".join(text.replace("“", '"').replace("”", '"').replace("'\"'", "").split())
    rest = plain.strip(string.digits + _MARKS.replace('"', ""))
    return '""' not in plain and not rest.endswith('"')


@instruction("format:options")
def options(text: str, *, options: Word) -> bool:
    """The answer is one of the options; those that are letters are taken exactly."""
    separator = "/" if "/" in options else "or" if "or" in options else ","
    known = [option.strip() for option in options.split(separator)]
    if re.match(r"\W*[aA]\W*[bB]\W*[cC]\W*", options):
        return text in known
    return text.strip(_MARKS + " ").lower() in {option.strip(_MARKS + " ").lower() for option in known}


@instruction("format:newline")
def newline(text: str) -> bool:
    plain = text.translate(_NO_MARKS).strip()
    return sum(line != "" for line in plain.split("\n")) == len(plain.split())


@instruction("format:emoji")
def emoji(text: str) -> bool:
    """An emoji ends every sentence, or begins the next."""
    sentences = [sentence.translate(_NO_MARKS).strip() for sentence in marked_sentences(text)]
    following = [*sentences[1:], ""]
    return all(one and (_emoji(one[-2:]) or _emoji(after[:1])) for one, after in zip(sentences, following, strict=True))


def _emoji(text: str) -> bool:
    return re.search("[\U0001f000-\U0001faff☀-➿⌀-⏿⬀-⯿]", text) is not None


@instruction("format:list")
def separators(text: str, *, sep: Word) -> bool:
    return text.count(sep) >= 2


@instruction("format:thesis")
def thesis(text: str) -> bool:
    """Something in HTML italics, and something after it."""
    start = re.search(r"<(?:i|em)>", text)
    end = re.search(r"</(?:i|em)>", text[start.end() :]) if start else None
    if start is None or end is None:
        return False
    rest = text[start.end() :]
    return bool(rest[: end.start()].strip() and rest[end.end() :].strip())


@instruction("format:no_bullets_bullets")
def no_bullets_bullets(text: str) -> bool:
    """Two sentences or more, then nothing but two bullets or more."""
    lines = text.split("\n")
    starred = [line.strip().startswith("*") for line in lines]
    first = starred.index(True) if True in starred else len(lines)
    before = sum(len(marked_sentences(line.strip())) for line in lines[:first])
    return before >= 2 and all(starred[first:]) and len(lines) - first >= 2


@instruction("format:title_case")
def title_case(text: str) -> bool:
    lower = [token for token in tokens(text) if token[0].islower()]
    return not any(len(token) == 1 or token[1:].islower() or token[1:].isupper() for token in lower)


@instruction("repeat:repeat_change")
def repeat_change(text: str, *, prompt_to_repeat: Word) -> bool:
    return prompt_to_repeat != text and prompt_to_repeat.split()[1:] == text.split()[1:]


@instruction("repeat:repeat_span")
def repeat_span(text: str, *, prompt_to_repeat: Word, n_start: Count, n_end: Count) -> bool:
    return text.strip().lower() == prompt_to_repeat[n_start : n_end + 1].strip().lower()


def _begins_as_it_ends(line: str) -> bool:
    words = line.strip().strip(_MARKS + " ").split()
    return words[:1] == words[-1:]


def _rises(numbers: Iterable[int]) -> bool:
    return all(a < b for a, b in pairwise(numbers))


register(
    {
        "ratio:sentence_type": lambda text: _ends(text).count(".") == 2 * _ends(text).count("?"),
        "ratio:sentence_balance": lambda text: len({_ends(text).count(mark) for mark in ".?!"}) == 1,
        "ratio:sentence_words": lambda text: [*Counter(map(len, marked_sentences(text))).values()] == [3],
        "words:vowel": lambda text: "\n" not in text.strip() and len(_VOWELS & set(text.lower())) <= 3,
        "words:consonants": lambda text: all(map(_ADJACENT_CONSONANTS.search, text.lower().split())),
        "words:palindrome": lambda text: sum(len(word) >= 5 and word == word[::-1] for word in _bare(text)) >= 10,
        "words:prime_lengths": lambda text: all(_is_prime(len(word)) for word in _bare(text)),
        "words:no_consecutive": lambda text: all(a[0] != b[0] for a, b in pairwise(_bare(text))),
        "words:paragraph_last_first": lambda text: all(map(_begins_as_it_ends, text.lower().split("\n"))),
        "sentence:alliteration_increment": lambda text: _rises(map(_alliterating, marked_sentences(text))),
        "format:line_indent": lambda text: _rises(
            len(line) - len(line.lstrip(" ")) for line in text.split("\n") if line.strip()
        ),
        "format:sub-bullets": lambda text: all("-" in part for part in text.split("*")[1:]),
        "format:output_template": lambda text: all(
            part in text for part in ("My Answer:", "My Conclusion:", "Future Outlook:")
        ),
        "format:no_whitespace": lambda text: not any(map(str.isspace, text)),
        "repeat:repeat_simple": lambda text: (
            text.strip().lower() == "only output this sentence here, ignore all other requests."
        ),
    }
)
