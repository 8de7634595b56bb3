"""Charts as files: .svg and .png."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rubricsvc.cli.output import replaced
from rubricsvc.errors import InvalidError, needs_extra

ENDINGS = (".svg", ".png")


def check_picture(out: Path, *others: str) -> str:
    """Return the ending of a file to be written, in lower case."""
    with needs_extra("charts"):
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    if (ending := out.suffix.lower()) not in (*ENDINGS, *others):
        *most, last = (*ENDINGS, *others)
        raise InvalidError(f"{out} is not {', '.join(most)} or {last}", hint="name the file chart.svg or chart.png")
    return ending


def write_picture(chart: Any, out: Path) -> None:
    """Write a chart, on white."""
    import vl_convert

    chart.config.background = "white"
    specification = chart.to_json()
    with replaced(out) as part:
        if out.suffix.lower() == ".svg":
            part.write_text(vl_convert.vegalite_to_svg(specification), encoding="utf-8")
        else:
            part.write_bytes(vl_convert.vegalite_to_png(specification, scale=2))
