"""How methods show untrusted texts: cleaned, and between marks that do not occur in them."""

from __future__ import annotations

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.untrusted import clean, fence, fence_all
from workers.authoring.rubric_replies import Documents


def shown(name: str, text: str) -> str:
    """Return one text, cleaned and fenced."""
    return fence(name, clean(text).text)


def shown_all(name: str, texts: Documents) -> str:
    """Return several texts, each cleaned, fenced and under its name."""
    fenced = fence_all(name, [f"[{clean(key).text}]\n{clean(text).text}" for key, text in texts.items()])
    return "\n\n".join(fenced)


def documents_of(prompt: Prompt) -> dict[str, str]:
    """Return the texts of the prompt's documents, by id."""
    return {document.id: document.text for document in prompt.documents}
