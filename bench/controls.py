"""Controls for the generation of rubrics: swapped references and permuted labels, which the gate must refuse.

The author is scripted and honest: it writes down what it is shown. Its rubric says that each sentence of the references
must be in the answer (reference-guided); or each sentence that only better answers have, and that those that only worse
ones have must not (contrastive). So the rubric of a wrong reference, or of wrong labels, is a wrong rubric.

`FACTS` are six sentences on each of twelve questions; an answer is some of them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence

from rubricsvc.core.generation import AuthoringTask, Contrast, GateFindings, Generation
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from tests.instant_engine import InstantEngine
from workers.authoring.author import Author
from workers.authoring.gate import try_rubric
from workers.authoring.methods import write_rubric
from workers.engines.base import Engine, EngineRequest, Failure, Reply

FACTS: dict[str, tuple[str, ...]] = {
    "Why is the sky blue?": (
        "Air scatters short waves of light more than long ones.",
        "Blue light has a shorter wavelength than red light.",
        "Sunlight contains all colours.",
        "Violet light is absorbed high in the atmosphere.",
        "The human eye is less sensitive to violet.",
        "At sunset the light takes a longer path through the air.",
    ),
    "Why is the sea salty?": (
        "Rivers wash minerals out of rocks.",
        "Sodium and chloride make up most of the salt.",
        "Water evaporates and leaves the salt behind.",
        "Hot vents on the ocean floor release minerals.",
        "The salt content is about 3.5 percent.",
        "The Dead Sea is saltier because it has no outflow.",
    ),
    "How does bread rise?": (
        "Yeast feeds on the sugar in the flour.",
        "Yeast gives off carbon dioxide.",
        "Gluten traps the bubbles of gas in the dough.",
        "Kneading makes the gluten stronger.",
        "Warm dough rises faster than cold dough.",
        "The heat of the oven kills the yeast.",
    ),
    "How do vaccines work?": (
        "A vaccine shows the immune system a harmless part of a germ.",
        "The body makes antibodies against it.",
        "Memory cells remember the germ for years.",
        "A second dose makes the protection stronger.",
        "Some vaccines contain a weakened virus.",
        "Fever after the injection is usually mild.",
    ),
    "Why do leaves turn red in autumn?": (
        "Trees stop making chlorophyll when the days grow short.",
        "Yellow pigments were in the leaf all summer.",
        "Red pigments are made from sugar left in the leaf.",
        "Cold and sunny days make the red brighter.",
        "A layer of cork closes the stem of the leaf.",
        "The tree saves water by dropping its leaves.",
    ),
    "How does a refrigerator cool?": (
        "A liquid evaporates in the pipes inside and takes up heat.",
        "The compressor squeezes the vapour.",
        "The hot vapour gives its heat to the kitchen at the back.",
        "A narrow valve lets the pressure drop.",
        "The thermostat switches the motor on and off.",
        "Ice on the pipes makes cooling less efficient.",
    ),
    "Why do the tides change?": (
        "The gravity of the moon pulls on the oceans.",
        "The earth turns under two bulges of water.",
        "High water comes about every twelve and a half hours.",
        "The sun makes the tide stronger at full moon.",
        "The shape of the coast changes the height of the tide.",
        "Small lakes have hardly any tide.",
    ),
    "How do bees make honey?": (
        "Bees collect nectar from flowers.",
        "They carry it in a special stomach.",
        "Enzymes split the sugar of the nectar.",
        "Bees fan their wings to dry the nectar.",
        "They close the full cells with wax.",
        "A hive needs honey to live through the winter.",
    ),
    "What causes an earthquake?": (
        "Plates of the crust move against each other.",
        "The rock bends and stores energy until it breaks.",
        "The break happens along a fault.",
        "Waves carry the energy away from the focus.",
        "A seismograph records the shaking.",
        "Smaller aftershocks follow in the next days.",
    ),
    "How does a battery give current?": (
        "A chemical reaction at one pole releases electrons.",
        "Electrons flow through the wire to the other pole.",
        "Ions move through the electrolyte.",
        "The voltage depends on the two metals.",
        "A charger drives the reaction backwards.",
        "An old cell has a higher internal resistance.",
    ),
    "Why does iron rust?": (
        "Iron reacts with oxygen and water.",
        "Rust is a hydrated iron oxide.",
        "Salt makes rusting faster.",
        "Paint keeps the water away from the metal.",
        "Zinc corrodes first and protects the steel.",
        "Rust flakes off and exposes fresh metal.",
    ),
    "How do birds find their way?": (
        "Many birds sense the magnetic field of the earth.",
        "They use the position of the sun as a compass.",
        "At night they look at the stars.",
        "Young cranes learn the route from older ones.",
        "Pigeons remember rivers and roads.",
        "Smell helps sea birds to find their island.",
    ),
}
GENERATION = Generation()


class ScriptedAuthor(InstantEngine):
    """Replies with `written`."""

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        return [Reply(written(question.text)) for question in request.questions]


def written(question: str) -> str:
    """A criterion for each sentence: of the references, or by how many more of the better answers have it."""
    weights = {sentence: 5.0 for answer in answers_in(question, "reference") for sentence in sentences(answer)}
    if "Worse answers:" in question:
        better, _, worse = question.partition("Worse answers:")
        sides = [answers_in(side, "answer") for side in (better, worse)]
        for sign, side in zip((1, -1), sides, strict=True):
            for sentence in (sentence for answer in side for sentence in sentences(answer)):
                weights[sentence] = weights.get(sentence, 0.0) + sign * 6 / len(side)
        if max(weights.values()) <= 0:
            weights[sentences(sides[0][0])[0]] = 1.0
    criteria = [
        {"text": f"Says that {sentence[0].lower()}{sentence[1:]}", "weight": round(weight, 3)}
        for sentence, weight in weights.items()
        if round(weight, 3)
    ]
    return json.dumps({"criteria": criteria})


def answers_in(text: str, fence: str) -> list[str]:
    """The texts in the fences of this name."""
    return [body for _, body in re.findall(rf"<{fence}-(\w+)>\n\[[^\]]*\]\n(.*?)\n</{fence}-\1>", text, re.DOTALL)]


def sentences(text: str) -> list[str]:
    """The sentences of an answer."""
    return [one.strip() for one in re.split(r"(?<=[.])\s+", text) if one.strip()]


class WordJudge(InstantEngine):
    """A judge that reads: yes if at least two thirds of a criterion's longer words are in the completion."""

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        shown = words(request.shared.rpartition("<completion-")[2])
        replies: list[Reply | Failure] = []
        for question in request.questions:
            asked = words(question.text.partition("Says that")[2].partition("\n")[0])
            yes = 0.97 if asked and len(asked & shown) >= 2 / 3 * len(asked) else 0.03
            replies.append(Reply(label_mass=dict(zip(question.labels, (yes, 1 - yes), strict=True))))
        return replies


