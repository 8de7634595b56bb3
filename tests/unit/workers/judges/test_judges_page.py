"""Every sample of a reply in docs/judges.md has the outcome that stands beside it."""

import json
import math
import re
from collections.abc import Sequence

from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Binary, Criterion, Level, Numeric, Ordinal, Rubric, Scale
from rubricsvc.core.untrusted import clean
from rubricsvc.core.verdict import Verdict
from tests.judges_page import COMPLETION, rows, spans, with_verdicts
from tests.scripted_server import ScriptedReply
from workers.engines.base import Reply
from workers.engines.http.client import read_chat_completion
from workers.judges import plan
from workers.judges.calls import SharedPrompt

WRITTEN = Judge(name="w", model="m", mode="written", criteria_per_call=0)
SHOWN = SharedPrompt("", "", clean(COMPLETION).text, COMPLETION)


def judged(reply: str | ScriptedReply, judge: Judge = WRITTEN, scales: Sequence[Scale] = (Binary(),)) -> list[Verdict]:
    criteria = tuple(Criterion(key=f"k{n}", text=f"Criterion {n}.", scale=scale) for n, scale in enumerate(scales, 1))
    asking = plan(judge, Rubric(criteria=criteria))
    (call,) = asking.calls
    read = Reply(reply) if isinstance(reply, str) else read_chat_completion(reply.payload(), call.question)
    return asking.verdicts([asking.parse(call, read)], SHOWN)


def outcomes(verdicts: Sequence[Verdict]) -> list[str]:
    return [one.reason or ("cannot_tell" if one.value is None else f"{one.value:.3g}") for one in verdicts]


def test_samples_of_written_replies_have_their_outcomes() -> None:
    strict = WRITTEN.model_copy(update={"require_evidence": True})
    tables = [("reply about C1, ", WRITTEN, 1), ("reply with `require", strict, 1), ("reply about C1 and", WRITTEN, 2)]
    samples = [(one, *table[1:], spans(row[1])) for table in tables for row in rows(table[0]) for one in spans(row[0])]
    assert len(samples) > 100
    for sample, judge, count, expected in samples:
        verdicts = judged(with_verdicts(sample), judge, [Binary()] * count)
        assert outcomes(verdicts) == expected, sample
        for one in (verdict for verdict in verdicts if verdict.outcome == "failed"):
            assert one.detail and "pydantic" not in one.detail
            assert one.raw is not None and one.raw in with_verdicts(sample)


def scale_of(name: str) -> Scale:
    if name == "binary":
        return Binary()
    if bounds := re.fullmatch(r"(\d+) to (\d+)", name):
        return Numeric(low=float(bounds[1]), high=float(bounds[2]))
    labels = name.split(", ")
    return Ordinal(levels=tuple(Level(label=one, value=n / (len(labels) - 1)) for n, one in enumerate(labels)))


def test_samples_of_spellings_have_their_outcomes() -> None:
    table = rows("scale |")
    assert len(table) > 15
    for name, cell, expected in table:
        for value in spans(cell):
            (verdict,) = judged(with_verdicts(f'V{{"verdict":{value}}}'), WRITTEN, [scale_of(name)])
            assert outcomes([verdict]) == spans(expected), value
            assert ("another scale" in (verdict.detail or "")) == ("another scale" in expected), value


def test_samples_of_tokens_have_their_outcomes() -> None:
    for cell, expected in rows("top tokens"):
        for sample in spans(cell):
            tokens = {token: math.log(share) for token, share in json.loads(sample).items()}
            found = judged(ScriptedReply(logprobs=tokens), Judge(name="r", model="m"))
            assert outcomes(found) == spans(expected), sample


def test_samples_of_choices_have_their_outcomes() -> None:
    for cell, expected in rows("choice in"):
        for sample in spans(cell):
            choice = json.loads(re.sub('"([VW])"', lambda found: json.dumps(with_verdicts(found[1])), sample))
            assert outcomes(judged(ScriptedReply(extra={"choices": [choice]}))) == spans(expected), sample
