"""The whole: what it declares, and that nothing sent to it makes it fall."""

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rubricsvc.api.app import create_app
from rubricsvc.schemas.base import ErrorBody
from rubricsvc.settings import Settings
from rubricsvc.store.session import Database
from tests.databases import KINDS, fresh_url

BODIES: dict[str, dict[str, Any]] = {
    "/v1/prompts": {"prompt": {"messages": [{"role": "user", "content": "q"}], "tags": ["t"]}, "external_id": "e"},
    "/v1/rubrics": {
        "name": "r",
        "prompt_id": 1,
        "rubric": {
            "formula": "tree",
            "min_coverage": 0.5,
            "groups": [{"path": ["g"], "weight": 2}],
            "criteria": [
                {"key": "a", "text": "t", "weight": 2, "group": ["g"], "required": True},
                {"key": "b", "text": "t", "scale": {"kind": "numeric", "low": 0, "high": 5}},
                {"key": "c", "text": "t", "check": {"name": "regex", "args": {"pattern": "x"}}},
            ],
        },
    },
    "/v1/completions": {
        "completions": [{"prompt_id": 1, "completion": {"text": "a", "policy": "p", "step": 1, "sampling": {"t": 1}}}]
    },
    "/v1/judges": {"judge": {"name": "j", "model": "m", "endpoint": {"base_url": "http://x"}}},
    "/v1/jobs": {"judge": "j", "name": "n", "items": [{"completion_id": 1, "rubric": "r"}]},
}


@pytest.fixture(scope="module", params=KINDS)
def http(request: pytest.FixtureRequest) -> Iterator[TestClient]:
    with tempfile.TemporaryDirectory(prefix="rubricsvc-fuzz-") as folder:
        db = Database(fresh_url(request.param, Path(folder)))
        with TestClient(
            create_app(Settings(database_url=db.url), db), base_url="http://localhost", client=("::1", 1)
        ) as c:
            for path, body in BODIES.items():
                assert c.post(path, json=body).status_code == 201, path
            yield c
        db.close()


@pytest.fixture(scope="module")
def openapi(http: TestClient) -> dict[str, Any]:
    document: dict[str, Any] = http.get("/openapi.json").json()
    return document


def operations(openapi: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            yield f"{method} {path}", operation


def test_openapi_operations_declare_error_body(openapi: dict[str, Any]) -> None:
    for name, operation in operations(openapi):
        if "/v1/" not in name:
            continue
        declared = operation["responses"]
        assert {"400", "401", "403", "413", "422", "500", "503"} <= set(declared), name
        assert ("{" in name) <= ("404" in declared), name
        for status, response in declared.items():
            if int(status) >= 400:
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorBody"}, (name, status)
        assert operation["security"] == [{"HTTPBearer": []}], name
    assert "HTTPValidationError" not in openapi["components"]["schemas"]


def test_openapi_describes_parameters_and_fields(openapi: dict[str, Any]) -> None:
    """Fields of request bodies, and of the rows and items that are returned."""
    schemas = openapi["components"]["schemas"]
    named = [name for name in schemas if name.startswith(("New", "Stored", "Grader", "Item", "Imported", "Page"))]
    reached = {name for name in named if name not in ("GraderErrors", "GraderMetadata", "GraderRun")}
    refers = re.compile(r"#/components/schemas/(\w+)")
    while more := {name for one in reached for name in refers.findall(str(schemas[one]))} - reached:
        reached |= more
    assert {"Judge", "Criterion", "Verdict", "Endpoint", "Item", "Curve", "JobSummary"} <= reached
    fields = {f"{name}.{key}": field for name in reached for key, field in schemas[name].get("properties", {}).items()}
    fields |= {f"{name} {one['name']}": one for name, op in operations(openapi) for one in op.get("parameters", ())}
    assert sorted(name for name, field in fields.items() if not field.get("description")) == []


def test_docs_page_loads_no_external_resources(http: TestClient) -> None:
    page = http.get("/docs").text
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(loaded) >= 2 and all(address.startswith("/") for address in loaded)
    assert all(http.get(address).status_code == 200 for address in loaded)
    assert "https://" not in page
    assert http.get("/redoc").status_code == 404


def test_openapi_objects_but_messages_forbid_unknown_fields(openapi: dict[str, Any]) -> None:
    objects = {name: s for name, s in openapi["components"]["schemas"].items() if s.get("type") == "object"}
    assert len(objects) > 25
    lenient = [name for name, schema in objects.items() if schema.get("additionalProperties") is not False]
    assert lenient == ["Message", "ToolCall"]


def test_openapi_body_examples_are_accepted(openapi: dict[str, Any], http: TestClient) -> None:
    schemas = openapi["components"]["schemas"]
    for name in ("NewPrompt", "NewRubric", "NewCompletion", "NewJudge", "NewJob"):
        (example,) = schemas[name]["examples"]
        if name == "NewCompletion":
            example = {"completions": [example]}
        path = "/v1/" + {"NewCompletion": "completions"}.get(name, f"{name[3:].lower()}s")
        assert http.post(path, json=example).status_code == 201, name


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from leaves(item, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


odd_numbers = st.sampled_from([0, -1, 2**31, 2**63 - 1, 2**63, 10**30, 1e308, -0.0, 1e-320, True, False])
texts = st.text(max_size=20) | st.sampled_from(["", "\0", "a@b", "9" * 30, "x" * 400, "\u202e", "1", "r@99"])
plain = st.none() | odd_numbers | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)


@settings(max_examples=3 * settings.default.max_examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_app_answers_no_5xx_to_random_bodies(http: TestClient, openapi: dict[str, Any], data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(BODIES)))
    body = BODIES[path]
    for _ in range(data.draw(st.integers(1, 2))):
        where = data.draw(st.sampled_from(list(leaves(body))))
        body = replaced(body, where, data.draw(values))
    content = json.dumps(body).encode("utf-8", "surrogatepass")
    answer = http.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code != 500
    assert str(answer.status_code) in openapi["paths"][path]["post"]["responses"]
    if answer.status_code >= 400:
        assert ErrorBody.model_validate_json(answer.content).error.message


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ref=texts,
    after=st.integers() | texts,
    noun=st.sampled_from(["prompts", "rubrics", "completions", "judges", "jobs", "verdicts"]),
)
def test_app_answers_no_5xx_to_random_paths(http: TestClient, ref: str, after: int | str, noun: str) -> None:
    for answer in (
        http.get(f"/v1/{noun}/{quote(ref, safe='')}"),
        http.get(f"/v1/{noun}", params={"after": after, "name": ref}),
    ):
        assert answer.status_code in {200, 307, 400, 404, 405, 422}
