"""HTML pages: escaping and undefined values."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import UndefinedError

from rubricsvc.cli.html_page import render


def test_render_escapes_and_filters_text(tmp_path: Path) -> None:
    template = tmp_path / "page.html.j2"
    template.write_text("{% if text %}\n<p>{{ text|twice }}</p>\n{% endif %}")
    assert render(template, {"twice": lambda text: text * 2}, text="<b>") == "<p>&lt;b&gt;&lt;b&gt;</p>\n"
    with pytest.raises(UndefinedError):
        render(template, {"twice": str})
