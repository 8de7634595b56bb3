"""The check ``similarity``: similarity to a reference, by the metrics of OpenAI's ``text_similarity``."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
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
    value = _METRICS[metric](text, reference)
    return min(1.0, max(0.0, value))


_MAX_PRODUCT = {"fuzzy_match": 2e11, "token_sort_ratio": 2e11, "token_set_ratio": 2e11, "meteor": 1e10, "rouge_l": 5e11}
"""Maximum product of the lengths in characters: some 4 s. The other metrics read each text once."""


def _words(text: str) -> list[str]:
    """Return the runs of letters and digits in lower case, of any script."""
    return re.findall(r"\w+", text.lower())


def _fuzzy(name: str, text: str, reference: str) -> float:
    from rapidfuzz import fuzz

    return float(getattr(fuzz, name)(text, reference)) / 100


def _bleu(text: str, reference: str) -> float:
    from sacrebleu import sentence_bleu

    return float(sentence_bleu(text, [reference]).score) / 100


def _gleu(text: str, reference: str) -> float:
    from nltk.translate.gleu_score import sentence_gleu

    return float(sentence_gleu([_words(reference)], _words(text))) if _words(text) else 0.0


_NO_SYNONYMS = SimpleNamespace(synsets=lambda word: [])
"""A replacement for WordNet, without entries."""


def _meteor(text: str, reference: str) -> float:
    from nltk.translate.meteor_score import single_meteor_score

    return float(single_meteor_score(_words(reference), _words(text), wordnet=_NO_SYNONYMS))


def _cosine(text: str, reference: str) -> float:
    one, other = Counter(_words(text)), Counter(_words(reference))
    lengths = math.sqrt(sum(n * n for n in one.values()) * sum(n * n for n in other.values()))
    return sum(count * other[word] for word, count in one.items()) / lengths if lengths else 0.0


def _rouge(name: str, text: str, reference: str) -> float:
    from rouge_score.rouge_scorer import RougeScorer

    tokenizer = SimpleNamespace(tokenize=_words)  # its own drops all but ASCII
    return float(RougeScorer([name], tokenizer=tokenizer).score(reference, text)[name].fmeasure)


def _rouge_l(text: str, reference: str) -> float:
    """Return the same as rouge-score, which takes minutes for long texts."""
    from rapidfuzz.distance import LCSseq

    one, other = _words(text), _words(reference)
    return 2 * LCSseq.similarity(one, other) / (len(one) + len(other)) if one and other else 0.0


_METRICS: dict[str, Callable[[str, str], float]] = {
    "fuzzy_match": partial(_fuzzy, "ratio"),
    **{name: partial(_fuzzy, name) for name in ("token_sort_ratio", "token_set_ratio")},
    "bleu": _bleu,
    "gleu": _gleu,
    "meteor": _meteor,
    "cosine": _cosine,
    **{f"rouge_{n}": partial(_rouge, f"rouge{n}") for n in range(1, 6)},
    "rouge_l": _rouge_l,
}