def words(text: str) -> set[str]:
    """The words of five letters and more."""
    return set(re.findall(r"\w{5,}", text.casefold()))


def reference_tasks() -> list[AuthoringTask]:
    """For each question its first four facts as reference, its last four as an answer, and another one's reference."""
    references = {question: " ".join(facts[:4]) for question, facts in FACTS.items()}
    others = [*references.values()][1:] + [*references.values()][:1]
    return [
        AuthoringTask(Prompt.of(question, reference=reference), (reference,), other=other)
        for (question, reference), other in zip(references.items(), others, strict=True)
    ]


def swapped(tasks: Sequence[AuthoringTask], by: int = 5) -> list[AuthoringTask]:
    """The tasks with the reference of another one, that is not the other answer of the gate."""
    return [task._replace(references=tasks[(n + by) % len(tasks)].references) for n, task in enumerate(tasks)]


def labelled_tasks(*, permuted: bool) -> list[AuthoringTask]:
    """For each question 24 answers with a label, the share of facts in them; every other one is for the gate alone."""
    tasks = []
    others = [" ".join(facts) for facts in FACTS.values()]
    for number, (question, facts) in enumerate(FACTS.items()):
        rng = random.Random(number)
        counts = [6, 5, 5, 5, 5, 5, 4, 4, 4, 4, 4, 3, 3, 3, 3, 2, 2, 2, 2, 2, 1, 1, 1, 0]
        texts = dict.fromkeys(" ".join(rng.sample(facts, count)) or "I do not know." for count in counts * 9)
        answers = [Completion(text=text) for text in list(texts)[: len(counts)]]
        labels = [sum(fact in one.text for fact in facts) / len(facts) for one in answers]
        if permuted:
            rng.shuffle(labels)
        ranked = sorted(zip(answers, labels, strict=True), key=lambda one: -one[1])
        shown, kept = ranked[::2], ranked[1::2]
        contrast = Contrast(tuple(one for one, _ in shown[:3]), tuple(one for one, _ in shown[:-4:-1]))
        other = others[(number + 1) % len(others)]
        tasks.append(AuthoringTask(Prompt.of(question), (), contrast.better[0], other, kept, contrast))
    return tasks


async def gate(
    method: str, shown: Sequence[AuthoringTask], tried: Sequence[AuthoringTask], engine: Engine, judge: Judge
) -> list[GateFindings]:
    """The findings on rubrics that are written from ``shown`` and tried on ``tried``."""
    generation = GENERATION.model_copy(update={"method": method})
    author = Author(ScriptedAuthor(), Judge(name="writer", model="scripted"), generation)
    drafts = [await write_rubric(author, task) for task in shown]
    return [
        await try_rubric(engine, judge, generation, draft.rubric, task)
        for draft, task in zip(drafts, tried, strict=True)
    ]
