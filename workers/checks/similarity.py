"""The check ``similarity``: similarity to a reference, by the metrics of OpenAI's ``text_similarity``."""

from __future__ import annotations

import math
import re
from collections import Counter
from types import SimpleNamespace
from typing import Annotated, Literal

from pydantic import Field

from rubricsvc.core.prompt import Completion, Prompt
from workers.checks.registry import Args, CheckResult, check

Metric = Literal[
    "fuzzy_match", "token_sort_ratio", "token_set_ratio", "bleu", "gleu", "meteor", "cosine",
    "rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l",
]  # fmt: skip


class Similarity(Args):
    """``references``: the nearest counts; by default the prompt's reference. ``lower``: ignore case."""

    metric: Metric = "fuzzy_match"
    references: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    lower: bool = False


@check("similarity", Similarity)
def similarity(completion: Completion, prompt: Prompt, args: Similarity) -> CheckResult:
    """Return the greatest similarity to one of the references, 0 to 1."""
    references = args.references or ((prompt.reference,) if prompt.reference else ())
    if not references:
        raise ValueError("no reference: set `references`, or the reference of the prompt")
    sides = [(completion.text, reference) for reference in references]
    values = [similar(*((a.lower(), b.lower()) if args.lower else (a, b)), args.metric) for a, b in sides]
    return CheckResult(max(values), f"{args.metric} {max(values):.4f}")


def similar(text: str, reference: str, metric: Metric) -> float:
    """Return the value of a metric in [0, 1].

    fuzzy_match is rapidfuzz's ``ratio`` (as are its sisters by their names), bleu is sacrebleu's sentence BLEU, gleu is
    NLTK's, rouge_n and rouge_l are F1 values. meteor matches words and stems; synonyms would need WordNet's data.
    cosine compares word counts, where OpenAI compares embeddings. Texts that are too long for a metric are refused.
    """
    if len(text) * len(reference) > _MAX_PRODUCT.get(metric, math.inf):
        sizes = f"{len(text)} and {len(reference)} characters"
        raise ValueError(f"{sizes} are too many for {metric}; use rouge_2 for long texts")
    return min(1.0, max(0.0, _similar(text, reference, metric)))


_MAX_PRODUCT = {"fuzzy_match": 2e11, "token_sort_ratio": 2e11, "token_set_ratio": 2e11, "meteor": 1e10, "rouge_l": 5e11}
"""Maximum product of the lengths in characters: some 4 s. The other metrics read each text once."""

_NO_SYNONYMS = SimpleNamespace(synsets=lambda word: [])
"""A replacement for WordNet, without entries."""


def _similar(text: str, reference: str, metric: Metric) -> float:
    words, expected = _words(text), _words(reference)
    match metric:
        case "fuzzy_match" | "token_sort_ratio" | "token_set_ratio":
            from rapidfuzz import fuzz

            value = getattr(fuzz, metric.replace("fuzzy_match", "ratio"))(text, reference) / 100
        case "bleu":
            from sacrebleu import sentence_bleu

            value = sentence_bleu(text, [reference]).score / 100
        case "gleu":
            from nltk.translate.gleu_score import sentence_gleu

            value = sentence_gleu([expected], words) if words else 0.0
        case "meteor":
            from nltk.translate.meteor_score import single_meteor_score

            value = single_meteor_score(expected, words, wordnet=_NO_SYNONYMS)
        case "cosine":
            one, other = Counter(words), Counter(expected)
            lengths = math.sqrt(sum(n * n for n in one.values()) * sum(n * n for n in other.values()))
            value = sum(count * other[word] for word, count in one.items()) / lengths if lengths else 0.0
        case "rouge_l":  # rouge-score returns the same, but takes minutes for long texts
            from rapidfuzz.distance import LCSseq

            value = 2 * LCSseq.similarity(words, expected) / (len(words) + len(expected)) if words and expected else 0.0
        case _:
            from rouge_score.rouge_scorer import RougeScorer

            name = metric.replace("_", "")
            scorer = RougeScorer([name], tokenizer=SimpleNamespace(tokenize=_words))  # its own drops all but ASCII
            value = scorer.score(reference, text)[name].fmeasure
    return float(value)


def _words(text: str) -> list[str]:
    """Return the runs of letters and digits in lower case, of any script."""
    return re.findall(r"\w+", text.lower())
