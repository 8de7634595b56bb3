"""Charts of pages as SVG: one for a wide screen and one for a phone, both with text of 12 pixels. Needs ``charts``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WIDTHS = {"wide": 760, "narrow": 290}
"""Pixels. The page shows the one that fits."""
INK = "#010101"
"""The colour of text and lines, which a page replaces by that of its theme."""


def render_svg(chart: Callable[[int], Any]) -> dict[str, str]:
    """Return the SVG of ``chart`` for each of ``WIDTHS``."""
    import vl_convert

    def svg(width: int) -> str:
        text = str(vl_convert.vegalite_to_svg(styled(chart(width)).to_json()))
        return text.replace(INK, "currentColor")  # the page's theme colours text and lines

    return {name: svg(width) for name, width in WIDTHS.items()}


def styled(chart: Any) -> Any:
    """Return a chart in the style of the pages, as wide as it says with its axes."""
    return configured(chart.properties(padding=2, autosize={"type": "fit-x", "contains": "padding"}))


def configured(chart: Any) -> Any:
    """Return a chart, or several side by side, in the style of the pages."""
    axis = {"labelColor": INK, "titleColor": INK, "domainColor": INK, "tickColor": INK, "gridColor": "#88888844"}
    return (
        chart.configure(background="transparent", font="system-ui, sans-serif")
        .configure_axis(**axis, labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_view(stroke=None)
        .configure_legend(labelColor=INK, labelFontSize=12, orient="top")
    )
