"""Chat conversations as token ids, in which data never becomes a control token; labels as sets of token ids."""

from __future__ import annotations

import re
from typing import Any

from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError
from workers.engines.base import EngineRequest, Failure, Question, normalize_token

_PLACES = re.compile("\ue000([0-9]+)\ue000")


class Conversation:
    """A model's tokenizer and chat template.

    The template is rendered once around placeholders. Its control tokens become ids; the text between them gets the
    data in one pass and is tokenized without control tokens, so that ``<|im_end|>`` in a completion is ten characters
    of text. For text without control tokens the ids are those of ``apply_chat_template``.

    It is an InvalidError if the tokenizer has no chat template, has one that changes the texts, or cannot tokenize
    without control tokens.
    """

    def __init__(self, tokenizer: Any) -> None:
        if not tokenizer.chat_template:
            hint = "a judge needs an instruction-tuned model"
            raise InvalidError("the model's tokenizer has no chat template", hint=hint)
        self.tokenizer = tokenizer
        self._added = {token.content: number for number, token in tokenizer.added_tokens_decoder.items()}
        special = next((token for token in self._added if token in tokenizer.all_special_tokens), None)
        if special:
            ((*ids,),) = tokenizer([special], add_special_tokens=False, split_special_tokens=True)["input_ids"]
            if self._added[special] in ids:
                message = "the tokenizer turns text in data into control tokens"
                raise InvalidError(message, hint="use a model with a fast tokenizer")
        self._ids_by_label: dict[str, list[int]] = {}
        self._templates: dict[tuple[tuple[str, ...], bool], list[str | int]] = {}

    def encode(self, request: EngineRequest) -> list[list[int]]:
        """Return the token ids of each question's conversation, up to the begin of the assistant's reply."""
        filled = []
        for question in request.questions:
            messages = request.messages(question)
            texts = tuple(message["content"] for message in messages)
            if any(message.get("tool_calls") for message in messages):
                hint = "use a model server"
                raise InvalidError("a model in this process takes no prompts with tool calls", hint=hint)
            template = self._template(tuple(message["role"] for message in messages), request.thinking)
            filled.append(
                [
                    part
                    if isinstance(part, int)
                    else "".join(texts[int(one)] if at % 2 else one for at, one in enumerate(_PLACES.split(part)))
                    for part in template
                ]
            )
        batch = list({part for parts in filled for part in parts if isinstance(part, str)})
        encoded = self.tokenizer(batch, add_special_tokens=False, split_special_tokens=True) if batch else {}
        ids = dict(zip(batch, encoded.get("input_ids", ()), strict=True))
        return [[i for part in parts for i in ([part] if isinstance(part, int) else ids[part])] for parts in filled]

    def label_ids(self, label: str) -> list[int]:
        """Return every token that equals ``label`` after `normalize_token`."""
        if not self._ids_by_label:
            for number, text in enumerate(self.tokenizer.batch_decode([[i] for i in range(len(self.tokenizer))])):
                self._ids_by_label.setdefault(normalize_token(text), []).append(number)
        return self._ids_by_label.get(normalize_token(label), [])

    def check(self, question: Question, ids: list[int], limit: int) -> Failure | None:
        """Return why a model whose context is ``limit`` tokens, the reply included, cannot answer ``question``."""
        if len(ids) >= limit:
            return Failure(Reason.TOO_LONG, f"the prompt has {len(ids)} tokens, the context is {limit} with the reply")
        for label in question.labels:
            if not self.label_ids(label):
                return Failure(Reason.ENGINE_ERROR, f"label {label!r} is not a single token of this model")
        return None

    def _template(self, roles: tuple[str, ...], thinking: bool) -> list[str | int]:
        key = (roles, thinking)
        if key not in self._templates:
            messages = [{"role": role, "content": f"\ue000{place}\ue000"} for place, role in enumerate(roles)]
            # Thinking would take the place of the answer as the next token; other templates ignore the argument.
            rendered = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, enable_thinking=thinking
            )
            if [place[0] for place in _PLACES.finditer(rendered)] != [message["content"] for message in messages]:
                raise InvalidError("the model's chat template does not render each message once")
            longest_first = "|".join(map(re.escape, sorted(self._added, key=len, reverse=True)))
            parts: list[str] = re.split(f"({longest_first})", rendered) if longest_first else [rendered]
            self._templates[key] = [self._added.get(part, part) for part in parts if part]
        return self._templates[key]
