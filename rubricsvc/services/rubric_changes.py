"""What changed from one rubric to another, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from rubricsvc.core import strict_json
from rubricsvc.core.rubric import Binary, Check, Criterion, Numeric, Ordinal, Rubric, RubricExample
from rubricsvc.errors import cut
from rubricsvc.services.comparing import match_criteria

MAX_TEXT = 400
"""Characters of a text in words."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. ``criterion`` is the key (the new one, unless it was removed); None for the rubric itself.

    ``field`` is the changed field of a criterion that both rubrics have, or of the rubric; ``text`` says it in words.
    """

    kind: Literal["added", "removed", "changed"]
    criterion: str | None
    field: str | None
    old: Any
    new: Any
    text: str

    def __str__(self) -> str:
        return self.text if self.criterion is None else f"{self.criterion}: {self.text}"


def changes(old: Rubric, new: Rubric) -> list[Change]:
    """Return the differences: of the rubric, then of the criteria in their new order, then the removed criteria.

    Criteria are matched by key and wording, else by wording, else by key. The list is empty only for equal content.
    """
    found = list(_of_fields(old, new, None, skip="criteria"))
    pairs = match_criteria(old, new)
    before = {after.key: one for one, after in pairs}
    for criterion in new.criteria:
        if criterion.key in before:
            found += _of_criterion(old, new, before[criterion.key], criterion)
        else:
            text = f"added: {_described(criterion)}"
            found.append(Change("added", criterion.key, None, None, criterion.model_dump(mode="json"), text))
    kept = {one.key for one in before.values()}
    found += (
        Change("removed", one.key, None, one.model_dump(mode="json"), None, f"removed: {_described(one)}")
        for one in old.criteria
        if one.key not in kept
    )
    order = [before[one.key].key for one in new.criteria if one.key in before]
    if [one.key for one in old.criteria if one.key in kept] != order:
        keys, new_keys = ([one.key for one in rubric.criteria] for rubric in (old, new))
        found.append(Change("changed", None, "criteria", keys, new_keys, "the criteria are in another order"))
    return found


def _of_criterion(a: Rubric, b: Rubric, old: Criterion, new: Criterion) -> Iterator[Change]:
    for change in _of_fields(old, new, new.key):
        if change.field != "weight":
            yield change
            continue
        shares = " → ".join(f"{_share(rubric, one):.0%}" for rubric, one in ((a, old), (b, new)))
        kind = ""
        if (old.weight < 0) != (new.weight < 0):
            kind = ", now a pitfall" if new.weight < 0 else ", no longer a pitfall"
        text = f"weight {old.weight:g} → {new.weight:g}{kind} (share of all weights {shares})"
        yield Change("changed", new.key, "weight", old.weight, new.weight, text)


def _share(rubric: Rubric, criterion: Criterion) -> float:
    return abs(criterion.weight) / sum(abs(one.weight) for one in rubric.criteria)


def _of_fields(old: Rubric | Criterion, new: Rubric | Criterion, key: str | None, skip: str = "") -> Iterator[Change]:
    before, after = (one.model_dump(mode="json") for one in (old, new))
    for name in type(new).model_fields:
        if name != skip and before[name] != after[name]:
            words = _in_words(name, getattr(old, name), getattr(new, name))
            yield Change("changed", key, name, before[name], after[name], words)


def _in_words(name: str, old: Any, new: Any) -> str:
    match name:
        case "text":
            return f"reworded, “{_cut(old)}” → “{_cut(new)}”"
        case "key":
            return f"renamed, it was {old!r}"
        case "examples":
            return _of_examples({one.key: one for one in old or ()}, {one.key: one for one in new or ()})
        case "required":
            return "now required (a veto)" if new else "no longer required"
        case "check":
            judge = "a judge"
            return f"decided by {_value(old) if old else judge} → {_value(new) if new else judge}"
    return f"{name.replace('_', ' ')} {_value(old)} → {_value(new)}"


def _of_examples(old: dict[str, RubricExample], new: dict[str, RubricExample]) -> str:
    parts = {
        "added": [key for key in new if key not in old],
        "removed": [key for key in old if key not in new],
        "changed": [key for key, one in new.items() if key in old and one != old[key]],
    }
    named = (f"{word} {_cut(', '.join(keys))}" for word, keys in parts.items() if keys)
    return f"examples: {'; '.join(named) or 'in another order'}"


def _value(value: Any) -> str:
    match value:
        case Binary():
            words = "met or not met"
        case Numeric(low=low, high=high):
            words = f"{low:g} to {high:g}"
        case Ordinal(levels=levels):
            words = "levels " + ", ".join(f"{_cut(level.label)} ({level.value:g})" for level in levels)
        case Check(name=name, args=args):
            words = f"the check {name} {_cut(strict_json.dump(args))}"
        case None | ():
            words = "none"
        case str():
            words = f"“{_cut(value)}”"
        case float():
            words = f"{value:g}"
        case _:
            plain = TypeAdapter(type(value)).dump_python(value, mode="json")
            words = _cut(strict_json.dump(plain))
    return words


def _described(criterion: Criterion) -> str:
    kind = "pitfall, " if criterion.weight < 0 else ""
    decided = f", {_value(criterion.check)}" if criterion.check else ""
    required = ", required" if criterion.required else ""
    return f"“{_cut(criterion.text)}” ({kind}weight {criterion.weight:g}{decided}{required})"


def _cut(text: str) -> str:
    return cut(" ".join(text.split()), MAX_TEXT)
