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

from workers.checks.english import marked_sentences, tokens
from workers.checks.instructions import register

_MARKS = string.punctuation
_NO_MARKS = str.maketrans("", "", _MARKS)
_ADJACENT_CONSONANTS = re.compile("[bcdfghjklmnpqrstvwxyz]{2}")
_PRIMES = {n for n in range(2, 100) if all(n % d for d in range(2, n))}
_CONJUNCTIONS = {"and", "but", "for", "nor", "or", "so", "yet"}


def _bare(text: str) -> list[str]:
    """Words in lower case, without any punctuation."""
    return text.lower().translate(_NO_MARKS).split()


def _rises(numbers: Iterable[int]) -> bool:
    return all(a < b for a, b in pairwise(numbers))


def _has_punctuation(text: str) -> bool:
    if not any(mark in text for mark in ("!?", "?!", "‽")):
        return False
    rest = text.replace("?!", "", 1) if "?!" in text else text.replace("!?", "", 1)
    return set(".,!?;:") <= set(rest)


def _has_japanese(text: str, N: int) -> bool:
    every = [word.strip(_MARKS) for word in text.split()][N - 1 :: N]
    return all(re.search("[぀-ヿ一-鿿]", word) for word in every if word and not word.isdigit())


def _has_five_keywords(text: str, *, keyword1: str, keyword2: str, keyword3: str, keyword4: str, keyword5: str) -> bool:
    words, low = (keyword1, keyword2, keyword3, keyword4, keyword5), text.lower()
    return all(low.count(word.strip().lower()) == n for word, n in zip(words, (1, 2, 3, 5, 7), strict=True))


def _ends(text: str) -> list[str]:
    """Return the mark at the end of each sentence, before a closing quotation mark."""
    return [sentence.rstrip("\"'”’")[-1:] for sentence in marked_sentences(text)]


def _overlaps(text: str, reference_text: str, percentage: float) -> bool:
    """Compare the share of the text's trigrams of characters that the reference has, within two points."""
    own, other = ({part[n : n + 3] for n in range(len(part) - 2)} for part in (text, reference_text))
    return bool(own) and abs(100 * len(own & other) / len(own) - percentage) <= 2


def _is_alphabetical(text: str) -> bool:
    """Each word begins with the letter after that of the word before; z is followed by a."""
    letters = string.ascii_lowercase
    first = [letters.find(word[0]) for word in _bare(text)]
    return bool(first) and first[0] >= 0 and all(b >= 0 and b == (a + 1) % 26 for a, b in pairwise(first))


def _continues(pair: tuple[str, str]) -> bool:
    """Return whether the second sentence begins with the last word of the first."""
    last, first = pair[0].rstrip(_MARKS + " ").split(), pair[1].lstrip(_MARKS + " ").split()
    return bool(last and first) and last[-1].lower() == first[0].lower()


def _begins_as_it_ends(line: str) -> bool:
    words = line.strip().strip(_MARKS + " ").split()
    return words[:1] == words[-1:]


def _is_second_from_both_ends(text: str, keyword: str) -> bool:
    """Look at the second word and the last but one; a mark at the very end is not a word."""
    words = [token.lower() for token in tokens(text)]
    words = words[:-1] if words and words[-1] in _MARKS else words
    return len(words) >= 2 and words[1] == words[-2] == keyword.strip().lower()


def _is_at_position(text: str, keyword: str, n: int, m: int) -> bool:
    """Look at the m-th word of the n-th sentence."""
    sentences = marked_sentences(text)[n - 1 : n]
    words = [token for token in tokens(sentences[0]) if any(map(str.isalnum, token))] if sentences else []
    return len(words) >= m and words[m - 1].lower() == keyword.strip().lower()


def _alliterating(sentence: str) -> int:
    """Return the number of words in runs of one first letter."""
    words = [word for raw in sentence.lower().split() if (word := raw.lstrip(_MARKS))]
    same = [a[0] == b[0] for a, b in pairwise(words)]
    return sum(now + (now and not before) for before, now in pairwise([False, *same]))


def _has_nested_brackets(text: str) -> bool:
    """Brackets five deep, the innermost closed. A wrong closing bracket starts over."""
    opened = ""
    for mark in re.findall(r"[][(){}]", text):
        if mark in "([{":
            opened += mark
        elif opened[-1:] + mark not in ("()", "[]", "{}"):
            opened = ""
        elif len(opened) >= 5:
            return True
        else:
            opened = opened[:-1]
    return False


def _has_nested_quotes(text: str) -> bool:
    """Quotes in quotes in quotes, double and single in turn."""
    opened, deepest = "", 0
    for mark in re.findall("[\"']", text):
        opened = opened[:-1] if mark == opened[-1:] else opened + mark
        deepest = max(deepest, len(opened))
        if deepest - len(opened) >= 3:
            return True
    return False


def _explains_quotations(text: str) -> bool:
    """No quotation follows another without a word between, and none ends the text."""
    plain = "".join(text.replace("“", '"').replace("”", '"').replace("'\"'", "").split())
    rest = plain.strip(string.digits + _MARKS.replace('"', ""))
    return '""' not in plain and not rest.endswith('"')


def _is_option(text: str, options: str) -> bool:
    """Compare the answer with each of the options; those that are letters are taken exactly."""
    separator = "/" if "/" in options else "or" if "or" in options else ","
    known = [option.strip() for option in options.split(separator)]
    if re.match(r"\W*[aA]\W*[bB]\W*[cC]\W*", options):
        return text in known
    return text.strip(_MARKS + " ").lower() in {option.strip(_MARKS + " ").lower() for option in known}


