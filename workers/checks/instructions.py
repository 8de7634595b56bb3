"""The check ``ifeval``: one of the 25 verifiable instructions of IFEval (arXiv 2311.07911), by its id.

They are decided as its published evaluation decides them, except that keywords are taken literally (there they are
regular expressions), and that sentences and tokens are split without NLTK's trained data. The names of an instruction's
arguments determine their types.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from difflib import get_close_matches
from inspect import signature
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, ValidationError, create_model, model_validator

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.validation_messages import first_error
from workers.checks.registry import Args

_ABBREVIATIONS = (  # noqa: SIM905 - a list of words reads better so
    "a.m p.m e.g i.e etc vs cf al approx no vol fig ed eds pp u.s u.k u.n d.c ph.d m.d b.a m.a dr mr mrs ms prof rev "
    "gen col capt cpt lt sgt gov sen rep st ave blvd rd mt ft inc ltd co corp bros dept univ assn jr sr jan feb mar "
    "apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun"
).split()
LANGUAGES = (  # noqa: SIM905 - as above
    "af ar bg bn ca cs cy da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv mk ml mr ne nl no pa pl pt ro "
    "ru sk sl so sq sv sw ta te th tl tr uk ur vi zh-cn zh-tw"
).split()
"""The languages of langdetect 1.0.9."""

_loading = threading.Lock()


def english_sentences(text: str) -> list[str]:
    """Split by Punkt (Kiss and Strunk 2006) with a list of abbreviations instead of NLTK's trained model."""
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    known = PunktParameters()
    known.abbrev_types.update(_ABBREVIATIONS)
    return list(PunktSentenceTokenizer(known).tokenize(text))


def _count_capitals(text: str) -> int:
    """Return the number of tokens in capital letters, where tokens are those of NLTK's ``word_tokenize``."""
    from nltk.tokenize.destructive import NLTKWordTokenizer

    tokenizer = NLTKWordTokenizer()
    return sum(token.isupper() for sentence in english_sentences(text) for token in tokenizer.tokenize(sentence))


def detect_language(text: str) -> str | None:
    """Return the ISO 639-1 code (``zh-cn``, ``zh-tw`` for Chinese) by langdetect; None for an unknown language.

    langdetect samples; its seed is fixed, so that equal texts have equal results.
    """
    from langdetect import DetectorFactory, LangDetectException, detect
    from langdetect.detector_factory import init_factory

    DetectorFactory.seed = 0
    try:
        with _loading:
            init_factory()
        code: str = detect(text)
    except LangDetectException:
        return None
    return None if code == "unknown" else code


def _compare(count: int, relation: str, expected: int) -> bool:
    return count < expected if relation == "less than" else count >= expected


def _is_in(text: str, language: str) -> bool:
    """Whether a text is in a language; one whose language cannot be detected counts as being in the right one."""
    return (detect_language(text) or language) == language


def _has_parts(text: str, separator: str, number: int, *, distinct: bool = False) -> bool:
    """Whether a text has so many parts; an empty one is allowed at the ends only."""
    parts = [part.strip() for part in re.split(separator, text)]
    full = [part for part in parts if part]
    return all(parts[1:-1]) and len(full) == number and (not distinct or len({*full}) == number)


