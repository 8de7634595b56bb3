"""Checks against a right answer: ``string``, ``math`` and ``similarity``."""

import json
import math
import re
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.templates import TemplateText, fill, template_data
from rubricsvc.graders.model import Program, Range
from workers.checks.registry import Args, CheckResult
from workers.checks.sandbox.child_process import Child
from workers.checks.sandbox.runner import PROGRAMS, Limits, run_python
from workers.repetitions import UNSPACED

_NOTHING = "nothing to compare with: set `{}`, or the reference of the prompt"

Operation = Literal["eq", "ne", "like", "ilike"]


class String(Args):
    """``operation``: eq, ne, like (contains) or ilike (contains, ignoring case), as in OpenAI's ``string_check``.

    ``reference`` is by default that of the prompt. ``strip`` ignores white space at the ends of both texts.
    """

    reference: str | None = None
    operation: Operation = "eq"
    strip: bool = False


class Templates(Args):
    """``input`` and ``reference`` are templates."""

    input: TemplateText
    reference: TemplateText


class StringCheck(Templates):
    """``operation`` as that of ``string``."""

    operation: Operation


Metric = Literal[
    "fuzzy_match", "token_sort_ratio", "token_set_ratio", "bleu", "gleu", "meteor", "cosine",
    "rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l",
]  # fmt: skip


class Similarity(Args):
    """``references``: the nearest counts; by default the prompt's reference. ``lower``: ignore case."""

    metric: Metric = "fuzzy_match"
    references: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    lower: bool = False


class TextSimilarity(Templates):
    """``metric`` one of ``similarity``."""

    metric: Metric


def _compared(completion: Completion, prompt: Prompt, args: String | Similarity | Templates) -> list[tuple[str, str]]:
    """Return each text with its reference. Raises `PlaceholderError` where a template lacks a variable."""
    if isinstance(args, Templates):
        names = template_data(prompt, completion)
        return [(fill(args.input, names), fill(args.reference, names))]
    name, given = ("references", args.references) if isinstance(args, Similarity) else ("reference", (args.reference,))
    references = [prompt.reference if one is None else one for one in given or (None,)]
    if None in references:
        raise ValueError(_NOTHING.format(name))
    lowered = isinstance(args, Similarity) and args.lower
    change = str.strip if isinstance(args, String) and args.strip else str.lower if lowered else str
    return [(change(completion.text), change(str(one))) for one in references]


def string(completion: Completion, prompt: Prompt, args: String | StringCheck) -> float:
    """Return 1 if the comparison holds, else 0."""
    ((text, reference),) = _compared(completion, prompt, args)
    if args.operation in ("eq", "ne"):
        return float((text == reference) == (args.operation == "eq"))
    return float(reference in text if args.operation == "like" else reference.casefold() in text.casefold())


_verifier = Child(
    "comparison",
    """
import resource
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
def answer(expected, text, digits):
    import logging
    from math_verify import parse, verify
    logging.disable(logging.CRITICAL)
    marked = any(mark in expected for mark in ("$", "\\\\boxed", "\\\\(", "\\\\["))
    gold = parse(expected if marked else f"${expected}$", parsing_timeout=None) or parse(expected, parsing_timeout=None)
    if not gold:
        raise ValueError(f"{expected!r} is not mathematics")
    parsed = parse(text, parsing_timeout=None)
    met = verify(gold, parsed, float_rounding=digits, timeout_seconds=None)
    return [bool(met), str(parsed[-1]) if parsed else None]
""",
)


class Math(Args):
    """``answer``: the right answer, in LaTeX or plain, by default the prompt's reference. ``digits``: of decimals."""

    answer: str | None = Field(default=None, min_length=1)
    digits: int = Field(default=6, ge=0, le=15)
    timeout_s: float = Field(default=10.0, gt=0.0, le=600.0)


_FULL_WIDTH = str.maketrans({chr(code + 0xFEE0): chr(code) for code in range(0x21, 0x7F)} | {"−": "-"})
_COMMA_ANSWER = re.compile(r"[-+]?(?P<sure>(?:0|\d{1,3}(?:\.\d{3})+),\d+)|[-+]?\d+,(?!\d{3}$)\d+")
"""A right answer with a decimal comma, ``sure`` or if the text has it too: 1,5 may be two numbers, 1,234 is not."""
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(\d{1,3}(?:\.\d{3})+|\d+),(\d+)(?![.,]?\d)")

_BESIDE_SCRIPT = re.compile(rf"(?<=[{UNSPACED}。：≈])(?=[-+−\d.\\$(])|(?<=[\d)}}$])(?=[{UNSPACED}。])")


