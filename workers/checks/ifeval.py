"""The 25 verifiable instructions of IFEval (arXiv 2311.07911), decided as its published evaluation decides them.

Where they differ: keywords are taken literally (there they are regular expressions), and sentences and tokens are split
without NLTK's trained data (see `workers.checks.english`).
"""

from __future__ import annotations

import json
import re
from typing import Annotated

from pydantic import Field

from workers.checks.english import language, sentences, tokens
from workers.checks.instructions import Relation, compare, instruction, register

Count = Annotated[int, Field(ge=0)]
Words = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
Word = Annotated[str, Field(min_length=1)]


@instruction("keywords:existence")
def keywords_existence(text: str, *, keywords: Words) -> bool:
    return all(_times(keyword, text) for keyword in keywords)


@instruction("keywords:frequency")
def keyword_frequency(text: str, *, keyword: Word, frequency: Count, relation: Relation) -> bool:
    return compare(_times(keyword.strip(), text), relation, frequency)


def _times(keyword: str, text: str) -> int:
    return len(re.findall(re.escape(keyword), text, re.IGNORECASE))


@instruction("keywords:forbidden_words")
def forbidden_words(text: str, *, forbidden_words: Words) -> bool:
    return not any(re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) for word in forbidden_words)


@instruction("keywords:letter_frequency")
def letter_frequency(
    text: str,
    *,
    letter: Annotated[str, Field(min_length=1, max_length=1)],
    let_frequency: Count,
    let_relation: Relation,
) -> bool:
    return compare(text.lower().count(letter.lower()), let_relation, let_frequency)


@instruction("language:response_language")
def response_language(text: str, *, language: Word) -> bool:
    return _is_in(text, language)


def _is_in(text: str, code: str) -> bool:
    """A text whose language cannot be told counts as being in the right one."""
    detected = language(text)
    return detected is None or detected == code


@instruction("length_constraints:number_paragraphs")
def number_paragraphs(text: str, *, num_paragraphs: Count) -> bool:
    """Paragraphs are parted by ``***``; an empty one is allowed at the ends only."""
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text)]
    return all(parts[1:-1]) and sum(map(bool, parts)) == num_paragraphs


@instruction("length_constraints:number_words")
def number_words(text: str, *, num_words: Count, relation: Relation) -> bool:
    return compare(len(re.findall(r"\w+", text)), relation, num_words)


@instruction("length_constraints:number_sentences")
def number_sentences(text: str, *, num_sentences: Count, relation: Relation) -> bool:
    return compare(len(sentences(text)), relation, num_sentences)


@instruction("length_constraints:nth_paragraph_first_word")
def nth_paragraph_first_word(
    text: str, *, num_paragraphs: Count, nth_paragraph: Annotated[int, Field(ge=1)], first_word: Word
) -> bool:
    """Paragraphs are parted by two line breaks; the n-th of them begins with the word."""
    parts = text.split("\n\n")
    number = sum(bool(part.strip()) for part in parts)
    if number != num_paragraphs or nth_paragraph > number or not parts[nth_paragraph - 1].strip():
        return False
    first = parts[nth_paragraph - 1].split()[0].lstrip("'").lstrip('"')
    return re.split("[.,?!'\"]", first)[0].lower() == first_word.lower()


@instruction("detectable_content:number_placeholders")
def number_placeholders(text: str, *, num_placeholders: Count) -> bool:
    return sum(map(_placeholders, text.split("\n"))) >= num_placeholders


def _placeholders(line: str) -> int:
    """``[so]``, counted by hand: as a pattern it takes quadratic time where brackets are never closed."""
    count, at = 0, line.find("[")
    while at >= 0 and (end := line.find("]", at)) >= 0:
        count, at = count + 1, line.find("[", end)
    return count


@instruction("detectable_content:postscript")
def postscript(text: str, *, postscript_marker: Word) -> bool:
    marker = postscript_marker.strip()
    spaced = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    return re.search(spaced.get(marker, re.escape(marker.lower())), text.lower()) is not None


@instruction("detectable_format:number_bullet_lists")
def number_bullet_lists(text: str, *, num_bullets: Count) -> bool:
    """Lines that begin with ``-``, or with one ``*``."""
    lines = [line.lstrip() for line in text.split("\n")]
    stars = sum(line.startswith("*") and not line.startswith("**") for line in lines)
    return stars + sum(line.startswith("-") for line in lines) == num_bullets


@instruction("detectable_format:number_highlighted_sections")
def number_highlighted_sections(text: str, *, num_highlights: Count) -> bool:
    """``*so*`` and ``**so**``, not empty."""
    single = [part for part in re.findall(r"\*[^\n*]*\*", text) if part.strip("*").strip()]
    double = [part for part in re.findall(r"\*\*[^\n*]*\*\*", text) if part[2:-2].strip()]
    return len(single) + len(double) >= num_highlights


@instruction("detectable_format:multiple_sections")
def multiple_sections(text: str, *, section_spliter: Word, num_sections: Count) -> bool:
    return len(re.findall(rf"{re.escape(section_spliter.strip())}\s?\d+", text)) >= num_sections


@instruction("detectable_format:json_format")
def json_format(text: str) -> bool:
    inside = text.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        inside = inside.removeprefix(fence)
    try:
        json.loads(inside.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


@instruction("combination:repeat_prompt")
def repeat_prompt(text: str, *, prompt_to_repeat: Word) -> bool:
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


@instruction("startend:end_checker")
def end_checker(text: str, *, end_phrase: Word) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


@instruction("change_case:capital_word_frequency")
def capital_word_frequency(text: str, *, capital_frequency: Count, capital_relation: Relation) -> bool:
    return compare(sum(token.isupper() for token in tokens(text)), capital_relation, capital_frequency)


def _has_title(line: str) -> bool:
    start, end = line.find("<<"), line.rfind(">>")
    return 0 <= start < end and bool(line[start:end].strip("<> \t\r"))


def _are_two_responses(text: str) -> bool:
    parts = [part.strip() for part in text.split("******")]
    responses = [part for part in parts if part]
    return all(parts[1:-1]) and len(responses) == 2 and responses[0] != responses[1]


register(
    {
        "detectable_format:constrained_response": lambda text: any(
            f"My answer is {option}." in text for option in ("yes", "no", "maybe")
        ),
        "detectable_format:title": lambda text: any(map(_has_title, text.split("\n"))),
        "combination:two_responses": _are_two_responses,
        "startend:quotation": lambda text: re.fullmatch(r'\s*".*"\s*', text, re.DOTALL) is not None,
        "change_case:english_capital": lambda text: text.isupper() and _is_in(text, "en"),
        "change_case:english_lowercase": lambda text: text.islower() and _is_in(text, "en"),
        "punctuation:no_comma": lambda text: "," not in text,
    }
)
