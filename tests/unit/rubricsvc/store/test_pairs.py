"""Preference pairs of a job, page by page."""

from __future__ import annotations

import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.store import completions, items, jobs, judges, prompts, rubrics
from rubricsvc.store.jobs import Preference, preferences
from rubricsvc.store.session import Database

SIZE = 12


@pytest.fixture
def job(each_db: Database) -> int:
    """Two groups whose completions are worth more and more, the last two of each the same."""
    with each_db.write() as session:
        rubric = rubrics.add(session, Rubric(criteria=(Criterion(key="k", text="k"),)), name="r").id
        asked = [prompts.add(session, Prompt.of(f"question {n}")).id for n in range(2)]
        ids = completions.add_many(session, [(p, Completion(text=str(n))) for n in range(SIZE) for p in asked])
        judge = judges.add(session, Judge(name="j", model="m"))
        found = jobs.submit(session, judge_id=judge.id, items=[(id_, rubric) for id_ in ids]).id
        for row in items.page(session, found):
            row.reward = min(int(row.completion.value.text), SIZE - 2) / SIZE
        return found


@pytest.mark.parametrize(("looked_at", "limit"), [(200, 1), (200, 15), (5, 1000), (1, 1)])
def test_pairs_page_respects_limit_and_loses_nothing(
    each_db: Database, job: int, monkeypatch: pytest.MonkeyPatch, looked_at: int, limit: int
) -> None:
    monkeypatch.setattr(jobs, "ITEMS_PER_PAGE", looked_at)
    found, sizes, after = [], [], 0
    with each_db.read() as session:
        while True:
            page, further = jobs.pairs(session, job, after=after, limit=limit)
            found += [(pair["chosen_completion_id"], pair["rejected_completion_id"]) for pair in page]
            sizes.append(len(page))
            if further is None:
                break
            assert further > after
            after = further
        by_group = [
            jobs.pairs_of_group(session, jobs.get(session, job), group) for group in jobs.pair_groups(session, job)
        ]
    assert max(sizes) <= max(limit, SIZE - 1)
    assert len(found) == len(set(found)) == 2 * (SIZE * (SIZE - 1) // 2 - 1)
    assert [(len(each.preferences), each.close, each.same) for each in by_group] == [(len(found) // 2, 1, 0)] * 2


def test_preferences_choose_the_better_and_skip_ties() -> None:
    assert list(preferences([0.5, 0.5, 0.75])) == [Preference(2, 0, 0.25), Preference(2, 1, 0.25)]
    assert list(preferences([1.0, 0.75, 0.0], min_margin=0.5)) == [Preference(0, 2, 1.0), Preference(1, 2, 0.75)]
    assert list(preferences([0.5])) == []
