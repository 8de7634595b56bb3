"""Rubrics to start from, one YAML file each: ``rubricsvc rubrics init --preset NAME``.

The first lines of a file are comments that say what it is for. Every file has checks and pitfalls, and `rubricsvc.lint`
finds nothing in it.
"""

from hashlib import sha256
from importlib.resources import files
from io import StringIO

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
