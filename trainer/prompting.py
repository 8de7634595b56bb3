"""How the policy sees a prompt: its documents, then its question."""

from __future__ import annotations

from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import InvalidError


def with_documents(prompt: Prompt) -> Prompt:
    """Return the prompt whose first user message begins with the documents, each under its ``[id]``.

    A prompt without documents is returned as it is.

    Raises:
        InvalidError: the prompt has documents and no user message.
    """
    if not prompt.documents:
        return prompt
    place = next((i for i, message in enumerate(prompt.messages) if message.role == "user"), None)
    if place is None:
        raise InvalidError(
            f"a prompt with {len(prompt.documents)} documents has no user message to show them in",
            hint="add a message of role `user` to the prompt",
        )
    texts = [f"[{document.id}] {document.text}" for document in prompt.documents]
    question = prompt.messages[place]
    shown = question.model_copy(update={"content": "\n\n".join([*texts, question.content])})
    messages = (*prompt.messages[:place], shown, *prompt.messages[place + 1 :])
    return prompt.model_copy(update={"messages": messages})
