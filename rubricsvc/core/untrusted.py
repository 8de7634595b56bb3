"""Untrusted text: cleaned of invisible characters and role tokens, and fenced.

Removed: control, format, bidirectional, tag and variation characters, which can carry words that a model reads and a
person does not see. Kept, because scripts need them: a joiner (U+200C, U+200D) between two characters of a script that
joins or of an emoji, one U+FE0E or U+FE0F after a symbol, and visible format characters such as Arabic number signs.
Role tokens of chat formats (``<|im_end|>``, ``[INST]``) get a look-alike as first bracket, because servers turn them
into turns even inside a message (models in this process do not: `workers.engines.local.conversation`). Neither vLLM
(its pull requests 11691 and 31735 were not merged) nor llama.cpp (its issue 26309) has an option against it that holds.
Nothing is cut off. Changes here change what judges read: raise ``VERSION`` in the modes of `workers.judges` with them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate, chain, count

from rubricsvc.core.verdict import Evidence

_JOINS = (
    "\u0590-\u061b\u061d-\u115e\u1161-\u17b3\u17b6-\u180a\u1810-\u1fff\u2190-\u2bff\ua000-\uabff"
    "\ufb00-\ufdff\ufe0f\ufe70-\ufefc\U00010000-\U0001bc9f\U0001e000-\U0001faff"
)
_SYMBOLS = "#*0-9\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff"
_HIDDEN = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # controls, but not tab and line ends
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
INVISIBLE = re.compile(
    f"[{_HIDDEN}]|(?<![{_JOINS}])[\u200c\u200d]|[\u200c\u200d](?![{_JOINS}])|(?<![{_SYMBOLS}])[\ufe0e\ufe0f]"
)
"""Characters that a reader does not see. Joiners within scripts and emoji are part of them."""
_SUSPECT = re.compile(f"[{_HIDDEN}\u200c\u200d\ufe0e\ufe0f]")  # one class, many times faster than the alternatives
# Tokenizers that normalise read full-width and small signs as the plain ones.
_LEFT, _RIGHT = "<\uff1c\ufe64", ">\uff1e\ufe65"
_OPENING = f"[]\uff3b{_LEFT}"  # to look for these first is many times faster
_WORDS = (  # control tokens that look like tags; none of them is a tag of HTML but <s>
    r"s|[be]o[a-z]|(?:start|end|begin)_(?:of|function)_\w+|</?SYS|sop|role|escape"
    r"|(?i:(?:bos|eos|eop|eot|pad|unk|cls|sep|mask)(?:_token)?)|(?:seed|minimax):\w+|longcat_\w+|\[\S{1,64}\]"
    r"|\u7528\u6237|AI|TOKENS_UNUSED_\d+|osagent_mode"  # MiniCPM's user and assistant, InternLM, Kimi
    r"|fim[_-]\w+|think|tool_(?:calls?|responses?|sep|results?)|arg_(?:key|value)|\w+_soft_token"
    r"|(?:unused|reserved|extra_id|special|SPECIAL|control|custom_token|special_token|unused_token)[_-]?\d+"
)
_SQUARE = (
    r"INST|THINK|SYSTEM_PROMPT|MODEL_SETTINGS|AVAILABLE_TOOLS|TOOL_(?:CALLS|RESULTS|CONTENT)|[gs]MASK|@?[BE]OS@?|EOT"
    r"|(?:start|end)_header_id|(?:extra_id|control)_\d+|\|\w+\||PREFIX|SUFFIX|MIDDLE|IMG(?:_BREAK|_END)?|(?:BEGIN_)?AUDIO"
    r"|CALL_ID|TRANSCRIBE|unused\d+|UNUSED_TOKEN_\d+|(?:BEGIN|END) FINAL RESPONSE"  # Mistral, Pangu, InternLM, Apriel
)
_ROLE_TOKEN = re.compile(
    rf"[{_LEFT}](?=/?[|｜][^\s{_LEFT}{_RIGHT}][^\n{_LEFT}{_RIGHT}]{{0,64}}[{_RIGHT}]"  # <|im_end|>, <｜User｜>, <|turn>
    rf"|[^\s{_LEFT}{_RIGHT}]{{1,64}}[|｜][{_RIGHT}]"  # <turn|>
    rf"|/?(?:{_WORDS})[{_RIGHT}])"
    rf"|[\[\uff3b](?=/?(?:{_SQUARE})[\]\uff3d])"
    r"|\](?=~!?b[\[\]])|\[(?=e~\[)"
)
"""Covers the models in ``TEMPLATES`` of tests/unit/workers/judges/test_untrusted.py, which has the sources."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class CleanText:
    """Text that a judge may see; ``note`` says what was changed, if anything."""

    text: str
    note: str = ""