def math_answer(completion: Completion, prompt: Prompt, args: Math) -> CheckResult:
    """Return 1 if the last mathematical answer of the text (the boxed one first) equals the right one, else 0."""
    if (expected := prompt.reference if args.answer is None else args.answer) is None:
        raise ValueError(_NOTHING.format("answer"))
    readings = [tuple(_BESIDE_SCRIPT.sub(" ", one).translate(_FULL_WIDTH) for one in (expected, completion.text))]
    if comma := _COMMA_ANSWER.fullmatch(readings[0][0].strip("$ ")):
        pointed = partial(_DECIMAL_COMMA.sub, lambda number: re.sub(r"\D", "", number[1]) + "." + number[2])
        has_comma = comma["sure"] or readings[0][0] in readings[0][1]
        readings = [*([] if comma["sure"] else readings), *([tuple(map(pointed, readings[0]))] if has_comma else [])]
    met, answer = False, None
    for reading in readings:
        if not met:
            met, answer = _verifier.ask(*reading, args.digits, timeout_s=args.timeout_s)
    return CheckResult(float(met), f"the answer found is {answer}" if answer is not None else "no answer found")


def similarity(completion: Completion, prompt: Prompt, args: Similarity | TextSimilarity) -> CheckResult:
    """Return the greatest similarity to one of the references, 0 to 1."""
    value = max(similar(*pair, args.metric) for pair in _compared(completion, prompt, args))
    return CheckResult(value, f"{args.metric} {value:.4f}")


_MAX_PRODUCT = {"fuzzy_match": 2e11, "token_sort_ratio": 2e11, "token_set_ratio": 2e11, "meteor": 1e10, "rouge_l": 5e11}
"""Maximum product of the lengths in characters: some 4 s. The other metrics read each text once."""

_NO_SYNONYMS = SimpleNamespace(synsets=lambda word: [])  # a replacement for WordNet, without entries


def similar(text: str, reference: str, metric: Metric) -> float:
    """Return the value of a metric in [0, 1].

    fuzzy_match is rapidfuzz's ``ratio`` (as are its sisters by their names), bleu is sacrebleu's sentence BLEU, gleu is
    NLTK's, rouge_n and rouge_l are F1 values. meteor matches words and stems; synonyms would need WordNet's data.
    cosine compares word counts, where OpenAI compares embeddings. Texts that are too long for a metric are refused.
    """
    if len(text) * len(reference) > _MAX_PRODUCT.get(metric, math.inf):
        sizes = f"{len(text)} and {len(reference)} characters"
        raise ValueError(f"{sizes} are too many for {metric}; use rouge_2 for long texts")
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
    return min(1.0, max(0.0, float(value)))


def _words(text: str) -> list[str]:
    """Return the runs of letters and digits in lower case, of any script."""
    return re.findall(r"\w+", text.lower())


class GradeError(RuntimeError):
    """The grader raised, or returned no number in its range."""


class Grader(Args):
    """``source`` defines ``grade(sample, item) -> float``, as in OpenAI's python grader.

    ``item`` is its second argument, by default the prompt's. ``range`` is the range of its values; it is mapped to 0 to
    1. The other arguments are its limits; ``output_mib`` is the maximum size of any file.
    """

    source: Program
    item: dict[str, JsonValue] | None = None
    range: Range = (0.0, 1.0)
    cpu_s: int = Field(default=10, ge=1, le=600)
    wall_s: float = Field(default=120.0, gt=0.0, le=600.0)
    memory_mib: int = Field(default=1024, ge=64, le=65536)
    disk_mib: int = Field(default=32, ge=1, le=65536)
    output_mib: int = Field(default=4, ge=1, le=1024)


def python(completion: Completion, prompt: Prompt, args: Grader) -> float:
    """Return the number of ``grade``, mapped from ``range`` to [0, 1]."""
    limits = Limits(**args.model_dump(include={"cpu_s", "wall_s", "memory_mib", "disk_mib", "output_mib"}))
    given = json.dumps(template_data(prompt, completion) | ({"item": args.item} if args.item is not None else {}))
    program = f"{PROGRAMS}\nrun_action('grader', {args.source!r}, 'grade')"
    result, (low, high) = run_python(program, stdin=given, limits=limits), args.range
    if not result.ok:
        raise GradeError(f"grade(sample, item) failed: {result.error}")
    try:
        value = float(json.loads(result.stdout))
    except ValueError as error:
        raise GradeError(f"grade(sample, item) ended early; it printed {result.stdout[:80]!r}") from error
    if not math.isfinite(value):
        raise GradeError(f"grade(sample, item) returned {value}")
    if not low <= value <= high:
        hint = f'set the range of the grader: "range": [{min(low, value):g}, {max(high, value):g}]'
        raise GradeError(f"grade(sample, item) returned {value:g}, outside of {low:g} to {high:g}; {hint}")
    return (value - low) / (high - low)
