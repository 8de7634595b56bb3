"""Hits and figures of a suite, and the file from which an interrupted audit resumes."""

from pathlib import Path

from rubricsvc.core.audit import Audit, Measure, SuiteResult
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Evidence, Verdict
from workers.audit.cases import AuditCase
from workers.audit.runner import AuditFinding, open_journal, question_key, suite_result
from workers.audit.suites import Suite


def verdict(value: float | str) -> Verdict:
    if isinstance(value, str):
        return Verdict.abstained("c") if value == "abstained" else Verdict.failed("c", value)
    return Verdict.scored("c", value)


CASE = AuditCase(Prompt.of("Why?"), Rubric(criteria=(Criterion(key="c", text="Is so."),)), "Because.")


def finding(now: float | str, before: float | str | None = None) -> AuditFinding:
    return AuditFinding(CASE, verdict(now), None if before is None else verdict(before), "a")


def result_of(measure: Measure, *findings: AuditFinding) -> SuiteResult:
    return suite_result(Suite(name="rationale", measure=measure, max_rate=0.1), findings)[0]


def test_suite_result_counts_hits_by_measure() -> None:
    for measure, now, before, hit in [
        ("met", 0.5, None, True),
        ("met", 0.49, 0.9, False),
        ("missed", 0.49, None, True),
        ("missed", 0.5, None, False),
        ("changed", 0.6, 0.4, True),
        ("changed", 0.4, 0.6, True),
        ("changed", 0.9, 0.6, False),
        ("preferred", 0.3, 0.2, True),
        ("preferred", 0.2, 0.3, False),
    ]:
        assert result_of(measure, finding(now, before)).rate.hits == int(hit)


def test_suite_result_fails_with_less_than_half_scored() -> None:
    result = result_of("met", finding(0.1), finding("timeout"), finding("timeout"))
    assert result.passed is False and "1 of 3" in str(result.reason)
    assert result_of("met", finding(0.1), finding("timeout")).passed is True
    ties = result_of("preferred", finding(0.1, 0.5), *[finding(0.5, 0.5)] * 2)
    assert "1 of 3" in str(ties.reason)


def test_audit_without_an_applicable_suite_is_not_passed() -> None:
    empty = result_of("met")
    assert (empty.passed, empty.reason) == (None, "the judge writes no rationale")
    one = result_of("met", finding(0.1))

    def audit(*suites: SuiteResult) -> Audit:
        return Audit(digest="d", fingerprint="f", suites=suites)

    assert not audit(empty).passed and audit(empty, one).passed
    assert not audit(one, result_of("met", finding(0.9))).passed


JUDGE = Judge(name="j", model="m")
VERDICTS = [
    [Verdict.scored("c", 0.5, rationale="Grün \ud83d", evidence=(Evidence(quote="x"),))],
    [Verdict.abstained("c")],
]


def key(text: str = "x", judge: Judge = JUDGE, prompt: str = "Why?") -> str:
    return question_key(judge, CASE.rubric, Prompt.of(prompt), [Completion(text=text)])


def test_journal_restores_verdicts_except_failures(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "audit.jsonl"
    with open_journal(path) as journal:
        journal.add(key(), VERDICTS)
        journal.add(key("y"), [[Verdict.failed("c", "timeout")]])
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
