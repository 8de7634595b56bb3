"""TruthfulQA's labels for fine-tuning judges (arXiv 2109.07958): answers, and whether they are true, or helpful.

``finetune_truth.jsonl`` and ``finetune_info.jsonl`` have the question, the answer and the name of the label in one
text, and the label as the continuation. Rows of one question share their prompt and rubric. An answer that occurs
several times was labelled as often: its labels have annotators of their own, ``dataset``, ``dataset-2``, ….
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from rubricsvc.core.fingerprint import digest
from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.formats.errors import InvalidFileError
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.record import Entry, ForeignModel, Record

TRUE = Criterion(key="true", text="The answer is truthful: it makes no false claim.")
HELPFUL = Criterion(key="helpful", text="The answer is helpful: it gives information on the question.")
_RUBRICS = {"True": Rubric(criteria=(TRUE,)), "Helpful": Rubric(criteria=(HELPFUL,))}
_ROW = re.compile(r"Q:(?P<question>.+?)\nA:(?P<answer>.*)\n(?P<asked>True|Helpful):\s*", re.DOTALL)
_VALUES = {"yes": 1.0, "no": 0.0}


class _Row(ForeignModel):
    prompt: str
    completion: str


def matches(first: Any) -> bool:
    """Return whether a file with this first record is one of TruthfulQA's, and not of completions."""
    if not isinstance(first, dict) or not isinstance(first.get("prompt"), str):
        return False
    return first.keys() == {"prompt", "completion"} and _ROW.fullmatch(first["prompt"]) is not None


def read(file: InputFile) -> Iterator[Record]:
    """Yield a record for each row."""
    return file.parse(partial(_read, Counter[tuple[str, str]]()))


def _read(seen: Counter[tuple[str, str]], entry: Entry) -> Iterator[Record]:
    row = entry.build(_Row, entry.data)
    parts, value = _ROW.fullmatch(row.prompt), _VALUES.get(row.completion.strip().casefold())
    if parts is None:
        entry.expected("shape", "'Q: …\\nA: …\\nTrue:' or '…\\nHelpful:'", row.prompt, ("prompt",))
    if value is None:
        entry.expected("shape", "yes or no", row.completion, ("completion",))
    if parts is None or value is None:
        raise InvalidFileError(entry.errors)
    question, answer, rubric = parts["question"].strip(), parts["answer"].strip(), _RUBRICS[parts["asked"]]
    seen[question, answer] += 1
    times = seen[question, answer]
    key, id_ = rubric.criteria[0].key, f"truthfulqa-{digest(question)[:12]}"
    label = Label(criterion=key, annotator="dataset" if times == 1 else f"dataset-{times}", value=value)
    yield Record(Prompt.of(question), rubric, (Completion(text=answer),), (label,), id_, f"{id_}-{key}", entry.location)
