"""Templates of authoring: text files in ``prompts/``, filled in one pass.

A file has a note to its reader, then sections, each under a line ``=== name ===``::

    system     the generator's role
    shared     the same for every prompt, so that an engine can encode it once; it may have an example rubric
    question   this prompt: its paragraphs with a placeholder that has no value are left out
    repair     the answer to a reply that is no rubric, with {error} (optional: without it, no reply is sent back)

``{format}`` and ``{checks}`` are the files ``format.txt`` and ``checks.txt``. All other placeholders are untrusted
text, cleaned and fenced. The SHA-256 of what was read is stored with each rubric.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.untrusted import clean
from workers.judges.calls import TextTemplate, fence, fence_all, sections

_FOLDER = Path(__file__).parent / "prompts"
_INCLUDED = re.compile(r"\{(format|checks)\}")


@dataclass(frozen=True)
class AuthoringTemplate:
    """A template by its file's ``name``; ``digest`` is the SHA-256 of its text, with what it includes."""

    name: str
    digest: str
    system: str
    shared: str
    paragraphs: tuple[TextTemplate, ...]
    repair: TextTemplate | None

    def question(self, values: Mapping[str, str]) -> str:
        """Return the question with these values, without the paragraphs that need another one."""
        used = (one.fill(dict(values)) for one in self.paragraphs if all(name in values for name in one.names))
        return "\n\n".join(used)


@lru_cache
def read(name: str) -> AuthoringTemplate:
    """Return the template of this name, read once per process."""
    text = _text(name)
    bodies = sections(text)
    return AuthoringTemplate(
        name=name,
        digest=sha256(text.encode()).hexdigest(),
        system=bodies["system"],
        shared=bodies["shared"] + "\n\n",
        paragraphs=tuple(map(TextTemplate, re.split(r"\n{2,}", bodies["question"]))),
        repair=TextTemplate(bodies["repair"]) if "repair" in bodies else None,
    )


def _text(name: str) -> str:
    """Return the text of a file with what it includes; an included file may include others."""
    return _INCLUDED.sub(lambda match: _text(match[1]).strip(), (_FOLDER / f"{name}.txt").read_text(encoding="utf-8"))


SMALL_MODELS = frozenset({"embedded"})  # models that cannot write JSON: they are asked for a numbered list


def shown(name: str, text: str) -> str:
    """Return one text, cleaned and fenced."""
    return fence(name, clean(text).text)


def shown_all(name: str, texts: Mapping[str, str]) -> str:
    """Return several texts, each cleaned, fenced and under its name."""
    fenced = fence_all(name, [f"[{clean(key).text}]\n{clean(text).text}" for key, text in texts.items()])
    return "\n\n".join(fenced)


def documents_of(prompt: Prompt) -> dict[str, str]:
    """Return the texts of the prompt's documents, by id."""
    return {document.id: document.text for document in prompt.documents}
