"""Trajectory: a trajectory is judged step by step, each time with everything before the step and nothing after it.

The question about a step is that of a readout or a written judge. The trajectory so far is in the completion's place
and only grows at its end: the prompt about step k begins with that about step k - 1 up to its criterion, so that a
prefix cache reads the trajectory once. `workers.scoring.completions` asks step after step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from rubricsvc.core.prompt import Prompt, Step
from rubricsvc.core.untrusted import CleanText, clean
from workers.judges import readout, written
from workers.judges.calls import JudgeTemplate, SharedPrompt, join_notes

VERSION = f"1, {readout.VERSION}, {written.VERSION}"
"""As in the other modes: raise it when a trajectory would be shown, or its verdicts aggregated, in another way."""

_FENCE_NAMES = {"assistant": "agent", "tool": "result"}  # of the fences, where they differ from the role


def prompts(
    template: JudgeTemplate, prompt: Prompt, segments: Mapping[str, Sequence[Step]]
) -> Iterator[tuple[str, SharedPrompt]]:
    """Yield each segment by name with the prompt up to and including it, whose note is on this segment alone."""
    entries: list[str] = []
    texts: list[str] = []
    for name, steps in segments.items():
        notes, fenced = [], []
        for message in chain.from_iterable(steps):
            named = f"[{message.name}]\n{message.text}" if message.role == "tool" and message.name else message.text
            text = clean(named)
            fenced.append(template.fenced(_FENCE_NAMES.get(message.role, message.role), text.text, answer=True))
            texts.append(text.text)
            notes.append(text.note)
        entries.append(template.fill("entry", {"id": name.capitalize(), "completion": "\n".join(fenced)}))
        note = join_notes(*notes)
        answer = CleanText("\n\n".join(entries), f"{name}: {note}" if note else "")
        yield name, template.shared(prompt, "\n\n".join(texts), answer)
