"""The page of a job: what it holds, and hostile texts in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from rubricsvc.core.contributions import Contribution
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Message, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Evidence, Verdict
from rubricsvc.services.job_results import CriterionTotals, JobResults, read_results
from rubricsvc.store import completions, jobs, judges, leases, prompts, rubrics
from rubricsvc.store.session import Database
from rubricsvc.web import jobs as web
from rubricsvc.web.jobs import MAX_ROWS, ROWS_SHOWN, render_job, view
from tests.rows import item_result

TEXT = "Keep it at 2 to 8 degrees, and never freeze it."
RUBRIC = Rubric(
    criteria=(
        Criterion(key="zero", text="States the range.", weight=3),
        Criterion(key="alpha", text="Warns of freezing.", weight=2, required=True),
        Criterion(key="made-up", text="Makes up a source.", weight=-1),
    )
)


class Page(HTMLParser):
    """Tags, attributes and texts of a page; ``marks`` are the marked texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.marks: list[str] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.open and self.open[-1] == "mark":
            self.marks.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def results(
    db: Database,
    verdicts: list[Verdict],
    *,
    completion: Completion | None = None,
    prompt: str = "How is it stored?",
    rubric: Rubric = RUBRIC,
    name: str = "a job",
    model: str = "m",
) -> JobResults:
    """The results of a job over one completion with these verdicts."""
    with db.write() as session:
        judge = judges.add(session, Judge(name="test", model=model, mode="written"))
        prompt_id = prompts.add(session, Prompt.of(prompt)).id
        rubric_id = rubrics.add(session, rubric, name="storage", prompt_id=prompt_id).id
        added = completions.add(session, completion or Completion(text=TEXT, policy="mine"), prompt_id)
        job = jobs.submit(session, judge_id=judge.id, items=[(added.id, rubric_id)], name=name)
        (lease,) = leases.claim(session, judge.id, limit=1, worker="w", seconds=60)
        leases.record(session, [item_result(lease, rubric, verdicts)])
        jobs.finish(session)
        job_id = job.id
    return read_results(db, job_id, extremes=10)


VERDICTS = [
    Verdict.scored("zero", 1.0, rationale="It does.", evidence=[Evidence(quote="2 to 8 degrees", start=11, end=25)]),
    Verdict.scored("alpha", 0.0, rationale="Hardly.", evidence=[Evidence(quote="8 degrees, and", start=16, end=30)]),
    Verdict.scored("made-up", 1.0, evidence=[Evidence(quote="as Smith wrote")]),
]


def test_render_job_shows_verdicts_in_the_order_of_the_rubric(db: Database) -> None:
    page = Page(render_job(results(db, VERDICTS)))
    worst = page.text[page.text.index("Completions, the worst first") :]
    places = [worst.index(text) for text in ("How is it stored?", "States the range.", "Warns of", "Makes up a")]
    assert places == sorted(places)
    assert "Not in the text: as Smith wrote" in worst and "Hardly." in worst
    assert "Vetoed by the required criterion “alpha”" in worst and "0.400" in worst and "0.200" in worst
    assert "storage@1" in worst and "mine" in worst


def test_render_job_says_why_the_mean_has_no_interval(db: Database) -> None:
    found = results(db, VERDICTS)
    assert found.rewards is not None and found.rewards.mean.low is None
    assert str(found.rewards.mean.null_reason) in Page(render_job(found)).text


def test_render_job_marks_overlapping_quotes(db: Database) -> None:
    """A part of the text that both quote is marked once; with its end stands the number of the criterion."""
    found = results(db, VERDICTS)
    assert "".join(part.text for part in view(found.worst[0]).text) == TEXT
    page = Page(render_job(found))
    assert page.marks == ["2 to ", "8 degrees", ", and"]
    assert "script" not in page.tags


HOSTILE = "</style></title></blockquote>\"'><script>alert(1)</script><img src=x onerror=f()>\u202e{{ 7*7 }}{% x %}&lt;"
TAGS = """html head meta title style body main section article div span p b i u h1 h2 small table thead tbody tr th td
dl dt dd ul li br mark sup q code details summary blockquote"""


