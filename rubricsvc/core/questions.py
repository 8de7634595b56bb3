"""The questions that a judge is asked about a completion under a rubric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from rubricsvc.core.fingerprint import digest


@dataclass(frozen=True)
class QuestionSet:
    """The question behind each criterion of one rubric version, as one judge is asked it.

    A question is named by its fingerprint: the SHA-256 of all that decides its answer besides prompt and completion.
    ``fingerprints`` are by criterion key, in the rubric's order. Two criteria may share a question.
    """

    fingerprints: Mapping[str, str]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the keys and fingerprints, in order."""
        return digest(list(self.fingerprints.items()))

    def answered(self, known: Iterable[str]) -> frozenset[str]:
        """Return the criteria that need not be asked.

        They are the ``known`` ones, and those that share their question with one of these or with an earlier one.
        """
        keys = set(known)
        seen = {self.fingerprints[key] for key in keys}
        for key, fingerprint in self.fingerprints.items():
            if fingerprint in seen:
                keys.add(key)
            seen.add(fingerprint)
        return frozenset(keys)
