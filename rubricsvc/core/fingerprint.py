"""Canonical JSON, the SHA-256 digests made from it, the questions that they name, and shingles of texts.

Equal values have equal bytes: sorted keys, no blanks, UTF-8. The unset fields of a model are left out, so that a field
added later, unset, does not change the digests of what is stored. Free JSON data (the arguments of a check, the item of
a prompt) is kept as it is: there ``null`` is a value like any other.

Texts that repeat one another have the same shingles: the different runs of `WIDTH` words (Broder 1997). Case,
punctuation and line breaks do not count. Of short texts in any language, near copies share bands of a sketch.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zlib import crc32

from rubricsvc.core.untrusted import nfkc

_ATOMS = frozenset({str, int, float, bool, type(None)})


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS:  # most values; digests are a third of the cost of an import
        return value
    if (names := getattr(kind, "__pydantic_fields__", None)) is not None:
        fields = value.__dict__
        return {name: _plain(field) for name in names if (field := fields[name]) is not None}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def canonical_json(value: Any) -> bytes:
    """Return the one byte string of ``value`` (a pydantic model or plain JSON data without NaN and infinities)."""
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", errors="surrogatepass")


def digest(*values: Any) -> str:
    """Return the SHA-256 (64 hex digits) of the canonical JSON of the values, in order."""
    return hashlib.sha256(canonical_json(list(values))).hexdigest()


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


WIDTH = 5
COPY = 0.9  # share of the shingles of either of two texts that the other has, from which they are copies of one another
_WORD = re.compile(r"\w+")

Shingles = frozenset[int]  # the different shingles of a text, as numbers that are equal in this process only


def shingles(text: str) -> Shingles:
    """Return the shingles of a text; the whole text is one if it has fewer words."""
    words = _WORD.findall(text.casefold())
    return frozenset(map(hash, zip(*(words[place:] for place in range(min(WIDTH, len(words)))), strict=False)))


def containment(part: Shingles, whole: Shingles) -> float:
    """Return the share of the shingles of one text that another has; 0 where there are none."""
    return len(part & whole) / len(part) if part else 0.0


def copy_groups(texts: Sequence[str]) -> list[int]:
    """Return for each text [N] the number of the first one that it is equal to or a near copy of; else its own.

    A text is compared with those that are no copies, so that a chain of small edits is not one group.
    """
    found: list[int] = []
    firsts: dict[int, Shingles] = {}
    for number, text in enumerate(texts):
        own = shingles(text)
        alike = ((first, min(containment(own, other), containment(other, own))) for first, other in firsts.items())
        found.append(next((first for first, share in alike if texts[first] == text or share >= COPY), number))
        firsts.setdefault(found[-1], own)
    return found


RUN = 8  # bytes of UTF-8: 8 letters of English, 4 of Russian, 2 or 3 of Chinese
BANDS, ROWS = 16, 2
NEAR = 3  # shared bands from which one text is nearly the other: docs/adr/0024 says how often they are found


def hash64(text: str) -> int:
    """Return 64 bits of the hash of a text, as a signed number."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), signed=True)


def sketch(text: str) -> tuple[int, ...]:
    """Return the bands [BANDS] of a text, which equal texts share and near copies in part; they do not tell the text.

    Each hashes `ROWS` minima of one permutation (Li, Owen & Zhang 2012; Shrivastava & Li 2014) of the runs of its
    letters and digits, in Unicode's compatibility form and without regard to case.
    """
    letters = "".join(filter(str.isalnum, nfkc(text).casefold())).encode("utf-8", "surrogatepass")
    hashes, count = {crc32(letters[n : n + RUN]) for n in range(max(1, len(letters) - RUN + 1))}, BANDS * ROWS
    minima = {one % count: one for one in sorted(hashes, reverse=True)}
    filled = [next(minima[one % count] for one in range(n, n + count) if one % count in minima) for n in range(count)]
    return tuple(hash64(f"{n} {filled[n : n + ROWS]}") for n in range(0, count, ROWS))
