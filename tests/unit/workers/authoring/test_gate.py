import asyncio

import pytest

from rubricsvc.core.generation import AuthoringTask, Contrast, GateFindings, Generation
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from tests.instant_engine import InstantEngine
from workers.authoring.gate import preference_agreement, try_rubric
from workers.engines.base import EngineRequest, Failure, Reply

JUDGE = Judge(name="judge", model="m")
RUBRIC = Rubric(criteria=(Criterion(key="cause", text="Names the cause."),))
REFERENCE = "Air scatters blue light. It scatters red light less. So the sky is blue."
TASK = AuthoringTask(Prompt.of("Why is the sky blue?", reference=REFERENCE), (REFERENCE,), other="Salt is washed in.")


class Reader(InstantEngine):
    """Says Yes with the probability of the first of ``rewards`` whose text is in the completion."""

    def __init__(self, **rewards: float) -> None:
        super().__init__()
        self.rewards = rewards

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        shown = request.shared.rpartition("<completion-")[2]
        yes = next((value for text, value in self.rewards.items() if text in shown), 0.0)
        return [
            Reply(label_mass=dict(zip(question.labels, (yes, 1 - yes), strict=True))) for question in request.questions
        ]


def findings(engine: InstantEngine, task: AuthoringTask = TASK, rubric: Rubric = RUBRIC) -> GateFindings:
    return asyncio.run(try_rubric(engine, JUDGE, Generation(), rubric, task))


def test_gate_passes_a_rubric_that_tells_completions_apart() -> None:
    found = findings(Reader(scatters=0.9))
    assert found.refused_by == () and found.preferences is None
    rewards = {name: one.reward for name, one in found.probes.items()}
    assert rewards.keys() == {"empty", "praise", "reference", "shuffled", "truncated", "off_topic"}
    assert rewards["reference"] == pytest.approx(0.9) and rewards["empty"] == rewards["off_topic"] == 0.0


def test_gate_refuses_a_rubric_that_pays_for_nothing() -> None:
    short = Criterion(key="short", text="Is short.", check=Check(name="words", args={"max": 200}))
    assert findings(Reader(scatters=0.9), rubric=Rubric(criteria=(*RUBRIC.criteria, short))).refused_by == ("empty",)


def test_gate_keeps_no_reasons_of_another_prompt() -> None:
    """Deleting that prompt would leave its quotes."""
    loops = Criterion(key="loops", text="Does not loop.", check=Check(name="loops"))
    found = findings(Reader(), rubric=Rubric(criteria=(*RUBRIC.criteria, loops)))
    assert found.probes["praise"].reasons and not found.probes["off_topic"].reasons


def test_gate_refuses_a_rubric_of_swapped_references() -> None:
    """The same rubric, tried with another prompt's reference in the place of its own."""
    swapped = AuthoringTask(TASK.prompt, ("Salt is washed in. It stays.",), other=REFERENCE)
    assert findings(Reader(scatters=0.9), swapped).refused_by == ("praise", "off_topic")


@pytest.mark.parametrize(("flipped", "refused"), [(False, ()), (True, ("preferences",))])
def test_gate_compares_with_labels(flipped: bool, refused: tuple[str, ...]) -> None:
    quality = {f"word{n}": n / 8 for n in range(8)}
    labelled = [
        (Completion(text=f"scatters {word}"), 1 - value if flipped else value) for word, value in quality.items()
    ]
    task = AuthoringTask(TASK.prompt, (REFERENCE,), other="Salt is washed in.", labelled=labelled)
    found = findings(Reader(**quality, scatters=0.9), task)
    assert found.refused_by == refused and found.preferences is not None
    assert (found.preferences.pairs, found.preferences.agreement) == (28, 0.0 if flipped else 1.0)


CONTRAST = Contrast((Completion(text="Air scatters it."),), (Completion(text="It mirrors the sea."),))


@pytest.mark.parametrize(("worse", "refused"), [(0.3, ()), (0.9, ("contrast",))])
def test_gate_refuses_a_rubric_that_does_not_prefer_the_better_completion(worse: float, refused: tuple[str]) -> None:
    task = AuthoringTask(TASK.prompt, own=CONTRAST.better[0], other="Salt is washed in.", contrast=CONTRAST)
    found = findings(Reader(scatters=0.9, mirrors=worse), task)
    assert found.refused_by == refused and found.probes.keys() == {"empty", "praise", "own", "worse", "off_topic"}
    referenced = AuthoringTask(TASK.prompt, (REFERENCE,), contrast=CONTRAST)
    found = findings(Reader(scatters=0.9, mirrors=worse), referenced)
    assert found.refused_by == refused and found.probes.keys() >= {"reference", "better", "worse"}


def test_preference_agreement_of_permuted_labels_is_chance() -> None:
    labels = [0.7, 0.1, 0.4, 0.9, 0.2, 0.8, 0.3, 0.6, 0.5, 0.0]
    found = preference_agreement([(n / 10, label) for n, label in enumerate(labels)])
    assert found is not None and found.low is not None and found.high is not None
    assert found.low < 0.5 < found.high
