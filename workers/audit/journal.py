"""The verdicts of an audit so far, in a file, so that an interrupted audit resumes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Self, TextIO

from pydantic import TypeAdapter, ValidationError

from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from workers.scoring.questions import questions_of

Verdicts = list[list[Verdict]]
"""For each completion that was shown, one verdict a criterion."""

_VERDICTS = TypeAdapter(Verdicts)


class AuditJournal:
    """Verdicts by question. Failed verdicts are not kept, so they are asked for again.

    Use it as a context manager, and ``delete`` it when the audit is complete. Without a path it keeps nothing.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Set the file; it is opened on entering the context."""
        self._path = path
        self._verdicts: dict[str, Verdicts] = {}
        self._stream: TextIO | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = self._path.open("a+", encoding="utf-8")
            self._stream.seek(0)
            self._verdicts = dict(filter(None, map(_entry, self._stream)))
            self._stream.write("\n")  # ends the line that a killed audit may have left unfinished
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def __len__(self) -> int:
        """Return the number of questions that were answered before."""
        return len(self._verdicts)

    @staticmethod
    def key(judge: Judge, rubric: Rubric, prompt: Prompt, completions: Sequence[Completion]) -> str:
        """Return the name of a question: how it is asked, and about what."""
        return digest(questions_of(rubric, judge).digest, prompt.digest, [one.digest for one in completions])

    def get(self, key: str) -> Verdicts | None:
        """Return the verdicts of a question, if it was answered before."""
        return self._verdicts.get(key)

    def add(self, key: str, verdicts: Verdicts) -> None:
        """Keep the verdicts of a question unless one of them failed."""
        if self._stream is None or any(verdict.outcome == "failed" for each in verdicts for verdict in each):
            return
        data = _VERDICTS.dump_python(verdicts, mode="json", exclude_none=True)
        self._stream.write(json.dumps([key, data], ensure_ascii=False) + "\n")
        self._stream.flush()

    def delete(self) -> None:
        """Delete the file: the audit is complete."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _entry(line: str) -> tuple[str, Verdicts] | None:
    try:
        key, data = json.loads(line)
        return str(key), _VERDICTS.validate_python(data)
    except (ValueError, TypeError, ValidationError):  # empty or incomplete
        return None
