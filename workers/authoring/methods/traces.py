"""Traces: a rubric of what agents do well and badly in their trajectories."""

from __future__ import annotations

from collections.abc import Sequence

from rubricsvc.core.authoring import AuthoringTask, Trajectory
from rubricsvc.core.trajectory import steps_of
from workers.authoring.author import Author, Draft, GenerationError
from workers.authoring.methods.shown import documents_of, shown, shown_all

NO_TRAJECTORY = "no_trajectory"
MESSAGE_CHARS = 3000
"""Characters of a message that are shown; of a longer one the beginning and the end."""


async def traces(author: Author, task: AuthoringTask) -> Draft:
    """Return a rubric that is written from trajectories.

    Raises:
        GenerationError: No completion of the prompt is a trajectory with tool calls.
    """
    if not task.trajectories:
        raise GenerationError(NO_TRAJECTORY, "no completion of the prompt has messages with tool calls")
    documents = documents_of(task.prompt)
    trajectories = named(task.trajectories)
    values = {
        "prompt": shown("question", task.prompt.text),
        "trajectories": shown_all("trajectory", trajectories),
    }
    scores = {name: one.score for name, one in zip(trajectories, task.trajectories, strict=True)}
    if known := [f"{name}: {score:.3g}" for name, score in scores.items() if score is not None]:
        values["scores"] = "\n".join(known)
    if documents:
        values["documents"] = shown_all("document", documents)
    return await author.write("traces", values, documents, trajectories)


def named(trajectories: Sequence[Trajectory]) -> dict[str, str]:
    """Return the texts of the trajectories by name, by steps; the middle of long messages is left out, with a note."""
    return {f"trajectory {number}": _text(one) for number, one in enumerate(trajectories, start=1)}


def _text(trajectory: Trajectory) -> str:
    steps = enumerate(steps_of(trajectory.completion), start=1)
    return "\n\n".join(
        f"step {number}, {message.role}:\n{_shortened(message.text)}" for number, step in steps for message in step
    )


def _shortened(text: str) -> str:
    omitted = len(text) - MESSAGE_CHARS
    if omitted <= 0:
        return text
    half = MESSAGE_CHARS // 2
    return f"{text[:half]}\n[{omitted} characters are left out here]\n{text[-half:]}"
