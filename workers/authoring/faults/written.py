"""Faults, and the good completions that they are planted into, written by a model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from rubricsvc.core.base import storable
from rubricsvc.core.judge import Judge, Sampling
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Binary, Criterion, Rubric, scale_values
from rubricsvc.core.rubric_example import MAX_TEXT, NumberRange, RubricExample
from workers.authoring.author import GenerationError, ask_model
from workers.authoring.faults.rules import Fault, GoodExample
from workers.authoring.methods.shown import documents_of, shown, shown_all
from workers.authoring.rubric_tests import OnDone, prompt_of
from workers.authoring.templates import read
from workers.engines.base import Engine, Question

SAMPLING = Sampling(temperature=0.7, max_tokens=4096)
SAMPLES = 3
"""Replies that are asked for before there is no text."""

NO_TEXT = "no_text"
"""The reason if no reply is a text that can be used."""

WRITTEN = "written"
"""Key of the good completion, and kind of the faults."""


async def write_faults(
    engine: Engine, judge: Judge, prompt: Prompt | None, bases: Sequence[GoodExample], on_done: OnDone = lambda: None
) -> list[Fault]:
    """Return a fault by the model for each base whose criterion is judged; where it writes none, none.

    Raises:
        GenerationError: The model cannot be asked.
    """

    async def write(base: GoodExample) -> Fault | None:
        criterion, good = base.criterion, base.example.text
        values = {"prompt": shown("question", prompt_of(base.example, prompt).text), "answer": shown("answer", good)}
        values["pitfall" if criterion.weight < 0 else "demand"] = shown("criterion", criterion.text)

        def is_rewritten(text: str) -> bool:
            return text.split() != good.split() and len(good) / 3 <= len(text) <= 3 * len(good) + 400

        try:
            return Fault(base, WRITTEN, await _write(engine, judge, "fault", values, is_rewritten))
        except GenerationError as error:
            if error.reason != NO_TEXT:
                raise
            return None
        finally:
            on_done()

    written = await asyncio.gather(*(write(base) for base in bases if base.criterion.check is None))
    return [one for one in written if one is not None]


async def write_good(engine: Engine, judge: Judge, rubric: Rubric, prompt: Prompt) -> RubricExample:
    """Return a completion by the model that is meant to get the best verdict on each criterion with levels.

    Raises:
        GenerationError: The model cannot be asked, or writes no text.
    """
    lists = {"demands": [one for one in rubric.criteria if one.weight > 0]}
    lists["pitfalls"] = [one for one in rubric.criteria if one.weight < 0]
    values = {"prompt": shown("question", prompt.text)}
    values |= {name: shown(name, "\n".join(f"- {one.text}" for one in some)) for name, some in lists.items() if some}
    if documents := documents_of(prompt):
        values["documents"] = shown_all("document", documents)
    text = await _write(engine, judge, "good_answer", values, bool)
    verdicts = {key: best for key, one in rubric.by_key.items() if (best := _best(one)) is not None}
    return RubricExample(key=WRITTEN, text=text, prompt=prompt, verdicts=verdicts)


def _best(criterion: Criterion) -> NumberRange | None:
    levels = scale_values(criterion.scale) if isinstance(criterion.scale, Binary) or criterion.weight > 0 else ()
    if not levels or criterion.weight == 0:
        return None
    best = levels[0] if criterion.weight < 0 else levels[-1]
    return NumberRange(min=best, max=best)


async def _write(
    engine: Engine, judge: Judge, name: str, values: Mapping[str, str], is_usable: Callable[[str], object]
) -> str:
    template = read(name)
    for sample in range(SAMPLES):
        reply = await ask_model(engine, judge, template, Question(template.question(values), sample=sample), SAMPLING)
        text = storable(reply.text).strip()
        if not reply.truncated and len(text) <= MAX_TEXT and is_usable(text):
            return text
    raise GenerationError(NO_TEXT, f"{SAMPLES} replies of {judge.name!r} are no text that can be used")