def clean(text: str) -> CleanText:
    """Remove invisible characters and disarm role tokens; see the module."""
    notes = []
    hidden = INVISIBLE.findall(text) if _SUSPECT.search(text) else []
    if hidden:
        text = INVISIBLE.sub("", text)
        kinds = Counter(hidden).most_common()
        named = ", ".join(f"U+{ord(character):04X} ×{count}" for character, count in kinds[:5])
        others = f" and {len(kinds) - 5} other kinds" if len(kinds) > 5 else ""
        notes.append(f"removed {len(hidden)} invisible characters ({named}{others})")
    text, tokens = _ROLE_TOKEN.subn("‹", text) if any(sign in text for sign in _OPENING) else (text, 0)
    if tokens:
        notes.append(f"disarmed {tokens} role tokens")
    if not text.isascii():
        text, broken = _LONE_SURROGATE.subn("\ufffd", text)
        if broken:
            notes.append(f"replaced {broken} lone surrogates")
    return CleanText(text, "; ".join(notes))


def fence(name: str, text: str) -> str:
    """Return ``text`` between two marks with a number that is derived from it and does not occur in it.

    The number depends on this text alone, so that all questions about a completion, and all completions of a prompt,
    share the same bytes. A writer cannot know it, since writing it down would change it.
    """
    seeds = chain([text], (f"{attempt}\n{text}" for attempt in count(1)))
    number = next(number for seed in seeds if (number := sha256(seed.encode()).hexdigest()[:8]) not in text)
    return f"<{name}-{number}>\n{text}\n</{name}-{number}>"


def fence_in(mark: str, text: str) -> str:
    """Return ``text`` between two marks, each longer than any run of the mark's character in it, as in CommonMark.

    A mark of one character repeated: two or three tokens instead of twenty, and the same ones around most texts.
    """
    longest = max(map(len, re.findall(f"{re.escape(mark[0])}+", text)), default=0)
    mark = mark[0] * max(len(mark), longest + 1)
    return f"{mark}\n{text}\n{mark}"


def fence_all(name: str, texts: Sequence[str]) -> list[str]:
    """Return the texts, each fenced as by `fence`, so that none contains a mark of any other.

    The numbers are derived from all texts in any order: the writer of one cannot know the marks.
    """
    everything = "\n".join(sorted(texts))
    for attempt in count():
        seeds = [f"{place} {attempt}\n{everything}" for place in range(len(texts))]
        numbers = [sha256(seed.encode()).hexdigest()[:8] for seed in seeds]
        if len(set(numbers)) == len(texts) and not any(number in everything for number in numbers):
            break
    marked = zip(numbers, texts, strict=True)
    return [f"<{name}-{number}>\n{text}\n</{name}-{number}>" for number, text in marked]


class QuoteIndex:
    """A text in which quotes are located, ignoring whitespace; each quote is one search.

    ``shown`` is the cleaned text; offsets are in ``original``.
    """

    def __init__(self, shown: str, original: str) -> None:
        words = [word.span() for word in re.finditer(r"\S+", shown)]
        self._text = " ".join(shown[start:end] for start, end in words)
        self._starts = [start for start, _ in words]  # of each word in shown, and in the joined text
        self._joined = list(accumulate((end - start + 1 for start, end in words), initial=0))
        # the number of shown characters before each hidden one
        self._hidden = [match.start() - i for i, match in enumerate(INVISIBLE.finditer(original))]

    def locate(self, quote: str) -> Evidence:
        """Return the quote with the offsets of its first occurrence, if any."""
        words = " ".join(quote.split())
        at = self._text.find(words) if words else -1
        if at < 0:
            return Evidence(quote=quote)
        ends = []
        for place in (at, at + len(words) - 1):  # of the first and the last character
            word = bisect_right(self._joined, place) - 1
            shown = self._starts[word] + place - self._joined[word]
            ends.append(shown + bisect_right(self._hidden, shown))
        return Evidence(quote=quote, start=ends[0], end=ends[1] + 1)
