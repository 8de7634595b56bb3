"""Text of documents that addresses a model, recognized by the patterns of ``screening.toml``.

It is withheld from a generator. That is a screen, not a proof: it knows common forms, mostly in English, and no false
statement. What it takes for an instruction by mistake costs the generator a paragraph; `docs/generating.md` has the
rates of both.
"""

import re
import tomllib
from importlib.resources import files

from rubricsvc.core.untrusted import clean, nfkc

_DATA = tomllib.loads(files("rubricsvc.collections").joinpath("screening.toml").read_text(encoding="utf-8"))
_EITHER = "|".join(f"(?:{pattern})" for kind in _DATA["patterns"].values() for pattern in kind)
_WHOLE = re.sub(r"<<(\w+)>>", lambda name: _DATA["words"][name[1]], _EITHER)
_ADDRESS = re.compile(_WHOLE, re.IGNORECASE | re.MULTILINE)


def addresses_model(text: str) -> str | None:
    """Return the words by which a text seems to instruct a model; None if it does not.

    Full-width, mathematical and other variants of letters count as the plain ones, hidden characters are read too, and
    so is a token of a chat format.
    """
    cleaned = clean(text)
    if "role tokens" in cleaned.note:
        return "a role token"
    shown = "".join(chr(ord(one) - 0xE0000) if "\U000e0020" <= one <= "\U000e007e" else one for one in text)  # tags
    both = map(nfkc, (cleaned.text, shown))
    found = next(filter(None, map(_ADDRESS.search, both)), None)
    return " ".join(found[0].split()) if found else None
