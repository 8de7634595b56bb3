"""Prompts and completions, and the steps of those that are trajectories."""

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, ValidationInfo, model_validator

from rubricsvc.core.base import Content, Name, Value
from rubricsvc.core.fingerprint import canonical_json, digest

Role = Literal["system", "developer", "user", "assistant", "tool"]

# besides the fields of a message
_READ = frozenset(("reasoning", "reasoning_content", "thinking", "function_call", "refusal", "audio"))


def _split_parts(content: Any, ignored: set[str]) -> tuple[Any, list[Any]]:
    """Return the text of content in parts, and its reasoning. What is not text leaves its type and a digest."""
    texts, thoughts = list[str](), list[Any]()
    for part in content if isinstance(content, list) else ():
        match part:
            case str(text) | {"type": "text" | "input_text" | "output_text", "text": str(text)}:
                texts.append(text)
            case {"type": "refusal", "refusal": str(text)} | {"type": "summary_text", "text": str(text)}:
                texts.append(text)
            case (
                {"type": "thinking", "thinking": thought}
                | {"type": "reasoning", "text": thought}
                | {"type": "reasoning", "summary": [*thought]}
            ):
                thoughts.append(_split_parts(thought, ignored)[0])
            case {"type": str(kind)} if kind not in ("text", "input_text", "output_text", "refusal"):
                plain = json.dumps(part, sort_keys=True, default=lambda value: type(value).__name__)
                texts.append(f"[{kind} {digest(plain)[:8]}]")
                ignored.add(f"{kind} in content")
            case _:
                return content, []
    return ("".join(texts) if isinstance(content, list) else content), thoughts


def ignored_note(names: set[str]) -> str:
    """Return the note on fields of messages that are not read; empty if there are none."""
    return f"ignored in messages: {', '.join(sorted(names))}" if names else ""


