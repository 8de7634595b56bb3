"""Rubrics to start from, one YAML file each: ``rubricsvc rubrics init --preset NAME``.

The first lines of a file are comments that say what it is for. Every file has checks and pitfalls, and `rubricsvc.lint`
finds nothing in it.
"""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from io import BytesIO, StringIO
from typing import Any

from rubricsvc.errors import NotFoundError, cut

_FILES = {file.name.removesuffix(".yaml"): file for file in files(__name__).iterdir() if file.name.endswith(".yaml")}
NAMES = tuple(sorted(_FILES))


def text(name: str, prompt: str | None = None) -> str:
    """Return the YAML of a preset; with a prompt it is the rubric of that prompt, under a name of its own."""
    if name not in _FILES:
        hint = f"choose one of {', '.join(NAMES)}"
        raise NotFoundError(f"no preset {cut(repr(name), 80)}", hint=hint, path="preset")
    content = _FILES[name].read_text(encoding="utf-8")
    if prompt is None:
        return content
    from rubricsvc.formats.writing import write_yaml

    stream = StringIO()
    write_yaml({"name": f"{name}-{sha256(prompt.encode()).hexdigest()[:8]}", "prompt": prompt}, stream)
    return content.replace(f"name: {name}\n", stream.getvalue().removeprefix("---\n"), 1)


def summary(name: str) -> dict[str, Any]:
    """Return the name of a preset, how many criteria, checks and pitfalls it has, and what it is for."""
    from rubricsvc.formats import InputFile, stream

    comment = text(name).split("\n\n", 1)[0]
    (record,) = stream(InputFile(f"{name}.yaml", stream=BytesIO(text(name).encode())))
    criteria = record.rubric.criteria if record.rubric else ()
    return {
        "preset": name,
        "criteria": len(criteria),
        "checks": sum(one.check is not None for one in criteria),
        "pitfalls": sum(one.weight < 0 for one in criteria),
        "for": " ".join(line.removeprefix("#").strip() for line in comment.splitlines()).split(". ")[0],
    }
