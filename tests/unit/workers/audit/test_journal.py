"""The file from which an interrupted audit resumes."""

from __future__ import annotations

from pathlib import Path

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Evidence, Verdict
from workers.audit.runner import open_journal, question_key

RUBRIC = Rubric(criteria=(Criterion(key="a", text="Says a."),))
JUDGE = Judge(name="j", model="m")
VERDICTS = [
    [Verdict.scored("a", 0.5, rationale="Grün \ud83d", evidence=(Evidence(quote="x"),))],
    [Verdict.abstained("a")],
]


def key(text: str = "x", judge: Judge = JUDGE, prompt: str = "Why?") -> str:
    return question_key(judge, RUBRIC, Prompt.of(prompt), [Completion(text=text)])


def test_journal_restores_verdicts_except_failures(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "audit.jsonl"
    with open_journal(path) as journal:
        journal.add(key(), VERDICTS)
        journal.add(key("y"), [[Verdict.failed("a", "timeout")]])
    with path.open("a") as stream:
        stream.write('["broken off')
    with open_journal(path) as journal:
        assert journal.verdicts == {key(): VERDICTS}
        journal.add(key("z"), VERDICTS)
    with open_journal(path) as journal:
        assert len(journal.verdicts) == 2


def test_journal_key_depends_on_judge_task_and_completion() -> None:
    other = JUDGE.model_copy(update={"mode": "written"})
    assert len({key(), key("y"), key(judge=other), key(prompt="When?")}) == 4
    assert key(judge=JUDGE.model_copy(update={"name": "k"})) == key()