class ToolCall(Value):
    """A tool call of a message. ``arguments`` is the model's text, usually a JSON object.

    OpenAI's ``{id, function: {name, arguments}}`` and ``{id, custom: {name, input}}`` are accepted too.
    """

    model_config = ConfigDict(extra="ignore")

    name: str = Field(description="Name of the tool.")
    arguments: str = Field("", description="The model's text, usually a JSON object.")
    id: str | None = Field(None, description="Id of the call.")

    @model_validator(mode="before")
    @classmethod
    def _of_openai(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        if isinstance(call := given.get("function") or given.get("custom"), dict):
            given = {**given, "arguments": call.get("input", ""), **call}
        if isinstance(arguments := given.get("arguments", ""), dict | list | None):
            text = "" if arguments is None else canonical_json(arguments).decode("utf-8", "surrogatepass")
            given = {**given, "arguments": text}
        return {**given, "id": str(given["id"])} if type(given.get("id")) is int else given

    @cached_property
    def text(self) -> str:
        """The call as text. Arguments that are JSON are normalised, so that equal calls have equal texts."""
        try:
            arguments = json.dumps(json.loads(self.arguments or "{}"), ensure_ascii=False, sort_keys=True)
        except (ValueError, RecursionError):
            arguments = self.arguments
        return f"{self.name}({arguments})"


class Message(Value):
    """One chat message. ``tool_calls`` belong to an assistant, ``tool_call_id`` to the tool that answers one.

    Every shape of OpenAI and TRL is accepted: null content beside calls, a refusal or reasoning; content in parts; JSON
    from tools. Other fields are ignored; validation adds their names to its ``context``, if that is a set.
    """

    model_config = ConfigDict(extra="ignore")

    role: Role = Field(description="Role of the message.")
    content: str = Field(description="Text of the message.")
    name: str | None = Field(None, description="Name of the speaker or tool.")
    tool_call_id: str | None = Field(None, description="Id of the call that a tool answers.")
    tool_calls: tuple[ToolCall, ...] | None = Field(None, description="Tool calls of an assistant.")
    reasoning: str | None = Field(None, description="Reasoning before the content; not shown to judges.")

    @model_validator(mode="before")
    @classmethod
    def _of_openai(cls, given: Any, info: ValidationInfo) -> Any:
        if not isinstance(given, dict):
            return given
        read = {name: value for name, value in given.items() if name in cls.model_fields and name != "reasoning"}
        ignored = info.context if isinstance(info.context, set) else set()
        ignored |= {name for name in given.keys() - read.keys() - _READ if given[name] not in (None, [], {})}
        content, thoughts = _split_parts(given.get("content"), ignored)
        thoughts += [_split_parts(given.get(key), ignored)[0] for key in ("reasoning", "reasoning_content", "thinking")]
        if reasoning := "\n".join(dict.fromkeys(one for one in thoughts if isinstance(one, str) and one)):
            read["reasoning"] = reasoning
        call = given.get("function_call")
        if isinstance(calls := [call] if call else given.get("tool_calls"), list):
            read["tool_calls"] = tuple(calls)  # strict validation of Python values takes no list
        if given.get("role") in ("tool", "function"):
            read["role"] = "tool"
            if not isinstance(content, str | None):
                content = json.dumps(content, ensure_ascii=False, sort_keys=True, default=str)
            content = content or ""
        if not content and isinstance(content, str | None):
            spoken = audio.get("transcript") if isinstance(audio := given.get("audio"), dict) else None
            other = next((one for one in (given.get("refusal"), spoken) if one and isinstance(one, str)), None)
            content = other or ("" if calls or reasoning else content)
        read |= {"tool_call_id": str(id_)} if type(id_ := given.get("tool_call_id")) is int else {}
        return read if content is None else {**read, "content": content}

    @property
    def text(self) -> str:
        """The content, followed by the tool calls."""
        calls = [f"[calls {call.text}]" for call in self.tool_calls or ()]
        return "\n".join(filter(None, (self.content, *calls))) if calls else self.content

    @property
    def openai(self) -> dict[str, Any]:
        """The message in the shape of OpenAI's API."""
        data = self.model_dump(mode="json", exclude_none=True)
        if self.reasoning:
            data["reasoning_content"] = data.pop("reasoning")  # as chat templates read it
        if self.tool_calls:
            data["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        return data


class Document(Value):
    """A text that belongs to a prompt; completions may cite it by its id."""

    id: str = Field(description="Id by which completions cite it.")
    text: str = Field(description="Text of the document.")
    title: str = Field("", description="Title of the document.")


class Prompt(Content):
    """Chat messages for the policy, with an optional reference answer and documents.

    ``item`` is the data row that the prompt was made from; graders refer to its fields (see `core.templates`).
    """

    messages: tuple[Message, ...] = Field(min_length=1, description="Chat messages for the policy.")
    reference: str | None = Field(None, description="Reference answer; shown to the judge.")
    documents: tuple[Document, ...] = Field((), description="Documents that completions may cite.")
    tags: tuple[str, ...] = Field((), description="Tags.")
    item: dict[str, JsonValue] | None = Field(None, description="Row of data that it was made from, for graders.")

    @classmethod
    def of(cls, text: str, **fields: object) -> Self:
        """Return a prompt of one user message."""
        return cls.model_validate({"messages": [{"role": "user", "content": text}], **fields})

    @cached_property
    def text(self) -> str:
        """The conversation as one text; roles are named unless it is a single user message."""
        if len(self.messages) == 1 and self.messages[0].role == "user":
            return self.messages[0].content
        return "\n\n".join(f"[{message.role}]\n{message.text}" for message in self.messages)

    @property
    def with_documents(self) -> Self:
        """The prompt whose first user message begins with the documents, each under its ``[id]``.

        Without a user message it is the first message. A prompt without documents is itself.
        """
        if not self.documents:
            return self
        place = next((i for i, message in enumerate(self.messages) if message.role == "user"), 0)
        texts = [f"[{document.id}] {document.text}" for document in self.documents]
        question = self.messages[place]
        shown = question.model_copy(update={"content": "\n\n".join([*texts, question.content])})
        messages = (*self.messages[:place], shown, *self.messages[place + 1 :])
        return self.model_copy(update={"messages": messages})


class Completion(Content):
    """One answer or a whole trajectory, with the policy that produced it.

    Judges read ``text``. Where only ``messages`` (a trajectory) are given, it is the last assistant message, which must
    be there. It may be empty. A text, a message and a list of messages are accepted too.
    """

    text: str = Field("", description="What judges read; by default the last assistant message of the messages.")
    messages: tuple[Message, ...] = Field((), description="Whole trajectory, if there is one.")
    policy: Name = Field("", description="Name of the model that wrote it.")
    step: int | None = Field(None, description="Training step of the policy.")
    sampling: dict[str, JsonValue] = Field(default_factory=dict, description="Sampling parameters and other data.")
    id: str | None = Field(None, description="Id in its source.")

    @model_validator(mode="before")
    @classmethod
    def _of_messages(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"text": given}
        if isinstance(given, list) or (isinstance(given, dict) and "role" in given):
            given = {"messages": given if isinstance(given, list) else [given]}
        messages = given.get("messages") if isinstance(given, dict) else None
        return {**given, "messages": tuple(messages)} if isinstance(messages, list) else given  # see `Message`

    @model_validator(mode="after")
    def _text_of_messages(self) -> Self:
        if "text" not in self.model_fields_set and "messages" in self.model_fields_set:
            contents = [message.content for message in self.messages if message.role == "assistant"]
            if not contents:
                raise ValueError("no message of the assistant, and no text; the policy's text has the role assistant")
            self.__dict__["text"] = contents[-1]  # frozen, but still being constructed
        return self

    @property
    def full_text(self) -> str:
        """The whole trajectory as one text, or ``text`` without a trajectory."""
        turns = [f"[{message.role}]\n{message.text}" for message in self.messages]
        return "\n\n".join(turns) if turns else self.text


Step = tuple[Message, ...]
"""A message of the assistant with those before the next one: results of tools, messages of a user."""


def steps_of(completion: Completion) -> list[Step]:
    """Return the steps in order; a completion without messages is one step.

    The messages before the first one of the assistant belong to the first step.
    """
    if not completion.messages:
        return [(Message(role="assistant", content=completion.text),)]
    starts = [n for n, message in enumerate(completion.messages) if message.role == "assistant"]
    return [completion.messages[start:end] for start, end in pairwise([0, *starts[1:], len(completion.messages)])]


def tool_results(messages: Sequence[Message]) -> Iterator[tuple[ToolCall | None, Message]]:
    """Yield the results of tools with their calls, by the id of the call, else in the order of the calls."""
    pending: list[ToolCall] = []
    for message in messages:
        if message.role == "assistant":
            pending = list(message.tool_calls or ())
        elif message.role == "tool":
            named = (call for call in pending if call.id == message.tool_call_id)
            call = next(named if message.tool_call_id else iter(pending), None)
            if call:
                pending.remove(call)
            yield call, message


def is_error(result: object) -> bool:
    """Return whether the result of a tool, as data, is a JSON object with an ``error``."""
    return isinstance(result, dict) and bool(result.get("error"))
