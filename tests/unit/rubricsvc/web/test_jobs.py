"""The page of a job: what it holds, and hostile texts in it."""

from html.parser import HTMLParser

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Evidence, Verdict
from rubricsvc.services.job_results import JobResults, read_results
from rubricsvc.store import completions, jobs, judges, leases, rubrics
from rubricsvc.store.session import Database
from rubricsvc.web.jobs import render_job
from tests.rows import add_completion, item_result

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
        prompt_id = completions.add_prompt(session, Prompt.of(prompt)).id
        rubric_id = rubrics.add(session, rubric, name="storage", prompt_id=prompt_id).id
        added = add_completion(session, completion or Completion(text=TEXT, policy="mine"), prompt_id)
        job = jobs.submit(session, judge_id=judge.id, items=[(added.id, rubric_id)], name=name, allow_drafts=True)
        (lease,) = leases.claim(session, judge.id, limit=1, worker="w", seconds=60)
        leases.record(session, [item_result(lease, rubric, verdicts)])
        leases.finish(session)
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
