"""The 25 verifiable instructions of IFEval (arXiv 2311.07911), decided as its published evaluation decides them.

Where they differ: keywords are taken literally (there they are regular expressions), and sentences and tokens are split
without NLTK's trained data (see `workers.checks.english`).
"""

from __future__ import annotations

import json
import re

from workers.checks import english
from workers.checks.instructions import compare, register


def _times(keyword: str, text: str) -> int:
    return len(re.findall(re.escape(keyword), text, re.IGNORECASE))


def _is_in(text: str, language: str) -> bool:
    """Whether a text is in a language; one whose language cannot be detected counts as being in the right one."""
    return (english.language(text) or language) == language


def _has_paragraphs(text: str, num_paragraphs: int) -> bool:
    """Paragraphs are parted by ``***``; an empty one is allowed at the ends only."""
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text)]
    return all(parts[1:-1]) and sum(map(bool, parts)) == num_paragraphs


def _begins_paragraph(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Paragraphs are parted by two line breaks; the n-th of them begins with the word."""
    parts = text.split("\n\n")
    number = sum(bool(part.strip()) for part in parts)
    if number != num_paragraphs or nth_paragraph > number or not parts[nth_paragraph - 1].strip():
        return False
    first = parts[nth_paragraph - 1].split()[0].lstrip("'").lstrip('"')
    return re.split("[.,?!'\"]", first)[0].lower() == first_word.lower()


def _has_postscript(text: str, postscript_marker: str) -> bool:
    marker = postscript_marker.strip()
    spaced = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    return re.search(spaced.get(marker, re.escape(marker.lower())), text.lower()) is not None


def _has_highlights(text: str, num_highlights: int) -> bool:
    """``*so*`` and ``**so**``, not empty."""
    single = [part for part in re.findall(r"\*[^\n*]*\*", text) if part.strip("*").strip()]
    double = [part for part in re.findall(r"\*\*[^\n*]*\*\*", text) if part[2:-2].strip()]
    return len(single) + len(double) >= num_highlights


def _is_json(text: str) -> bool:
    inside = text.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        inside = inside.removeprefix(fence)
    try:
        json.loads(inside.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def _are_two_responses(text: str) -> bool:
    parts = [part.strip() for part in text.split("******")]
    responses = [part for part in parts if part]
    return all(parts[1:-1]) and len(responses) == 2 and responses[0] != responses[1]


register({
    "keywords:existence": lambda text, keywords: all(_times(keyword, text) for keyword in keywords),
    "keywords:frequency": lambda text, keyword, frequency, relation: (
        compare(_times(keyword.strip(), text), relation, frequency)),
    "keywords:forbidden_words": lambda text, forbidden_words: not any(
        re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) for word in forbidden_words),
    "keywords:letter_frequency": lambda text, letter, let_frequency, let_relation: (
        compare(text.lower().count(letter.lower()), let_relation, let_frequency)),
    "language:response_language": _is_in,
    "length_constraints:number_paragraphs": _has_paragraphs,
    "length_constraints:number_words": lambda text, num_words, relation: (
        compare(len(re.findall(r"\w+", text)), relation, num_words)),
    "length_constraints:number_sentences": lambda text, num_sentences, relation: (
        compare(len(english.sentences(text)), relation, num_sentences)),
    "length_constraints:nth_paragraph_first_word": _begins_paragraph,
    "detectable_content:number_placeholders": lambda text, num_placeholders: (  # a pattern would take quadratic time
        sum("[" in part for line in text.split("\n") for part in line.split("]")[:-1]) >= num_placeholders),
    "detectable_content:postscript": _has_postscript,
    "detectable_format:number_bullet_lists": lambda text, num_bullets: (
        len(re.findall(r"^[^\S\n]*(?:-|\*(?!\*))", text, re.MULTILINE)) == num_bullets),
    "detectable_format:constrained_response": lambda text: (
        any(f"My answer is {option}." in text for option in ("yes", "no", "maybe"))),
    "detectable_format:number_highlighted_sections": _has_highlights,
    "detectable_format:multiple_sections": lambda text, section_spliter, num_sections: (
        len(re.findall(rf"{re.escape(section_spliter.strip())}\s?\d+", text)) >= num_sections),
    "detectable_format:json_format": _is_json,
    "detectable_format:title": lambda text: any(
        line.partition("<<")[2].rpartition(">>")[0].strip("<> \t\r") for line in text.split("\n")),
    "combination:two_responses": _are_two_responses,
    "combination:repeat_prompt": lambda text, prompt_to_repeat: (
        text.strip().lower().startswith(prompt_to_repeat.strip().lower())),
    "startend:end_checker": lambda text, end_phrase: (
        text.strip().strip('"').lower().endswith(end_phrase.strip().lower())),
    "startend:quotation": lambda text: re.fullmatch(r'\s*".*"\s*', text, re.DOTALL) is not None,
    "change_case:capital_word_frequency": lambda text, capital_frequency, capital_relation: (
        compare(sum(token.isupper() for token in english.tokens(text)), capital_relation, capital_frequency)),
    "change_case:english_capital": lambda text: text.isupper() and _is_in(text, "en"),
    "change_case:english_lowercase": lambda text: text.islower() and _is_in(text, "en"),
    "punctuation:no_comma": lambda text: "," not in text,
})  # fmt: skip
