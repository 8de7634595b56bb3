"""The check ``similarity``: how near the text is to a reference, by the metrics of OpenAI's ``text_similarity``."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from rubricsvc.core.prompt import Completion, Prompt
from workers.checks.registry import Args, CheckResult, check, packages

Metric = Literal[
    "fuzzy_match", "token_sort_ratio", "token_set_ratio", "bleu", "gleu", "meteor", "cosine",
    "rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l",
]  # fmt: skip


class Similarity(Args):
    """``references``: the nearest counts; without any, the prompt's reference. ``lower``: capitals do not matter."""

    metric: Metric = "fuzzy_match"
    references: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    lower: bool = False


@check("similarity", Similarity)
def similarity(completion: Completion, prompt: Prompt, args: Similarity) -> CheckResult:
    """0 to 1: the greatest similarity to one of the references.

    Raises:
        UnavailableError: a package is not installed.
    """
    references = args.references or ((prompt.reference,) if prompt.reference else ())
    if not references:
        raise ValueError("nothing to compare with: give `references`, or the prompt a reference")
    sides = [(completion.text, reference) for reference in references]
    values = [similar(*((a.lower(), b.lower()) if args.lower else (a, b)), args.metric) for a, b in sides]
    return CheckResult(max(values), f"{args.metric} {max(values):.4f}")


def similar(text: str, reference: str, metric: Metric) -> float:
    """The metric's value in [0, 1].

    fuzzy_match is rapidfuzz's ``ratio`` (as are its sisters by their names), bleu is sacrebleu's sentence BLEU, gleu is
    NLTK's, rouge_n and rouge_l are F1 values. meteor matches words and stems, and no synonyms, which would need
    WordNet's data. cosine is that of word counts: OpenAI compares embeddings.

    Raises:
        ValueError: both texts are so long that to compare them by this metric would take many seconds.
        UnavailableError: a package is not installed.
    """
    if len(text) * len(reference) > _MOST.get(metric, math.inf):
        raise ValueError(f"{len(text)} and {len(reference)} characters are too many for {metric}; rouge_2 takes them")
    with packages():
        value = _METRICS[metric](text, reference) if metric in _METRICS else _rouge(text, reference, int(metric[-1]))
    return min(1.0, max(0.0, value))


_MOST = {"fuzzy_match": 2e11, "token_sort_ratio": 2e11, "token_set_ratio": 2e11, "meteor": 1e10, "rouge_l": 5e11}
"""Characters of one text times those of the other: some 4 s. The other metrics read each text once."""


def _words(text: str) -> list[str]:
    """Runs of letters and digits in lower case, of any script."""
    return re.findall(r"\w+", text.lower())


def _fuzzy(name: str) -> Callable[[str, str], float]:
    def ratio(text: str, reference: str) -> float:
        from rapidfuzz import fuzz

        return float(getattr(fuzz, name)(text, reference)) / 100

    return ratio


def _bleu(text: str, reference: str) -> float:
    from sacrebleu import sentence_bleu

    return float(sentence_bleu(text, [reference]).score) / 100


def _gleu(text: str, reference: str) -> float:
    from nltk.translate.gleu_score import sentence_gleu

    return float(sentence_gleu([_words(reference)], _words(text))) if _words(text) else 0.0


class _NoSynonyms:
    """Stands where NLTK expects WordNet."""

    def synsets(self, word: str) -> list[str]:
        return []


def _meteor(text: str, reference: str) -> float:
    from nltk.translate.meteor_score import single_meteor_score

    return float(single_meteor_score(_words(reference), _words(text), wordnet=_NoSynonyms()))


def _cosine(text: str, reference: str) -> float:
    one, other = Counter(_words(text)), Counter(_words(reference))
    lengths = math.sqrt(sum(n * n for n in one.values()) * sum(n * n for n in other.values()))
    return sum(count * other[word] for word, count in one.items()) / lengths if lengths else 0.0


class _Tokenizer:
    """For rouge-score, whose own drops all but ASCII."""

    def tokenize(self, text: str) -> list[str]:
        return _words(text)


def _rouge(text: str, reference: str, n: int) -> float:
    from rouge_score.rouge_scorer import RougeScorer

    return float(RougeScorer([f"rouge{n}"], tokenizer=_Tokenizer()).score(reference, text)[f"rouge{n}"].fmeasure)


def _rouge_l(text: str, reference: str) -> float:
    """The same as rouge-score's, which takes minutes for long texts."""
    from rapidfuzz.distance import LCSseq

    one, other = _words(text), _words(reference)
    return 2 * LCSseq.similarity(one, other) / (len(one) + len(other)) if one and other else 0.0


_METRICS: dict[str, Callable[[str, str], float]] = {
    "fuzzy_match": _fuzzy("ratio"),
    "token_sort_ratio": _fuzzy("token_sort_ratio"),
    "token_set_ratio": _fuzzy("token_set_ratio"),
    "bleu": _bleu,
    "gleu": _gleu,
    "meteor": _meteor,
    "cosine": _cosine,
    "rouge_l": _rouge_l,
}
