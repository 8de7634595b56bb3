"""Files that hold one noun: completions, labels (JSONL, YAML or CSV), a trajectory, judges, a passport."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from rubricsvc.core.base import Value
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Passport
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.verdict import Label
from rubricsvc.errors import InvalidError, RubricsvcError
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.record import PROMPT, Entry, GivenLabel, InvalidFileError, Location, file_error, prompt_fields
from rubricsvc.formats.writing import write_yaml

COMPLETION_FIELDS = (*PROMPT, "prompt_id", "completion", *Completion.model_fields)


class CompletionLine(Value):
    """A completion with its ``prompt`` or its ``prompt_id``."""

    completion: Completion
    prompt: Prompt | None = None
    prompt_id: int | str | None = None


def kind_of(first: Any) -> str | None:
    """Return ``completions`` or ``labels`` if a file with this first record holds them by themselves; else None."""
    if not isinstance(first, dict):
        return None
    if "annotator" in first and "completion_id" in first:
        return "labels"
    of_truthfulqa = str(first.get("prompt")).rstrip().endswith(("\nTrue:", "\nHelpful:"))
    if first.keys() & {"criteria", "rubrics", "rubric", "criterions"} or of_truthfulqa:
        return None
    parts = {"prompt", "prompt_id"}, {"completion", "text", "messages"}
    return "completions" if all(first.keys() & names for names in parts) else None


def read_all(file: InputFile) -> list[CompletionLine]:
    """Return the completions of a file, which may name no prompt."""
    lines = [line for line, _ in file.parse(partial(read_completion, needs_prompt=False))]
    file.errors.raise_if_any()
    if not lines:
        raise file_error(file.location, "no_records", "has no completions")
    return lines


def read_completion(entry: Entry, *, needs_prompt: bool = True) -> Iterator[tuple[CompletionLine, Location]]:
    """Yield the completion; what is wrong with it is added to the entry."""
    data = entry.mapping(COMPLETION_FIELDS)
    both = "prompt" in data and "prompt_id" in data
    if both or (needs_prompt and not data.keys() & {"prompt", "prompt_id"}):
        entry.add("missing", f"expected prompt or prompt_id, found {'both' if both else 'neither'}")
    texts = [name for name in ("completion", "text") if name in data]
    if len(texts) > 1 or not (texts or "messages" in data):
        message = f"expected completion (or text, or messages), found {' and '.join(texts) or 'none'}"
        entry.add("missing", message)
    completion = {name: data[name] for name in Completion.model_fields if name in data}
    if isinstance(step := data.get("step"), str) and step.isdecimal():
        completion["step"] = int(step)  # of a CSV, whose cells are texts
    if "completion" in data:
        completion["text"] = data["completion"]
    fields = {"completion": completion, "prompt_id": data.get("prompt_id")}
    if "prompt" in data:
        fields["prompt"] = prompt_fields(entry, data)
    nested: dict[str, dict[str, str]] = {
        "prompt": {"messages": "prompt"},
        "completion": {"text": texts[0] if texts else "text"},
    }
    yield entry.build(CompletionLine, fields, nested=nested), entry.location


def read_trajectory(file: InputFile) -> Completion:
    """Return the trajectory in a file: a list of messages, a mapping with ``messages``, or a message a line."""
    hint = 'expected JSON: a list of messages (role, content, tool_calls), {"messages": […]}, or one message a line'
    data = list(file.parse(lambda entry: [entry.data]))
    file.errors.raise_if_any()
    messages = data[0]["messages"] if len(data) == 1 and isinstance(data[0], dict) and "messages" in data[0] else data
    try:
        completion = Entry(data, file.location).build(Completion, {"messages": messages})
    except InvalidFileError as error:
        raise InvalidFileError(list(error.errors), hint=hint) from None
    if not any(message.role == "assistant" for message in completion.messages):
        raise InvalidError(f"{file.name} has no message with role: assistant, so there are no steps", hint=hint)
    return completion


class LabelLine(GivenLabel):
    """A label, and the completion and the rubric that it belongs to.

    A ``completion_id`` that is a number is an id in the database; a text is the one that the completion came with.
    With digests of prompt and completion, these name the completion; the ids may be those of another database.
    """

    completion_id: int | str
    prompt_id: int | str | None = None
    rubric: int | str
    prompt_digest: str | None = None
    completion_digest: str | None = None
    rubric_digest: str | None = None


_REFERENCES = tuple(name for name in LabelLine.model_fields if name not in GivenLabel.model_fields)
LABEL_FIELDS = (*_REFERENCES, "rubric_id", *Label.model_fields)


def read_label(entry: Entry) -> Iterator[tuple[LabelLine, Location]]:
    """Yield the label; what is wrong with it is added to the entry."""
    data = entry.mapping(LABEL_FIELDS)
    if entry.is_csv and "prompt_id" not in data and (id_ := data.get("completion_id", "")).isdecimal():
        data = data | {"completion_id": int(id_)}
    if "value" not in data:
        entry.add("missing", "is missing; write null if the person could not tell", ("value",))
    if ("prompt_digest" in data) != ("completion_digest" in data):
        missing = "completion_digest" if "prompt_digest" in data else "prompt_digest"
        entry.add("missing", "is missing: a completion is named by both digests", (missing,))
    if isinstance(completion_id := data.get("completion_id"), int | str):
        if isinstance(completion_id, str) and data.get("prompt_id") is None:
            entry.add("missing", "is missing beside a completion_id that is a text: an id of the file", ("prompt_id",))
        elif isinstance(completion_id, int) and "prompt_id" in data:
            message = f"{completion_id} is an id in the database; write it as a text, or remove prompt_id"
            entry.add("invalid", message, ("completion_id",))
    fields: dict[str, Any] = {name: data[name] for name in _REFERENCES if name in data}
    label = {name: data[name] for name in Label.model_fields if name in data}
    if isinstance(label.get("value"), str):
        fields["level"] = label.pop("value")
    elif isinstance(label.get("value"), bool):
        label["value"] = float(label["value"])
    yield entry.build(LabelLine, {**fields, "label": label}, nested={"label": {}}), entry.location


def load_judges(path: Path, find: Callable[[str], Judge]) -> list[Judge]:
    """Read the judges of a file, or of stdin for ``-``.

    The file has one judge, a list of them, or several YAML documents. A panel or cascade may name members that are
    earlier in the file, or stored: ``find`` returns a stored judge by name.
    """
    file = InputFile("judge.yaml", stream=sys.stdin.buffer, name="<stdin>") if str(path) == "-" else InputFile(path)
    judges: dict[str, Judge] = {}

    def read(entry: Entry) -> Iterator[Judge]:
        data = entry.data
        if isinstance(data, dict) and isinstance(data.get("members"), list):
            data = {**data, "members": list(data["members"])}
            for number, member in enumerate(data["members"]):
                if isinstance(member, str):
                    try:
                        judge = judges.get(member) or find(member)
                    except RubricsvcError as error:
                        entry.add("not_found", str(error), ("members", number))
                        return
                    data["members"][number] = judge.model_dump(mode="json", exclude_defaults=True)
        judge = entry.build(Judge, data)
        if judge.name in judges:
            entry.add("duplicate_key", f"the file has two judges named {judge.name!r}", ("name",))
        yield judge

    for judge in file.parse(read):
        judges[judge.name] = judge
    file.errors.raise_if_any("correct the file (docs/judges.md)")
    return list(judges.values())


def dump_judge(judge: Judge, stream: TextIO) -> None:
    """Write a judge so that `load_judges` reads an equal one, without the fields that have their defaults."""
    fields = judge.model_dump(mode="json", exclude_defaults=True)
    if not judge.members:
        fields = {"name": judge.name, "engine": judge.engine, "model": judge.model, "mode": judge.mode} | fields
    write_yaml(fields, stream)


def load_passport(path: Path) -> Passport:
    """Read the passport of a judge."""
    file = InputFile(path)
    passports = list(file.parse(lambda entry: [entry.build(Passport, entry.data)]))
    file.errors.raise_if_any("give the passport.json that was written with the judge's weights")
    if len(passports) != 1:
        raise file_error(file.location, "value_error", f"expected one passport, found {len(passports)}")
    return passports[0]
