"""Jobs and rubrics compared, from recorded verdicts."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from scipy import stats
from sqlalchemy import select

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Numeric, Rubric, default_pool
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.queries import CompareQuery
from rubricsvc.schemas.jobs import JobComparison
from rubricsvc.services.comparing import compare
from rubricsvc.services.job_results import read_results
from rubricsvc.services.versions import changes
from rubricsvc.store import completions, jobs, judges, leases, rubrics
from rubricsvc.store.session import Database
from rubricsvc.store.tables import CompletionRow
from tests.rows import item_result, verdict_of

CRITERIA = (Criterion(key="c1", text="Is right."), Criterion(key="c2", text="Is rude.", weight=-1))
RUBRIC = Rubric(criteria=CRITERIA, formula="healthbench")
Values = Sequence[float | None]


def score(
    db: Database,
    judge: str,
    texts: Iterable[tuple[str, str, Values]],
    *,
    rubric: Rubric = RUBRIC,
    policy: str = "p",
    work: bool = True,
) -> int:
    """A finished job over (prompt, text, values by criterion); None fails the verdict."""
    texts = list(texts)
    with db.write() as session:
        judge_id = judges.add(session, Judge(name=judge, model=judge)).id
        rubric_id = rubrics.add(session, rubric, name="r").id
        prompt_ids = [completions.add_prompt(session, Prompt.of(prompt), f"id of {prompt}").id for prompt, *_ in texts]
        made = [Completion(id=f"id of {text}", text=text, policy=policy) for _, text, _ in texts]
        ids = completions.add_many(session, zip(prompt_ids, made, strict=True))
        job_id = jobs.submit(session, judge_id=judge_id, items=[(id_, rubric_id) for id_ in ids]).id
    values = dict(zip(ids, (values for *_, values in texts), strict=True))
    with db.write() as session:
        for lease in leases.claim(session, judge_id, limit=1000, worker="w", seconds=60) if work else ():
            found = list(map(verdict_of, rubric.criteria, values[lease.completion_id]))
            leases.record(session, [item_result(lease, rubric, found, way=f"{judge}{rubric.digest}")])
    return job_id


def compared(db: Database, a: int, b: int, **options: Any) -> JobComparison:
    with db.read() as session:
        return compare(session, a, CompareQuery(b=b, **options))


def grid(value: Callable[[int, int], Values]) -> list[tuple[str, str, Values]]:
    """Three completions of each of six prompts."""
    return [(f"prompt {p}", f"text {p} {n}", value(p, n)) for p in range(6) for n in range(3)]


def test_compare_judges_agrees_with_scipy(each_db: Database) -> None:
    first = grid(lambda p, n: (0.1 * p + 0.1 * n, 0.0))
    second = grid(lambda p, n: ((0.7 * p + 0.3 * n * (p % 2)) / 5, 0.1 * n))
    a, b = score(each_db, "one", first), score(each_db, "two", second)
    found = compared(each_db, a, b)
    rewards = [[values[0] - values[1] for *_, values in side] for side in (first, second)]  # type: ignore[operator]
    assert (found.differs, found.paired_by, found.paired, found.prompts) == (("judge",), "completion", 18, 6)
    assert found.left_out == {}
    by_prompt = [sum(y - x for x, y in list(zip(*rewards, strict=True))[k : k + 3]) / 3 for k in range(0, 18, 3)]
    interval = stats.ttest_1samp(by_prompt, 0.0).confidence_interval()
    assert (found.mean_difference.low, found.mean_difference.high) == pytest.approx(
        (interval.low, interval.high), rel=1e-3
    )
    assert found.a.mean_reward is not None and found.b.mean_reward is not None
    assert found.mean_difference.value == pytest.approx(found.b.mean_reward - found.a.mean_reward)
    c1 = next(row for row in found.criteria if row.key_a == "c1")
    met = [(x[0] >= 0.5, y[0] >= 0.5) for (*_, x), (*_, y) in zip(first, second, strict=True)]  # type: ignore[operator]
    assert (c1.to_met, c1.to_unmet) == (met.count((False, True)), met.count((True, False)))
    assert c1.paired == 18 and c1.to_met + c1.to_unmet > 0
    moved = [abs(row.difference) for row in found.moved]
    assert len(moved) == 10 and moved == sorted(moved, reverse=True)
    assert moved[0] == pytest.approx(max(abs(y - x) for x, y in zip(*rewards, strict=True)))


@pytest.mark.parametrize("prompts", [3, 6])
def test_compare_with_rewards_of_zero_gives_the_mean_and_the_interval_of_the_report(db: Database, prompts: int) -> None:
    texts = [(prompt, text) for prompt, text, _ in grid(lambda p, n: ())][: 3 * prompts]
    a = score(db, "one", [(*one, (0.0, 0.0)) for one in texts])
    b = score(db, "two", [(*one, (n % 7 / 7, 0.0)) for n, one in enumerate(texts)])
    found, report = compared(db, a, b).mean_difference, read_results(db, b, extremes=1).rewards
    assert report is not None and report.mean.value is not None and found.value == pytest.approx(report.mean.value)
    assert (found.null_reason, found.low is None) == (report.mean.null_reason, prompts < 5)
    assert (found.low, found.high) == pytest.approx((report.mean.low, report.mean.high))


def test_compare_leaves_out_what_one_side_lacks_with_its_reason(db: Database) -> None:
    a = score(db, "one", [("q", "1", (1, 0)), ("q", "2", (1, 0)), ("q", "3", (None, 0)), ("q", "4", (1, 0))])
    b = score(db, "two", [("q", "1", (1, 0)), ("q", "2", (None, 0)), ("q", "3", (None, 0)), ("q", "5", (1, 0))])
    found = compared(db, a, b)
    assert found.paired == 1
    assert found.left_out == {
        f"not in job {b}": 1, f"not in job {a}": 1, f"no reward in job {b}": 1, f"no reward in job {a} and {b}": 1,
    }  # fmt: skip
    waiting = score(db, "three", [("q", "1", (1, 0))], work=False)
    found = compared(db, a, waiting)
    assert found.paired == 0 and found.mean_difference.value is None
    assert (found.a.rubrics, found.b.rubrics, found.b.policies) == (("r@1",), ("r@1",), ("p",))
    assert found.left_out[f"unfinished in job {waiting}"] == 1


def test_compare_rubric_versions_follows_criteria_by_wording(db: Database) -> None:
    edited = Rubric(
        criteria=(
            Criterion(key="c1", text="Is short."),  # new, so that the keys of the others shift
            Criterion(key="c2", text="Is right.", weight=2),
            Criterion(key="c3", text="Is rude.", weight=-1),
        ),
        formula="healthbench",
    )
    a = score(db, "one", [("q", "t", (0.0, 0.0))])
    b = score(db, "one", [("q", "t", (0.25, 1.0, 1.0))], rubric=edited)
    found = compared(db, a, b)
    assert found.differs == ("rubrics",) and (found.a.rubrics, found.b.rubrics) == (("r@1",), ("r@2",))
    rows = {(row.key_a, row.key_b): (row.to_met, row.reworded) for row in found.criteria}
    assert rows == {("c1", "c2"): (1, False), ("c2", "c3"): (1, False)}
    (moved,) = found.moved
    assert (moved.completion_id, moved.completion_external_id, moved.prompt_external_id) == (1, "id of t", "id of q")
    assert (moved.reward_a, moved.difference) == (0.0, pytest.approx(1.25 / 3))


def test_compare_policies_pairs_prompts_by_their_mean_reward(db: Database) -> None:
    a = score(db, "j", [("q", "a1", (0.0, 0.0)), ("q", "a2", (0.5, 0.0)), ("r", "a3", (0.5, 0.0))], policy="a")
    b = score(db, "j", [("q", "b1", (1.0, 0.0)), ("r", "b2", (None, 0.0)), ("r", "b3", (0.25, 0.0))], policy="b")
    found = compared(db, a, b)
    assert (found.paired_by, found.differs, found.paired) == ("prompt", ("policies",), 2)
    expected = [("id of q", None, 0.25, 1.0), ("id of r", None, 0.5, 0.25)]
    assert [(row.prompt_external_id, row.completion_id, row.reward_a, row.reward_b) for row in found.moved] == expected
    (c1,) = [row for row in found.criteria if row.key_a == "c1"]
    assert (c1.to_met, c1.to_unmet) == (1, 1)
    with pytest.raises(InvalidError) as raised:
        compared(db, a, b, by="completion")
    assert "--by prompt" in raised.value.hint


def test_compare_pairs_two_policies_of_one_job_and_pools_their_criteria(db: Database) -> None:
    """Pitfalls are pooled apart; a job of other policies says which it has; more than 60 criteria are pooled anyway."""
    tagged = [one.model_copy(update={"tags": ("axis:manners", f"n:{one.key}")}) for one in CRITERIA]
    rubric = Rubric(criteria=(*tagged, tagged[0].model_copy(update={"key": "c3", "text": "Is new."})))
    texts = [
        (f"prompt {p}", f"{name} {p}", (0.2 + 0.5 * tuned, 0.1 * p, 1.0))
        for p in range(6)
        for tuned, name in enumerate(("base", "tuned"))
    ]
    job = score(db, "j", texts, rubric=rubric)
    with pytest.raises(InvalidError, match="1 policies: p"):
        compared(db, job, job)
    with db.write() as session:
        for row in session.scalars(select(CompletionRow)):
            row.policy = row.content["text"].split()[0]
    with pytest.raises(InvalidError) as raised:
        compared(db, job, job, pool="n:c")
    assert (raised.value.path, raised.value.hint) == ("pool", "expected one of key, group, tag, axis, n")
    found = compared(db, job, job, pool="axis")
    assert (found.paired_by, found.differs) == ("prompt", ("policies",))
    assert (found.a.policies, found.b.policies) == (("base",), ("tuned",))
    rows = {(one.key_a, one.pitfall): one for one in found.criteria}
    assert rows.keys() == {("axis:manners", False), ("axis:manners (pitfalls)", True)}
    assert (rows["axis:manners", False].paired, rows["axis:manners", False].to_met) == (12, 6)
    assert rows["axis:manners", False].difference.value == pytest.approx(0.25)
    reversed_ = compared(db, job, job, policy_a="tuned", policy_b="base")
    assert {one.key_a for one in reversed_.criteria} == {"c1", "c2", "c3"}
    with pytest.raises(InvalidError) as raised:
        compared(db, job, job, policy_a="tuned", policy_b="nosuch")
    assert "'nosuch'" in raised.value.message and "'base', 'tuned'" in raised.value.hint
    assert read_results(db, job, extremes=1).pool is None
    pooled = read_results(db, job, extremes=1, pool="axis").criteria
    assert [(one.name, one.weights, one.scored, one.met) for one in pooled] == [
        ("axis:manners", {1.0}, 12, 9),
        ("axis:manners (pitfalls)", {-1.0}, 12, 2),
    ]
    many = [Criterion(key=f"c{n}", text=f"Says {n}.", tags=(f"axis:{n % 3}", "level:one")) for n in range(61)]
    assert (default_pool([Rubric(criteria=tuple(many))]), default_pool([rubric])) == ("axis", None)


def test_compare_rejects_jobs_with_nothing_in_common(db: Database) -> None:
    a, b = score(db, "j", [("q", "a", (0, 0))]), score(db, "j", [("other", "a", (0, 0))], policy="b")
    with pytest.raises(InvalidError) as raised:
        compared(db, a, b)
    assert "rubricsvc jobs submit" in raised.value.hint
    with pytest.raises(NotFoundError):
        compared(db, a, 99)


A, B = Criterion(key="a", text="Is kind.", weight=3), Criterion(key="b", text="Is brief.")
OLD = Rubric(criteria=(A, B))


def with_a(**fields: Any) -> Rubric:
    return Rubric(criteria=(A.model_copy(update=fields), B))


CASES: list[tuple[Rubric, str, str | None, str]] = [
    (with_a(weight=1.0), "changed", "weight", "a: weight 3 → 1 (share of all weights 75% → 50%)"),
    (with_a(text="Is very kind."), "changed", "text", "a: text “Is kind.” → “Is very kind.”"),
    (with_a(key="kind"), "changed", "key", "kind: key “a” → “kind”"),
    (with_a(required=True), "changed", "required", "a: required false → true"),
    (
        with_a(scale=Numeric(high=5)),
        "changed",
        "scale",
        'a: scale {"kind": "binary"} → {"kind": "numeric", "low": 0.0, "high": 5.0}',
    ),
    (with_a(reference="So."), "changed", "reference", "a: reference none → “So.”"),
    (with_a(tags=("x",)), "changed", "tags", 'a: tags none → ["x"]'),
    (
        with_a(check=Check(name="words", args={"max": 9})),
        "changed",
        "check",
        'a: check none → {"name": "words", "args": {"max": 9}}',
    ),
    (OLD.model_copy(update={"min_coverage": 0.5}), "changed", "min_coverage", "min coverage 1 → 0.5"),
    (OLD.model_copy(update={"formula": "mean"}), "changed", "formula", "formula “weighted_mean” → “mean”"),
    (Rubric(criteria=(A,)), "removed", None, "b: removed: “Is brief.” (weight 1)"),
    (
        Rubric(criteria=(A, B, Criterion(key="c", text="Is rude.", weight=-2))),
        "added",
        None,
        "c: added: “Is rude.” (weight -2)",
    ),
    (Rubric(criteria=(B, A)), "changed", "criteria", "the criteria are in another order"),
]


def test_changes_says_each_difference_in_words() -> None:
    for new, kind, field, words in CASES:
        (change,) = changes(OLD, new)
        assert (change.kind, change.field, str(change)) == (kind, field, words)
        assert len(changes(new, OLD)) == 1 and changes(new, new) == []
