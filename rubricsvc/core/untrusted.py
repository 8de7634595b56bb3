"""Untrusted text, cleaned of invisible characters and role tokens; `workers.judges.calls` fences it.

Removed: control, format, bidirectional, tag and variation characters, which can carry words that a model reads and a
person does not see. Kept, because scripts need them: a joiner (U+200C, U+200D) between two characters of a script that
joins or of an emoji, one U+FE0E or U+FE0F after a symbol, and visible format characters such as Arabic number signs.
Role tokens of chat formats (``<|im_end|>``, ``[INST]``) get a look-alike as first bracket, because servers turn them
into turns even inside a message (models in this process do not: `workers.engines.local.conversation`). Neither vLLM
(its pull requests 11691 and 31735 were not merged) nor llama.cpp (its issue 26309) has an option against it that holds.
Nothing is cut off. Changes here change what judges read: raise ``VERSION`` in the modes of `workers.judges` with them.
"""

import re
from collections import Counter
from typing import NamedTuple
from unicodedata import normalize

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
"""Covers the models in ``TEMPLATES`` of tests/unit/rubricsvc/core/test_untrusted.py, which has the sources."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def nfkc(text: str) -> str:
    """Return a text in Unicode's form NFKC, by parts: a run of combining marks takes quadratic time."""
    return "".join(normalize("NFKC", text[n : n + 1000]) for n in range(0, len(text), 1000))


class CleanText(NamedTuple):
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
