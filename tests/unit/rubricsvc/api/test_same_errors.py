"""The service in this process and the client over HTTP: the same methods of each noun, and the same errors."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from rubricsvc.client import AsyncClient, Client
from rubricsvc.core.rubric import Criterion, NumberRange, Rubric, RubricExample
from rubricsvc.core.rubric_analysis import ExampleTest, VerdictTest
from rubricsvc.errors import RubricsvcError
from rubricsvc.services.local import LocalService
from rubricsvc.services.versions import Edit, add_version
from rubricsvc.store.session import Database
from tests.unit.rubricsvc.api.conftest import RUBRIC

LOCAL_ONLY = {"approval", "caller", "db", "keys", "workers"}
HTTP_ONLY = {"close", "iterate", "run", "score", "score_many"}
TRANSPORT = {"client", "connect", "http", "outage_seconds", "request", "send", "sleep"}
"""Names that only one of the two has (`imports.content` too, for the route), and those that send requests."""

REFS = st.sampled_from([0, -1, 1, 2, 99, 2**63, "j", "r", "r@1", "r@7", "p/1", "lost", "a b", "é/ü", "1_0", "x" * 221])
IDS = st.sampled_from([0, -1, 1, 2, 99, 2**63])
NUMBERS = st.sampled_from([-1, 0, 1, 2, 1000, 1001, 2**63, 0.5, float("nan"), float("inf"), "1", "many", None, True])
TEXTS = st.sampled_from(["", "id", "queued", "completed", "lost", "-reward", "completion", "x" * 201, 3, None])
VALUES = {
    "after": NUMBERS, "limit": NUMBERS, "status": TEXTS, "kind": st.sampled_from(["sft", "dpo", "completion", "csv"]),
    "job": st.lists(IDS, max_size=2), "gold": REFS.map(str), "sort": TEXTS, "policy": TEXTS,
    "verdicts": st.booleans(), "summary": st.sampled_from([True, False, "maybe"]), "budget": NUMBERS,
    "min_coverage": NUMBERS, "allow_drafts": st.booleans(), "rubric": st.lists(REFS, max_size=2), "judge": REFS,
    **dict.fromkeys(("items", "completions"), st.lists(st.tuples(REFS, REFS) | REFS, max_size=2)), "key": TEXTS,
    "name": TEXTS, "outcome": TEXTS, "annotator": TEXTS, "comment": TEXTS,
    "action": st.sampled_from(["submit", "approve", "reject", "retire", "comment", "publish", None]),
    **dict.fromkeys(("n", "top", "min_margin", "step", "prompt_id", "job_id", "completion_id", "rubric_id"), NUMBERS),
}  # fmt: skip
METHODS = {
    "jobs.get": ("summary",), "jobs.items": ("after", "limit", "sort", "policy", "verdicts"),
    "jobs.export": ("after", "limit", "kind", "top", "min_margin"),
    "jobs.rescore": ("budget", "min_coverage", "allow_drafts", "rubric"), "jobs.retry": ("budget",),
    "jobs.cancel": (), "prompts.get": (), "judges.get": (), "judges.audits": ("after", "limit"),
    "judges.passport": (), "rubrics.get": ("allow_drafts",), "rubrics.analyse": ("job_id",),
    "rubrics.review": ("action", "comment"),
    "rubrics.history": ("after", "limit"), "rubrics.tests": ("after", "limit"), "rubrics.provenance": (),
    "completions.get": (), "evolutions.get": (), "runs.get": (), "runs.stop": (), "runs.delete": (),
    "runs.rollouts": ("after", "limit", "step", "verdicts"),
}  # fmt: skip
"""Methods that take an id or name, with their fields; below those without one."""
WHOLE = {
    "jobs.best_of_n": ("job", "gold", "n"),
    "jobs.page": ("after", "limit", "status"),
    "jobs.submit": ("judge", "items", "completions", "budget", "min_coverage", "allow_drafts", "key", "name"),
    "prompts.page": ("after", "limit"),
    "judges.page": ("after", "limit"),
    "rubrics.page": ("after", "limit", "prompt_id"),
    "completions.page": ("after", "limit", "prompt_id", "policy"),
    "verdicts.page": ("after", "limit", "job_id", "completion_id", "outcome"),
    "labels.page": ("after", "limit", "rubric_id", "annotator"),
    "runs.page": ("after", "limit"),
}


def outcome(service: Any, name: str, args: tuple[Any, ...], fields: dict[str, Any]) -> Any:
    noun, _, verb = name.partition(".")
    try:
        done = getattr(getattr(service, noun), verb)(*args, **fields)
        return done.model_dump() if isinstance(done, BaseModel) else done
    except RubricsvcError as error:
        return type(error), error.code, error.message, error.hint, error.path


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    name = draw(st.sampled_from([*METHODS, *WHOLE]))
    refs = REFS if name.startswith(("prompts.", "judges.", "rubrics.")) else IDS
    args = (draw(refs),) if name in METHODS else ()
    names = METHODS.get(name, WHOLE.get(name, ()))
    required = {"jobs.submit": {"judge"}, "jobs.best_of_n": {"job", "gold"}, "rubrics.review": {"action"}}
    chosen = {field for field in names if field in required.get(name, ()) or draw(st.booleans())}
    return name, args, {field: draw(VALUES[field]) for field in sorted(chosen)}


@pytest.fixture
def both(filled: TestClient, db: Database) -> Callable[[], tuple[LocalService, Client]]:
    client = Client("http://localhost", transport=filled._transport, outage_seconds=0)
    return lambda: (LocalService(db), client)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(call=calls())
def test_local_service_and_client_raise_the_same_error(
    both: Callable[[], tuple[LocalService, Client]], call: tuple[str, tuple[Any, ...], dict[str, Any]]
) -> None:
    local, client = both()
    remote, own = (outcome(s, *call) for s in (client, local))
    changes = call[0].endswith((".submit", ".cancel", ".retry", ".rescore", ".review", ".stop", ".delete"))
    assert type(remote) is type(own) and (remote == own or (changes and not isinstance(own, tuple)))


def test_local_service_and_client_have_the_same_methods(db: Database) -> None:
    local, client, coroutines = LocalService(db), Client("http://localhost"), AsyncClient("http://localhost")

    def public(one: object) -> set[str]:
        fields = {field.name for field in dataclasses.fields(one)} if dataclasses.is_dataclass(one) else set()
        return {name for name in dir(one) if not name.startswith("_")} - TRANSPORT - fields

    own, remote = public(local), public(client)
    assert (own - remote, remote - own) == (LOCAL_ONLY, HTTP_ONLY)
    assert (remote - public(coroutines), public(coroutines) - remote) == ({"close", "scoring"}, {"aclose"})
    for noun in own & remote - {"address", "scoring"}:
        of_local, *others = (public(getattr(one, noun)) - {"content"} for one in (local, client, coroutines))
        assert of_local and others == [of_local, of_local], noun
    client.close()


def test_local_service_and_client_review_alike(both: Callable[[], tuple[LocalService, Client]], db: Database) -> None:
    with db.write() as session:
        add_version(session, Rubric.model_validate(RUBRIC), Edit(), name="of-model", origin="generated")
    example = RubricExample(key="e", text="c", verdicts={"a": NumberRange(min=1, max=1)})
    found = VerdictTest(criterion="a", expected=NumberRange(min=1, max=1), found=1.0, passed=True)
    seen: dict[str, list[str]] = {}
    for name, s in {"local": LocalService(db, caller="anonymous"), "remote": both()[1]}.items():
        content = Rubric(criteria=(Criterion(key="a", text=f"Is {name}."),), examples=(example,))
        tested = (ExampleTest(example="e", verdicts=(found,)),)
        test = {"judge": "j", "rubric_digest": content.digest, "examples": tested}
        calls: list[tuple[str, dict[str, Any]]] = [
            ("add", {"rubric": RUBRIC, "name": f"{name}-copy"}),
            ("add", {"rubric": content, "name": name}),
            *(("add_test", test | {"judge_digest": one}) for one in ("0", s.judges.get("j").digest)),
            *(("review", {"action": one}) for one in ("approve", "submit", "approve", "approve", "reject")),
        ]
        for verb, fields in calls:
            one = outcome(s, f"rubrics.{verb}", () if verb == "add" else (name,), fields)
            shown = one if isinstance(one, tuple) else [one.get(key, "") for key in ("state", "note", "by")]
            seen.setdefault(name, []).append(re.sub(rf"{name}|[\d-]+ [\d:]+ UTC", "…", str(shown)))
    assert seen["local"] == seen["remote"]
    expected = {0: "no person has approved", 2: "judge_digest", 3: "anonymous", 4: "submit it", 7: "already, by"}
    assert all(text in seen["local"][place] for place, text in expected.items()), seen
