"""Chat conversations as token ids, in which data can never become a control token; and labels as sets of token ids."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError
from workers.engines.base import Failure, Question, normalize_token

_PLACES = re.compile("\ue000([0-9]+)\ue000")


class Conversation:
    """What a model's tokenizer and chat template make of a system text and the turns that follow.

    The template is rendered once around marks. Its control tokens become ids; the plain stretches between them get
    the data in one pass and are tokenised with control tokens switched off, so that ``<|im_end|>`` in a completion is
    ten characters of text. For text without control tokens the ids are those of ``apply_chat_template``.

    Raises:
        InvalidError: the tokenizer has no chat template, or one that does not keep the texts as they are, or cannot
            switch control tokens off.
    """

    def __init__(self, tokenizer: Any) -> None:
        if not tokenizer.chat_template:
            raise InvalidError("the model's tokenizer has no chat template; a judge needs an instruction-tuned model")
        self.tokenizer = tokenizer
        self._added = {token.content: number for number, token in tokenizer.added_tokens_decoder.items()}
        special = next((token for token in self._added if token in tokenizer.all_special_tokens), None)
        if special and self._added[special] in self._tokenize([special])[special]:
            raise InvalidError("this tokenizer reads control tokens out of data; use a model with a fast tokenizer")
        self._skeletons: dict[tuple[bool, int, bool], list[str | int]] = {}

    def encode(self, system: str, conversations: list[tuple[str, ...]], *, thinking: bool = False) -> list[list[int]]:
        """The ids of each conversation, up to where the assistant's reply begins. No system turn for an empty text.

        A conversation's turns are the user's and the assistant's by turns, the user's first and last.
        """
        filled = [
            [part if isinstance(part, int) else _fill(part, (system, *turns)) for part in skeleton]
            for turns in conversations
            for skeleton in (self._skeleton(bool(system), len(turns), thinking),)
        ]
        ids = self._tokenize({part for parts in filled for part in parts if isinstance(part, str)})
        return [[i for part in parts for i in ([part] if isinstance(part, int) else ids[part])] for parts in filled]

    def decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def spelling(self, token: int) -> str:
        """What one token reads, a control token too."""
        return str(self.tokenizer.decode([token]))

    def label_ids(self, label: str) -> list[int]:
        """Every token that spells ``label``, as `spelled` has it."""
        return self._spellings.get(normalize_token(label), [])

    def refusal(self, question: Question, row: list[int], limit: int) -> Failure | None:
        """Why ``question``, whose conversation is ``row``, cannot be asked of a model that reads ``limit`` tokens."""
        if len(row) >= limit:
            detail = f"{len(row)} tokens, and one of reply, are over the context of {limit}"
            return Failure(Reason.TOO_LONG, detail)
        for label in question.labels:
            if not self.label_ids(label):
                return Failure(Reason.ENGINE_ERROR, f"label {label!r} is not one token of this model; take another")
        return None

    @cached_property
    def _spellings(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, text in enumerate(self.tokenizer.batch_decode([[i] for i in range(len(self.tokenizer))])):
            found.setdefault(normalize_token(text), []).append(number)
        return found

    def _skeleton(self, with_system: bool, turns: int, thinking: bool) -> list[str | int]:
        key = (with_system, turns, thinking)
        if key not in self._skeletons:
            places = list(range(0 if with_system else 1, turns + 1))
            # Thinking first would move the answer away from the next token; templates without it ignore the argument.
            rendered = self.tokenizer.apply_chat_template(
                [{"role": _role(place), "content": f"\ue000{place}\ue000"} for place in places],
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=thinking,
            )
            if [int(place) for place in _PLACES.findall(rendered)] != places:
                raise InvalidError("the model's chat template does not show the system and user texts once each")
            self._skeletons[key] = [self._added.get(part, part) for part in self._split(rendered) if part]
        return self._skeletons[key]

    def _split(self, rendered: str) -> list[str]:
        longest_first = sorted(self._added, key=len, reverse=True)
        return re.split(f"({'|'.join(map(re.escape, longest_first))})", rendered) if self._added else [rendered]

    def _tokenize(self, texts: set[str] | list[str]) -> dict[str, list[int]]:
        if not texts:
            return {}
        batch = list(texts)
        encoded = self.tokenizer(batch, add_special_tokens=False, split_special_tokens=True)
        return dict(zip(batch, encoded["input_ids"], strict=True))


def _role(place: int) -> str:
    return ("assistant", "user")[place % 2] if place else "system"


def _fill(part: str, texts: tuple[str, ...]) -> str:
    return _PLACES.sub(lambda place: texts[int(place[1])], part)
