"""Merge: one rubric of several, without duplicates. The model is asked only about what may be worded in two ways."""

from __future__ import annotations

from dataclasses import replace

from rubricsvc.core.authoring import AuthoringTask
from rubricsvc.core.rubric import Rubric
from workers.authoring.author import Author, Draft, GenerationError
from workers.authoring.merging import UnmergeableError, described, groups_in, union
from workers.authoring.methods.shown import shown, shown_all
from workers.authoring.templates import read

TEMPLATE = "merge"
NO_RUBRICS = "no_rubrics"
UNMERGEABLE = "unmergeable"


async def merge(author: Author, task: AuthoringTask) -> Draft:
    """Return the rubric of all criteria of the parents, each once.

    Raises:
        GenerationError: The prompt has fewer than two rubrics, or they cannot be one.
    """
    parents = tuple(parent.ref for parent in task.parents)
    if len(parents) < 2:
        found = f"only {parents[0]}" if parents else "none"
        raise GenerationError(NO_RUBRICS, f"expected two or more rubrics of the prompt, found {found}")
    try:
        merged = union([parent.rubric for parent in task.parents])
    except UnmergeableError as error:
        raise GenerationError(UNMERGEABLE, str(error)) from error
    if not (left := merged.undecided()):
        return Draft(merged.rubric(), read(TEMPLATE), raw_reply="", redraws=0, repairs=0, parents=parents)
    numbered = {str(number): described(one.criterion) for number, one in enumerate(left, start=1)}
    values = {"prompt": shown("question", task.prompt.text), "criteria": shown_all("criterion", numbered)}

    def reader(text: str, _truncated: bool) -> Rubric:
        groups = groups_in(text, len(left))
        return merged.joined([[left[number - 1] for number in group] for group in groups]).rubric()

    draft = await author.write(TEMPLATE, values, reader=reader)
    return replace(draft, parents=parents)
