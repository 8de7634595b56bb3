"""What an audit has asked so far, in a file: one that is interrupted goes on from there."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self, TextIO

from pydantic import TypeAdapter, ValidationError

from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import ConflictError
from workers.scoring.completions import fingerprint_of

Verdicts = list[list[Verdict]]
"""For each answer that was shown one verdict a criterion."""

_VERDICTS = TypeAdapter(Verdicts)


class Journal:
    """Verdicts by what was asked. Failed ones are not kept: they are asked for again.

    Open it with ``with``; ``delete`` it when the audit is done. Without a path it keeps nothing.
    One process has it at a time: to open one that another has raises ConflictError.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known: dict[str, Verdicts] = {}
        self._stream: TextIO | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = _held(self._path)
            self._stream.seek(0)
            self._known = dict(filter(None, map(_read, self._stream)))
            self._stream.write("\n")  # what a killed audit left unfinished ends here
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    @property
    def known(self) -> int:
        """Questions that were answered before."""
        return len(self._known)

    @staticmethod
    def key(judge: Judge, rubric: Rubric, prompt: Prompt, answers: Sequence[Completion]) -> str:
        """Names a question: how it is put, and about what."""
        return digest(fingerprint_of(rubric, judge), prompt.digest, [answer.digest for answer in answers])

    def get(self, key: str) -> Verdicts | None:
        """What was said, if it is known."""
        return self._known.get(key)

    def add(self, key: str, found: Verdicts) -> None:
        """Keep what was said, where nothing in it failed."""
        if self._stream is None or any(verdict.outcome == "failed" for verdicts in found for verdict in verdicts):
            return
        told = _VERDICTS.dump_python(found, mode="json", exclude_none=True)
        self._stream.write(json.dumps([key, told], ensure_ascii=False) + "\n")
        self._stream.flush()

    def delete(self) -> None:
        """The audit is done."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _held(path: Path) -> TextIO:
    """The file, which is ours until it is closed."""
    while True:
        stream = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                return stream
        except BlockingIOError as error:
            stream.close()
            raise ConflictError("this audit of this judge is running already", hint="wait until it ends") from error
        except FileNotFoundError:
            pass
        stream.close()  # who had it was done with it, and deleted it just now


def _read(line: str) -> tuple[str, Verdicts] | None:
    try:
        key, told = json.loads(line)
        return str(key), _VERDICTS.validate_python(told)
    except (ValueError, TypeError, ValidationError):  # empty, or broken off
        return None