def test_render_job_shows_hostile_texts_as_text(db: Database) -> None:
    rubric = Rubric(criteria=(Criterion(key=HOSTILE[:190], text=HOSTILE, tags=(HOSTILE, "b")),))
    verdict = Verdict.scored(
        rubric.criteria[0].key,
        0.0,
        rationale=HOSTILE,
        evidence=[Evidence(quote=HOSTILE), Evidence(quote=HOSTILE[:9], start=0, end=9)],
    )
    completion = Completion(text=HOSTILE + "\0" + "x" * 100_000, policy=HOSTILE)
    names = {"name": HOSTILE, "model": HOSTILE, "prompt": HOSTILE * 20, "rubric": rubric}
    html = render_job(results(db, [verdict], completion=completion, **names))  # type: ignore[arg-type]
    page = Page(html)
    assert set(page.tags) <= set(TAGS.split())
    assert not {name for name in page.attributes if name.startswith("on") or name in ("src", "href")}
    assert page.tags.count("style") == page.tags.count("title") == 1
    assert page.text.count("<script>alert(1)</script>") >= 8 and "{{ 7*7 }}" in page.text
    assert not {"\0", "\u202e"} & set(html) and len(html) < 200_000


def test_render_job_loads_nothing(db: Database) -> None:
    html = render_job(results(db, VERDICTS))
    assert "http://" not in html and "https://" not in html and "url(" not in html and "@import" not in html
    assert "default-src 'none'" in html


def test_render_job_lists_completions_without_a_reward(db: Database) -> None:
    failed = [Verdict.failed("zero", "timeout", detail="no reply within 60 s"), *VERDICTS[1:]]
    page = Page(render_job(results(db, failed)))
    rest = page.text[page.text.index("Completions without a reward") :]
    assert "failed: timeout" in rest and "no reply within 60 s" in rest and "the worst first" not in page.text


def test_render_job_of_a_trajectory_searches_the_quotes(db: Database) -> None:
    steps = (Message(role="assistant", content="I look it up."), Message(role="assistant", content=TEXT))
    found = results(db, VERDICTS, completion=Completion(messages=steps))
    page = Page(render_job(found))
    assert page.marks == ["2 to ", "8 degrees", ", and"] and "I look it up." in page.text


def test_render_job_of_an_empty_completion(db: Database) -> None:
    bare = [Verdict.scored(criterion.key, 0.0) for criterion in RUBRIC.criteria]
    assert "(empty completion)" in Page(render_job(results(db, bare, completion=Completion(text="")))).text


def test_view_cuts_long_texts(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "TEXT_CHARS", 20)
    one = view(results(db, VERDICTS).worst[0])
    assert "".join(part.text for part in one.text) == TEXT[:20] and one.omitted == len(TEXT) - 20
    assert web.cut_text(TEXT).startswith(TEXT[:20] + "…")


def totals(count: int) -> list[CriterionTotals]:
    rows = [CriterionTotals(f"c{n}", text="Long. " * 100, kind="checked") for n in range(count)]
    for n, row in enumerate(rows):
        verdict = Verdict.abstained("c") if n % 2 else Verdict.scored("c", 0.5)
        row.add([Contribution(Criterion(key="c", text="…", weight=n - 1), verdict, gain=1 / (n + 1))], rewarded=True)
    return rows


def test_render_job_shortens_long_lists_and_names_the_cost(db: Database) -> None:
    found = results(db, VERDICTS)
    assert found.rewards is not None
    price = {"base_url": "http://localhost/v1", "price": {"prompt": 1.0}}
    judge = Judge.model_validate({"name": "dear", "model": "m", "endpoint": price})
    many = replace(
        found,
        job=replace(found.job, judge=judge, budget=2.0, spent=0.25, min_coverage=0.5),
        policies={f"policy {n}": found.rewards for n in range(20)},
        criteria=totals(100),
        groups=totals(2),
        rubrics=Counter({f"r{n}@1": 1 for n in range(20)}),
        null_reasons={f"reason {n}": 1 for n in range(20)},
        without_reward=found.worst,
    )
    page = Page(render_job(many))
    assert "$0.25" in page.text and "of a budget of $2" in page.text and "0.5, of the job" in page.text
    assert "12 with the highest means of 20" in page.text and "policy 11" in page.text and "policy 12" not in page.text
    assert (
        f"{MAX_ROWS - ROWS_SHOWN} more of 100" in page.text and page.text.count("c59") == 1 and "c60" not in page.text
    )
    assert "and 8 other reasons" in page.text and "and 8 more" in page.text and "−1" in page.text


def test_render_job_of_an_unfinished_job(db: Database) -> None:
    found = results(db, VERDICTS)
    empty: dict[str, Any] = {"rewards": None, "policies": {}, "criteria": [], "worst": [], "usage": None}
    with db.write() as session:
        job = jobs.submit(session, judge_id=1, items=[(1, 1)], key="again")
    pending = read_results(db, job.id, extremes=10)
    assert (pending.rewards, pending.usage) == (None, None)
    page = Page(render_job(pending))
    assert "No completion has a reward yet." in page.text and "pending" in page.text
    assert "No completion has a reward yet." in Page(render_job(replace(found, **empty))).text