def _has_emojis(text: str) -> bool:
    """Look for an emoji at the end of each sentence, or at the start of the next."""
    sentences = [sentence.translate(_NO_MARKS).strip() for sentence in marked_sentences(text)]
    pairs = zip(sentences, [*sentences[1:], ""], strict=True)
    return all(one and (_EMOJI.search(one[-2:]) or _EMOJI.search(following[:1])) for one, following in pairs)


_EMOJI = re.compile("[\U0001f000-\U0001faff☀-➿⌀-⏿⬀-⯿]")


def _has_thesis(text: str) -> bool:
    """Something in HTML italics, and something after it."""
    parts = re.split(r"<(?:i|em)>", text, maxsplit=1)
    inside = re.split(r"</(?:i|em)>", parts[-1], maxsplit=1)
    return len(parts) == len(inside) == 2 and all(map(str.strip, inside))


def _has_two_bullets(text: str) -> bool:
    """Two sentences or more, then nothing but two bullets or more."""
    lines = text.split("\n")
    starred = [line.strip().startswith("*") for line in lines]
    first = starred.index(True) if True in starred else len(lines)
    before = sum(len(marked_sentences(line.strip())) for line in lines[:first])
    return before >= 2 and all(starred[first:]) and len(lines) - first >= 2


def _is_title_case(text: str) -> bool:
    lower = [token for token in tokens(text) if token[0].islower()]
    return not any(len(token) == 1 or token[1:].islower() or token[1:].isupper() for token in lower)


register({
    "count:word_count_range": lambda text, min_words, max_words: (
        min_words <= len(re.findall(r"\w+", text)) <= max_words),
    "count:unique_word_count": lambda text, N: len({word.strip(_MARKS) for word in text.lower().split()}) >= N,
    # different spellings count apart, as there: ``And`` and ``and``, ``so`` and ``so,``
    "count:conjunctions": lambda text, small_n: (
        len({word for word in text.split() if word.strip(_MARKS).lower() in _CONJUNCTIONS}) >= small_n),
    "count:numbers": lambda text, N: len(re.findall(r"\d+", text.translate(_NO_MARKS))) == N,
    "count:punctuation": _has_punctuation,
    "count:words_japanese": _has_japanese,
    "count:keywords_multiple": _has_five_keywords,
    "ratio:sentence_type": lambda text: _ends(text).count(".") == 2 * _ends(text).count("?"),
    "ratio:sentence_balance": lambda text: len({_ends(text).count(mark) for mark in ".?!"}) == 1,
    # three sentences of equal length in characters
    "ratio:sentence_words": lambda text: [*Counter(map(len, marked_sentences(text))).values()] == [3],
    "ratio:overlap": _overlaps,
    "words:alphabet": _is_alphabetical,
    # one paragraph, with at most three of the five vowels
    "words:vowel": lambda text: "\n" not in text.strip() and len(set("aeiou") & set(text.lower())) <= 3,
    "words:consonants": lambda text: all(map(_ADJACENT_CONSONANTS.search, text.lower().split())),
    "words:palindrome": lambda text: sum(len(word) >= 5 and word == word[::-1] for word in _bare(text)) >= 10,
    "words:prime_lengths": lambda text: _PRIMES.issuperset(map(len, _bare(text))),
    "words:repeats": lambda text, small_n: all(count <= small_n for count in Counter(_bare(text)).values()),
    "words:no_consecutive": lambda text: all(a[0] != b[0] for a, b in pairwise(_bare(text))),
    "words:last_first": lambda text: all(map(_continues, pairwise(marked_sentences(text)))),
    "words:paragraph_last_first": lambda text: all(map(_begins_as_it_ends, text.lower().split("\n"))),
    "words:words_position": _is_second_from_both_ends,
    "words:keywords_specific_position": _is_at_position,
    "sentence:keyword": lambda text, word, N: any(
        re.search(rf"\b{re.escape(word)}\b", each, re.IGNORECASE) for each in marked_sentences(text)[N - 1 : N]),
    "sentence:increment": lambda text, small_n: all(
        len(_bare(b)) == len(_bare(a)) + small_n for a, b in pairwise(marked_sentences(text))),
    "sentence:alliteration_increment": lambda text: _rises(map(_alliterating, marked_sentences(text))),
    "format:parentheses": _has_nested_brackets,
    "format:quotes": _has_nested_quotes,
    "format:quote_unquote": _explains_quotations,
    "format:options": _is_option,
    "format:newline": lambda text: (
        sum(map(bool, text.translate(_NO_MARKS).strip().split("\n"))) == len(text.translate(_NO_MARKS).split())),
    "format:emoji": _has_emojis,
    "format:line_indent": lambda text: _rises(
        len(line) - len(line.lstrip(" ")) for line in text.split("\n") if line.strip()),
    "format:list": lambda text, sep: text.count(sep) >= 2,
    "format:thesis": _has_thesis,
    "format:sub-bullets": lambda text: all("-" in part for part in text.split("*")[1:]),
    "format:no_bullets_bullets": _has_two_bullets,
    "format:title_case": _is_title_case,
    "format:output_template": lambda text: (
        all(part in text for part in ("My Answer:", "My Conclusion:", "Future Outlook:"))),
    "format:no_whitespace": lambda text: not any(map(str.isspace, text)),
    "repeat:repeat_change": lambda text, prompt_to_repeat: (
        prompt_to_repeat != text and prompt_to_repeat.split()[1:] == text.split()[1:]),
    "repeat:repeat_simple": lambda text: (
        text.strip().lower() == "only output this sentence here, ignore all other requests."),
    "repeat:repeat_span": lambda text, prompt_to_repeat, n_start, n_end: (
        text.strip().lower() == prompt_to_repeat[n_start : n_end + 1].strip().lower()),
})  # fmt: skip
