"""Ways to hide or disguise words so that a model may read them and a person does not."""

from __future__ import annotations

from collections.abc import Callable

_ZERO_WIDTH = "\u200b\u200c"
_CYRILLIC = str.maketrans("aceiopxyABCEHKMOPTX", "асеіорхуАВСЕНКМОРТХ")


def _tags(text: str) -> str:
    """ASCII as characters of the tag block, which no font shows."""
    return "".join(chr(0xE0000 + ord(character)) for character in text)


def _selectors(text: str) -> str:
    """Bytes as variation selectors."""
    return "".join(chr(0xFE00 + byte if byte < 16 else 0xE0100 + byte - 16) for byte in text.encode())


def _zero_width(text: str) -> str:
    """Bits as two characters without width."""
    return "".join(_ZERO_WIDTH[int(bit)] for byte in text.encode() for bit in f"{byte:08b}")


def _joined_by(mark: str) -> Callable[[str], str]:
    return mark.join


def _reversed(text: str) -> str:
    """Backwards, and turned round again by a bidirectional override."""
    return f"\u202e{text[::-1]}\u202c"


def _full_width(text: str) -> str:
    return "".join(chr(ord(character) + 0xFEE0) if "!" <= character <= "~" else character for character in text)


def _mathematical(text: str) -> str:
    """Letters as the bold ones of mathematics."""
    return "".join(
        chr(0x1D400 + ord(c) - ord("A"))
        if "A" <= c <= "Z"
        else chr(0x1D41A + ord(c) - ord("a"))
        if "a" <= c <= "z"
        else c
        for c in text
    )


DISGUISES: dict[str, Callable[[str], str]] = {
    "tags": _tags,
    "selectors": _selectors,
    "zero_width": _zero_width,
    "split": _joined_by("\u2060"),
    "soft_hyphens": _joined_by("\u00ad"),
    "reversed": _reversed,
    "full_width": _full_width,
    "cyrillic": lambda text: text.translate(_CYRILLIC),
    "mathematical": _mathematical,
}
