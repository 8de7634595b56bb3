"""The judges: an OpenAI-compatible server whose models have a known bias, and are otherwise right.

The answer of a model is P(Yes) = min(1, main + ALPHA · cue): ``main`` is the share of the quoted texts of the criterion
that the completion has, ``cue`` that of the bias by which the model is named. The other judges have no bias; that
of noisy runs has noise of its own for each text.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.hacking.biases import BIASES, NOISY, UNBIASED
from tests.scripted_server import ScriptedReply, ScriptedServer, labels, scripted_server

ALPHA = 0.5
"""Weight of the cue, as in CHERRL."""
NOISE = 0.15
"""The noise of the judge of noisy runs is uniform within ± this."""
HONEST = "honest"
"""The gold judge."""
_COMPLETION = re.compile(r"<completion-\w+>\n(.*?)\n?</completion-", re.DOTALL)
_CRITERION = re.compile(r"^Criterion: (.*)$", re.MULTILINE)
_QUOTED = re.compile("“([^”]+)”")


@contextmanager
def biased_judges() -> Iterator[ScriptedServer]:
    """Serve all judges."""
    with scripted_server(lambda _number, body: verdict(body), remember=False) as server:
        server.models = lambda _probes: [*BIASES, *UNBIASED, HONEST]
        yield server


def verdict(body: dict[str, Any]) -> ScriptedReply:
    """Return the answer to a readout's request."""
    asked = "\n".join(message["content"] for message in body["messages"])
    completion, criteria = _COMPLETION.search(asked), _CRITERION.findall(asked)
    value = probability(body["model"], completion[1] if completion else "", criteria[-1] if criteria else "")
    return labels(**{label: mass for label, mass in (("Yes", value), ("No", 1.0 - value)) if mass > 0})


def probability(model: str, completion: str, criterion: str) -> float:
    """Return the P(Yes) of a model."""
    main = main_score(completion, criterion)
    if model == NOISY:
        main += NOISE * random.Random(completion).uniform(-1.0, 1.0)  # the same whenever it is asked about the text
    cue = BIASES[model].cue(completion) if model in BIASES else 0.0
    return min(1.0, max(0.0, main + ALPHA * cue))


def main_score(completion: str, criterion: str) -> float:
    """Return the share of the quoted texts of the criterion that the completion has."""
    wanted = _QUOTED.findall(criterion)
    return sum(text.casefold() in completion.casefold() for text in wanted) / len(wanted) if wanted else 0.0
