"""Groups of a job: completions of one prompt under one rubric, page by page."""

from __future__ import annotations

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.store import completions, groups, jobs, judges, prompts, rubrics
from rubricsvc.store.session import Database


def test_groups_page_lists_groups_with_rewards_only(each_db: Database) -> None:
    with each_db.write() as session:
        two = [rubrics.add(session, Rubric(criteria=(Criterion(key=k, text=k),)), name=k).id for k in "ab"]
        asked = [prompts.add(session, Prompt.of(f"question {n}")).id for n in range(3)]
        ids = completions.add_many(session, [(p, Completion(text=str(n))) for n in range(3) for p in asked])
        judge = judges.add(session, Judge(name="j", model="m"))
        job = jobs.submit(session, judge_id=judge.id, items=[(id_, rubric) for id_ in ids for rubric in two]).id
        for row in jobs.results(session, job):
            if row.completion.prompt_id != asked[1] or row.completion_id == ids[1]:
                row.reward = 0.5
    with each_db.read() as session:
        pages = [groups.page(session, job, limit=3)]
        pages.append(groups.page(session, job, after=pages[0][-1], limit=3))
        assert pages == [[(asked[0], two[0]), (asked[0], two[1]), (asked[2], two[0])], [(asked[2], two[1])]]
        found = groups.members(session, job, (asked[2], two[1]))
        assert [row.completion_id for row in found] == ids[2::3]
        assert [row.completion_id for row in groups.members(session, job, (asked[1], two[0]))] == [ids[1]]
        assert groups.page(session, job + 1) == []