def _begins_paragraph(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Paragraphs are parted by two line breaks; the n-th of them begins with the word."""
    parts = text.split("\n\n")
    number = sum(bool(part.strip()) for part in parts)
    if number != num_paragraphs or nth_paragraph > number or not parts[nth_paragraph - 1].strip():
        return False
    first = parts[nth_paragraph - 1].split()[0].lstrip("'").lstrip('"')
    return re.split("[.,?!'\"]", first)[0].lower() == first_word.lower()


_POSTSCRIPTS = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}


def _is_json(text: str) -> bool:
    inside = text.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        inside = inside.removeprefix(fence)
    try:
        json.loads(inside.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


_FUNCTIONS: dict[str, Callable[..., bool]] = {
    "keywords:existence": lambda text, keywords: all(
        re.search(re.escape(keyword), text, re.IGNORECASE) for keyword in keywords),
    "keywords:frequency": lambda text, keyword, frequency, relation: (
        _compare(len(re.findall(re.escape(keyword.strip()), text, re.IGNORECASE)), relation, frequency)),
    "keywords:forbidden_words": lambda text, forbidden_words: not any(
        re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) for word in forbidden_words),
    "keywords:letter_frequency": lambda text, letter, let_frequency, let_relation: (
        _compare(text.lower().count(letter.lower()), let_relation, let_frequency)),
    "language:response_language": _is_in,
    "length_constraints:number_paragraphs": lambda text, num_paragraphs: (
        _has_parts(text, r"\s?\*\*\*\s?", num_paragraphs)),
    "length_constraints:number_words": lambda text, num_words, relation: (
        _compare(len(re.findall(r"\w+", text)), relation, num_words)),
    "length_constraints:number_sentences": lambda text, num_sentences, relation: (
        _compare(len(english_sentences(text)), relation, num_sentences)),
    "length_constraints:nth_paragraph_first_word": _begins_paragraph,
    "detectable_content:number_placeholders": lambda text, num_placeholders: (  # a pattern would take quadratic time
        sum("[" in part for line in text.split("\n") for part in line.split("]")[:-1]) >= num_placeholders),
    "detectable_content:postscript": lambda text, postscript_marker: re.search(
        _POSTSCRIPTS.get(mark := postscript_marker.strip(), re.escape(mark.lower())), text.lower()) is not None,
    "detectable_format:number_bullet_lists": lambda text, num_bullets: (
        len(re.findall(r"^[^\S\n]*(?:-|\*(?!\*))", text, re.MULTILINE)) == num_bullets),
    "detectable_format:constrained_response": lambda text: (
        any(f"My answer is {option}." in text for option in ("yes", "no", "maybe"))),
    "detectable_format:number_highlighted_sections": lambda text, num_highlights: (  # *so* and **so**, not empty
        sum(bool(part.strip("*").strip()) for part in re.findall(r"\*[^\n*]*\*", text))
        + sum(bool(part[2:-2].strip()) for part in re.findall(r"\*\*[^\n*]*\*\*", text)) >= num_highlights),
    "detectable_format:multiple_sections": lambda text, section_spliter, num_sections: (
        len(re.findall(rf"{re.escape(section_spliter.strip())}\s?\d+", text)) >= num_sections),
    "detectable_format:json_format": _is_json,
    "detectable_format:title": lambda text: any(
        line.partition("<<")[2].rpartition(">>")[0].strip("<> \t\r") for line in text.split("\n")),
    "combination:two_responses": lambda text: _has_parts(text, r"\*{6}", 2, distinct=True),
    "combination:repeat_prompt": lambda text, prompt_to_repeat: (
        text.strip().lower().startswith(prompt_to_repeat.strip().lower())),
    "startend:end_checker": lambda text, end_phrase: (
        text.strip().strip('"').lower().endswith(end_phrase.strip().lower())),
    "startend:quotation": lambda text: re.fullmatch(r'\s*".*"\s*', text, re.DOTALL) is not None,
    "change_case:capital_word_frequency": lambda text, capital_frequency, capital_relation: (
        _compare(_count_capitals(text), capital_relation, capital_frequency)),
    "change_case:english_capital": lambda text: text.isupper() and _is_in(text, "en"),
    "change_case:english_lowercase": lambda text: text.islower() and _is_in(text, "en"),
    "punctuation:no_comma": lambda text: "," not in text,
}  # fmt: skip

_Word = Annotated[str, Field(min_length=1)]
_TYPES: dict[Any, str] = {
    Literal["less than", "at least"]: "relation let_relation capital_relation",
    Annotated[int, Field(ge=0)]: "frequency let_frequency capital_frequency num_paragraphs num_words num_sentences "
    "num_placeholders num_bullets num_highlights num_sections",
    Annotated[int, Field(ge=1)]: "nth_paragraph",
    _Word: "keyword language first_word postscript_marker section_spliter prompt_to_repeat end_phrase",
    Annotated[tuple[_Word, ...], Field(min_length=1)]: "keywords forbidden_words",
    Annotated[str, Field(min_length=1, max_length=1)]: "letter",
}
_TYPE_BY_NAME = {name: type_ for type_, names in _TYPES.items() for name in names.split()}

INSTRUCTIONS: dict[str, tuple[Callable[..., bool], type[Args]]] = {}
"""The function that decides, and the model of its arguments, by id."""

for _id, _function in _FUNCTIONS.items():
    _fields: dict[str, Any] = {name: (_TYPE_BY_NAME[name], ...) for name in [*signature(_function).parameters][1:]}
    INSTRUCTIONS[_id] = _function, create_model(_id, __base__=Args, **_fields)


class IFEval(Args):
    """``instruction_id`` and ``kwargs`` as in the data set; nulls are ignored.

    ``loose``: the text may also follow without its first line, its last, both, or its asterisks.
    """

    instruction_id: str
    kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    loose: bool = False

    @model_validator(mode="after")
    def _known(self) -> IFEval:
        if self.instruction_id not in INSTRUCTIONS:
            near = get_close_matches(self.instruction_id, INSTRUCTIONS, n=3)
            which = f"did you mean {' or '.join(near)}? " if near else ""
            raise ValueError(f"unknown instruction {self.instruction_id!r}; {which}docs/checks.md lists them")
        try:
            self.arguments()
        except ValidationError as error:
            _, args = INSTRUCTIONS[self.instruction_id]
            field_path, message = first_error(error, model=args)
            takes = ", ".join(args.model_fields) or "no kwargs"
            raise ValueError(f"kwargs.{field_path}: {message}; {self.instruction_id} takes {takes}") from error
        return self

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the instruction, validated and in their types."""
        given = {name: value for name, value in self.kwargs.items() if value is not None}
        return dict(INSTRUCTIONS[self.instruction_id][1].model_validate(given))


def ifeval(completion: Completion, prompt: Prompt, args: IFEval) -> float:
    """Return 1 if the text follows the instruction, else 0. An empty text follows none."""
    lines, texts = completion.text.split("\n"), [completion.text]
    if args.loose:
        texts += ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
        texts += [text.replace("*", "") for text in texts]
    given, (follows, _) = args.arguments(), INSTRUCTIONS[args.instruction_id]
    return float(any(follows(text, **given) for text in texts if text.strip()))
