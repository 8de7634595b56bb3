"""English sentences and words as the published evaluations split them, and the language of a text."""

from __future__ import annotations

import re
import threading
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nltk.tokenize.punkt import PunktSentenceTokenizer

_ABBREVIATIONS = (  # noqa: SIM905 - a list of words reads better so
    "a.m p.m e.g i.e etc vs cf al approx no vol fig ed eds pp u.s u.k u.n d.c ph.d m.d b.a m.a dr mr mrs ms prof rev "
    "gen col capt cpt lt sgt gov sen rep st ave blvd rd mt ft inc ltd co corp bros dept univ assn jr sr jan feb mar "
    "apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun"
).split()
_INSIDE = re.compile(
    r"\b(?:Mr|Mrs|Ms|Dr|St|Jr|Sr|Co|Inc|Ltd)\."  # around names
    r"|(?:[A-Za-z]\.){2,}|(?<=\s)[A-Za-z]\."  # U.S., e.g., initials
    r"|(?<=\d)\.(?=\d)|\.(?=com|net|org|io|gov|edu|me)"  # numbers and addresses
)
_END = re.compile(r"(\.{2,}|[.?!])(?:\"|(?<=\.)”)?")


def sentences(text: str) -> list[str]:
    """Split sentences by Punkt (Kiss and Strunk 2006), with a list of abbreviations instead of NLTK's trained model."""
    return list(_punkt().tokenize(text))


def marked_sentences(text: str) -> list[str]:
    """Split sentences as IFBench does: each ``.``, ``?`` and ``!`` ends one, with or without a blank after it.

    Dots in titles, abbreviations, numbers and addresses end none; consecutive dots are one.
    """
    line = f" {text} ".replace("\n", " ")
    inside = {at for match in _INSIDE.finditer(line) for at in range(*match.span())}
    ends = [mark.end() for mark in _END.finditer(line) if mark[1] != "." or mark.start() not in inside]
    parts = [line[start:end].strip() for start, end in pairwise([0, *ends, len(line)])]
    return parts if parts[-1] else parts[:-1]


def tokens(text: str) -> list[str]:
    """Split words and punctuation marks as NLTK's ``word_tokenize`` does."""
    from nltk.tokenize.destructive import NLTKWordTokenizer

    words = NLTKWordTokenizer()
    return [token for sentence in sentences(text) for token in words.tokenize(sentence)]


@lru_cache(maxsize=1)
def _punkt() -> PunktSentenceTokenizer:
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    known = PunktParameters()
    known.abbrev_types.update(_ABBREVIATIONS)
    return PunktSentenceTokenizer(known)


LANGUAGES = (  # noqa: SIM905 - as above
    "af ar bg bn ca cs cy da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv mk ml mr ne nl no pa pl pt ro "
    "ru sk sl so sq sv sw ta te th tl tr uk ur vi zh-cn zh-tw"
).split()
"""The languages of langdetect 1.0.9."""


def language(text: str) -> str | None:
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


_loading = threading.Lock()
