"""The service in this process and the client over HTTP: the same methods, and the same errors for the same requests."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rubricsvc.client import Client
from rubricsvc.errors import RubricsvcError
from rubricsvc.services.local import LocalService
from rubricsvc.store.session import Database

HTTP_ONLY = {"report"}
"""Methods of a client whose result is a page of `rubricsvc.web`."""

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
    "name": TEXTS, "outcome": TEXTS, "annotator": TEXTS,
    **dict.fromkeys(("n", "top", "min_margin", "step", "prompt_id", "job_id", "completion_id", "rubric_id"), NUMBERS),
}  # fmt: skip
METHODS = {
    "jobs.get": ("summary",), "jobs.items": ("after", "limit", "sort", "policy", "verdicts"),
    "jobs.export": ("after", "limit", "kind", "top", "min_margin"),
    "jobs.rescore": ("budget", "min_coverage", "allow_drafts", "rubric"), "jobs.retry": ("budget",),
    "jobs.cancel": (), "prompts.get": (), "judges.get": (), "judges.audits": ("after", "limit"),
    "judges.passport": (), "rubrics.get": ("allow_drafts",), "rubrics.analyse": ("job_id",),
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


def outcome(service: Any, name: str, args: tuple[Any, ...], fields: dict[str, Any]) -> object:
    noun, _, verb = name.partition(".")
    try:
        getattr(getattr(service, noun), verb)(*args, **fields)
    except RubricsvcError as error:
        return type(error), error.code, error.message, error.hint, error.path
    return "done"


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    name = draw(st.sampled_from([*METHODS, *WHOLE]))
    refs = REFS if name.startswith(("prompts.", "judges.", "rubrics.")) else IDS
    args = (draw(refs),) if name in METHODS else ()
    names = METHODS.get(name, WHOLE.get(name, ()))
    required = {"jobs.submit": {"judge"}, "jobs.best_of_n": {"job", "gold"}}.get(name, set())
    chosen = {field for field in names if field in required or draw(st.booleans())}
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
    assert outcome(client, *call) == outcome(local, *call)


def test_local_service_and_client_have_the_same_methods(db: Database) -> None:
    local, client = LocalService(db), Client("http://localhost")
    of_the_machine = {"keys", "workers"}  # no command or route of a remote service
    nouns = [name for name, value in vars(local).items() if hasattr(type(value), "page") and name not in of_the_machine]
    assert {"jobs", "prompts"} <= set(nouns)
    for noun in nouns:
        own, remote = ({n for n in dir(getattr(one, noun)) if not n.startswith("_")} for one in (local, client))
        assert remote - {"client", "send", "request", *HTTP_ONLY} <= own, noun
    client.close()
