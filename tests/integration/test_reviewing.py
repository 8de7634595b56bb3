"""The review of a rubric through the command line and the service, with two people who edit the same version."""

import json
from pathlib import Path

import pytest

from rubricsvc.client import Client
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import ConflictError, NotApprovedError
from rubricsvc.settings import get_settings
from rubricsvc.store import keys
from rubricsvc.store.session import Database
from tests.cli import Cli, add_judge, cli
from tests.service_process import running

__all__ = ["cli"]

PROMPT = "A vaccine fridge was warm over the weekend. Can the vaccines still be used?"


def rubric(*texts: str, weight: float = 1.0) -> Rubric:
    return Rubric(criteria=tuple(Criterion(key=f"c{n}", text=text, weight=weight) for n, text in enumerate(texts, 1)))


def test_review_leads_from_draft_to_approved_with_a_conflict(cli: Cli, tmp_path: Path) -> None:
    add_judge(cli)
    db = Database(get_settings().database_url)
    with db.write() as session:
        secrets = {name: keys.create(session, name)[1] for name in ("ann", "bob")}
    with running(db, require_key=True) as url, Client(url, secrets["ann"]) as ann, Client(url, secrets["bob"]) as bob:
        # Ann writes a rubric on the command line and submits it; no job may use it yet.
        file = tmp_path / "fridge.yaml"
        file.write_text(f"name: fridge\nprompt: {json.dumps(PROMPT)}\ncriteria: [Says not to use them yet.]\n")
        imported = cli("rubrics", "import", file, "--draft", "--by", "ann", "--json")
        assert (
            imported.json["not_approved"] == {"fridge@1": "draft"} and "rubrics review fridge@1 submit" in imported.err
        )
        prompt_id = ann.rubrics.get("fridge@1").prompt_id
        assert prompt_id is not None
        (completion,) = ann.completions.add(prompt_id, ["Do not use them before the maker has decided."]).ids
        refused = cli("jobs", "submit", "--judge", "quick")
        assert refused.code == 2 and "fridge@1" in refused.err and "--allow-drafts" in refused.err
        with pytest.raises(NotApprovedError):
            ann.jobs.submit(judge="quick", items=[{"completion_id": completion, "rubric": "fridge@1"}])
        assert cli("rubrics", "review", "fridge", "submit", "--by", "ann", "--json").json["state"] == "in_review"

        # Bob rejects it over HTTP, and approves it once Ann has answered.
        assert bob.rubrics.review("fridge@1", "reject", comment="Who decides?").state == "draft"
        assert cli("rubrics", "review", "fridge@1", "comment", "-m", "That is its own.", "--by", "ann").code == 0
        assert ann.rubrics.review("fridge@1", "submit").state == "in_review"
        assert bob.rubrics.review("fridge", "approve").state == "approved"
        assert cli("jobs", "submit", "--judge", "quick").code == 0

        # Both edit version 1. Bob is first, through the service; Ann's edit is refused, and kept.
        two = bob.rubrics.add(
            rubric("Says not to use them yet.", weight=5), "fridge", prompt_id=prompt_id, parent="fridge@1"
        )
        assert (two.version, two.state, two.added_by) == (2, "approved", "bob")
        file.write_text(file.read_text().replace("yet.]", "yet., Says who decides.]"))
        conflict = cli("rubrics", "import", file, "--parent", "fridge@1", "--by", "ann")
        assert conflict.code == 2 and "c2: added: “Says who decides.”" in conflict.err
        assert "c1: weight 1 → 5" in conflict.err
        assert cli("rubrics", "list", "--state", "draft", "--json").json["version"] == 3
        assert cli("rubrics", "show", "fridge", "--json").json["version"] == 2

        # She adds her criterion to his version, and it passes the review.
        rebased = rubric("Says not to use them yet.", "Says who decides.", weight=5)
        four = ann.rubrics.add(rebased, "fridge", prompt_id=prompt_id, parent="fridge@2", draft=True)
        assert (four.version, four.state, four.parent_id) == (4, "draft", two.id)
        assert ann.rubrics.get("fridge").version == 2
        ann.rubrics.review(four.id, "submit", comment="With Bob's weights.")
        assert cli("rubrics", "review", "fridge", "approve", "--by", "bob", "-m", "Good.").code == 0
        with pytest.raises(ConflictError):
            bob.rubrics.review("fridge@3", "approve")
        assert ann.rubrics.get("fridge").version == 4
        shown = cli("rubrics", "diff", "fridge@2", "fridge")
        assert f"fridge@4: state approved, parent_id {two.id}, added_by ann" in shown.out

        steps = [
            (one["rubric"], one["to_state"], one["by"])
            for one in cli("rubrics", "show", "fridge", "--history", "--json").json["reviews"]
        ]
        assert steps == [
            ("fridge@1", "in_review", "ann"),
            ("fridge@1", "draft", "bob"),
            ("fridge@1", "draft", "ann"),
            ("fridge@1", "in_review", "ann"),
            ("fridge@1", "approved", "bob"),
            ("fridge@3", "draft", "ann"),
            ("fridge@4", "in_review", "ann"),
            ("fridge@4", "approved", "bob"),
        ]
        assert [one.comment for one in bob.iterate(bob.rubrics.history, "fridge@4")] == ["With Bob's weights.", "Good."]
        assert "who decides" not in cli("rubrics", "show", "fridge@2", "--history").out.lower()
    db.close()
