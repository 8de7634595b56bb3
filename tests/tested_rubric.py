"""A rubric with examples, and a scripted judge that reads: it looks for the words of each criterion."""

from typing import Any

from tests.rubric_writer import completion_in
from tests.scripted_server import ScriptedReply, labels

RUBRIC = """\
name: fridge
prompt: A vaccine fridge stood at 12 °C. Can the vaccines still be used?
criteria:
  - {key: wait, text: Says that the vaccines must not be used., weight: 5}
  - {key: who, text: Names the manufacturer as the one to call., weight: 3}
  - {key: away, text: Says that the vaccines must be thrown away., weight: -4}
  - {key: short, text: Has at most 30 words., check: {words: {min: 1, max: 30}}}
examples:
  - key: careful
    text: Mark the box. The vaccines must not be used. Call the manufacturer in the morning.
    verdicts: {wait: true, who: true, away: false, short: true}
    evidence: {who: Call the manufacturer}
    reward: {min: 0.9}
  - key: hasty
    text: Do not wait for anybody. The vaccines must be thrown away.
    verdicts: {wait: false, away: true}
    evidence: {away: must be thrown away}
    reward: {max: 0.2}
"""

WORDS = {"not be used": "must not be used", "manufacturer": "manufacturer", "thrown away": "must be thrown away"}


def reader(_number: int, request: dict[str, Any]) -> ScriptedReply:
    """Met if the completion has the words of the criterion."""
    criterion = request["messages"][-1]["content"].rpartition("</completion-")[2]
    wanted = next(words for named, words in WORDS.items() if named in criterion)
    return labels(Yes=0.97, No=0.02) if wanted in completion_in(request) else labels(No=0.97, Yes=0.02)
