"""Files into the database."""

import json
from pathlib import Path

import pytest

from rubricsvc.errors import ConflictError
from rubricsvc.formats import InvalidFileError
from rubricsvc.queries import ImportQuery
from rubricsvc.schemas.base import ImportedFile
from rubricsvc.services.importing import Imports
from rubricsvc.store import completions, labels
from rubricsvc.store.session import Database

RECORD = '{"id": "q", "prompt": "Q", "criteria": ["a"], "completions": ["b"], "labels": {"c1": {"ann": 1}}}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.jsonl"


def run(db: Database, path: Path, content: str, **arguments: object) -> ImportedFile:
    path.write_text(content)
    return Imports(db).create(path, ImportQuery(**arguments))  # type: ignore[arg-type]


def test_import_adds_records_with_labels(db: Database, path: Path) -> None:
    result = run(db, path, RECORD)
    assert result.new == {"prompts": 1, "rubrics": 1, "completions": 1, "labels": 1}
    assert (result.completion_ids, result.completion_rubric_ids) == ([1], [None])
    with db.read() as session:
        (row,) = labels.page(session)
        assert (row.label.annotator, row.label.value, row.rubric_id) == ("ann", 1.0, result.rubric_ids[0])


def test_import_detects_completions_and_labels(db: Database, path: Path) -> None:
    run(db, path, RECORD)
    lines = '{"prompt_id": "q", "completion": "c", "policy": "p"}\n{"prompt_id": "q", "text": "b"}\n'
    result = run(db, path, lines)
    assert result.completion_ids == [2, 1]
    chat = [{"role": role, "content": role} for role in ("system", "user", "assistant", "user", "assistant")]
    other = {"prompt": "Q", "id": "i", "messages": chat[1:2]}
    answers = ({"messages": [*chat[1:2], {"role": "assistant", "content": text}]} for text in ("a", ""))
    result = run(db, path, "\n".join(map(json.dumps, ({"messages": chat}, *(other | one for one in answers)))))
    assert [one.code for one in result.notes] == ["prompt", "repeated", "empty"]
    with db.read() as session:
        row = completions.get(session, result.completion_ids[0])
        assert (len(row.prompt.value.messages), row.value.text) == (4, "assistant")
    assert [one.code for one in run(db, path, RECORD.replace('"q"', '"r"', 1)).notes] == ["existing"]
    line = '{"completion_id": 2, "rubric": "q", "criterion": "c1", "annotator": "bob", "value": false}\n'
    assert run(db, path, line).new["labels"] == 1
    verdict = '{"criterion": "c", "text": "T", "weight": 2, "outcome": "scored", "value": 1.0}'
    for rows in (line, verdict, '{"criterion": "A", "weight": 1, "annotator": "x", "value": 1}'):
        with pytest.raises(InvalidFileError) as caught:
            run(db, path, rows, noun="rubrics")
        assert caught.value.errors[0].code == "unknown_format" and "labels import" in caught.value.hint


def test_import_reads_a_raters_sheet_with_a_column_for_each_criterion(db: Database, tmp_path: Path) -> None:
    """Values are words of a judge or numbers of the scale; an empty cell is no label, an unknown column a note."""
    scaled = {"key": "clear", "text": "B", "scale": [1, 5]}, {"text": "C", "scale": {"poor": 0, "good": 1}}
    criteria = ["Is kind.", *scaled]
    record = {"id": "q", "name": "r", "prompt": "Q", "criteria": criteria, "completions": ["b", "c"]}
    run(db, tmp_path / "r.jsonl", json.dumps(record))
    sheet = "Completion ID,Rubric,Answer,IS KIND.,clear,c3,Mood\n1,r,b,Yes,4 stars,Good,x\n2,r@1,c,not met,,null,\n"
    result = run(db, tmp_path / "eve.csv", sheet)
    assert result.new["labels"] == 5 and [one.code for one in result.notes] == ["ignored"] * 3
    with db.read() as session:
        values = [(row.label.criterion, row.label.annotator, row.label.value) for row in labels.page(session)]
    pairs = [("c1", 1.0), ("clear", 0.75), ("c3", 1.0), ("c1", 0.0), ("c3", None)]
    assert values == [(key, "eve", value) for key, value in pairs]
    columns = ["accuracy", "comments", "response", "values"]
    named = record | {"name": "n", "criteria": [{"key": key, "text": key} for key in columns]}
    run(db, tmp_path / "n.jsonl", json.dumps(named))
    for rows, expected in {
        "accuracy,comments,response,values\n1,n,yes,no,yes,no\n": {key: (key in columns[::2], None) for key in columns},
        "accuracy,Remark,completion,text\n2,n,no,why,c,\n": {"accuracy": (0, "why")},
        "criterion,score,Comments,prompt\n2,n,values,yes,good,c\n": {"values": (1, "good")},
    }.items():
        result = run(db, tmp_path / "sheet.csv", "completion_id,rubric," + rows)
        with db.read() as session:
            found = [row.label for row in labels.page(session) if row.id in result.label_ids]
        assert {one.criterion: (one.value, one.note) for one in found} == expected and not result.notes, rows
    columns = ["score", "rater", "value", "annotator"]
    named = record | {"name": "k", "criteria": [*({"key": key, "text": f"The {key}."} for key in columns), "Is kind."]}
    run(db, tmp_path / "k.jsonl", json.dumps(named))
    for rows, annotator, expected in (
        ("Rater,score,c5\n1,k,yes,no,yes\n", "sheet", {"rater": 1, "score": 0, "c5": 1}),
        ("value,c5\n1,k,no,yes\n", "sheet", {"value": 0, "c5": 1}),
        ("grade,reviewer,c5\n2,k,B,ann,yes\n", "ann", {"c5": 1}),  # as no criterion is named so, with a note
        ("The annotator.,rater,score,c5\n2,k,yes,no,,yes\n", "sheet", {"annotator": 1, "rater": 0, "c5": 1}),
        ("criterion,rater,score\n2,k,score,dan,yes\n", "dan", {"score": 1}),
    ):
        result = run(db, tmp_path / "sheet.csv", "completion_id,rubric," + rows, replace_labels=True)
        with db.read() as session:
            found = [row.label for row in labels.page(session) if row.id in result.label_ids]
        assert {one.criterion: one.value for one in found} == expected, rows
        assert {one.annotator for one in found} == {annotator} and len(result.notes) == ("grade" in rows), rows
    with pytest.raises(InvalidFileError) as caught:
        run(db, tmp_path / "sheet.csv", "completion_id,rubric,annotator,c5\n1,k,bob,yes\n")
    assert [one.code for one in caught.value.errors] == ["ambiguous_column"] and "rater" in caught.value.hint
    rows = [("clear", "0.5"), ("c1", "maybe"), ("c3", "2"), *((key, "1 stars") for key in ("c1", "c3", "overall"))]
    for column, value in [*rows, ("c1,Is kind.", "yes,no")]:
        with pytest.raises(InvalidFileError) as caught:
            run(db, tmp_path / "x.csv", f"completion_id,rubric,{column}\n1,r,{value}\n")
        assert [(one.line, one.path) for one in caught.value.errors] == [(2, "Is kind." if "," in value else column)]


def test_import_reports_references_to_missing_rows(db: Database, path: Path) -> None:
    run(db, path, RECORD)
    with pytest.raises(InvalidFileError) as caught:
        run(db, path, '{"prompt_id": "none", "text": "b"}\n{"prompt_id": 99, "text": "b"}\n')
    assert [(e.line, e.path, e.code) for e in caught.value.errors] == [
        (1, "prompt_id", "not_found"),
        (2, "prompt_id", "not_found"),
    ]
    line = '{"completion_id": 9, "rubric": "q", "criterion": "c1", "annotator": "bob", "value": 1}\n'
    with pytest.raises(InvalidFileError) as caught:
        run(db, path, line)
    assert [(e.line, e.code) for e in caught.value.errors] == [(1, "not_found")]


def test_import_replaces_labels_on_request(db: Database, path: Path) -> None:
    run(db, path, RECORD)
    other = RECORD.replace('"ann": 1', '"ann": 0')
    with pytest.raises(ConflictError):
        run(db, path, other)
    done = run(db, path, other, replace_labels=True)
    assert (done.label_ids, done.replaced, done.existing["labels"]) == ([1], {"labels": 1}, 0)


def test_import_reports_contradicting_labels_with_all_other_errors(db: Database, path: Path) -> None:
    run(db, path, RECORD)
    line = '{"completion_id": 1, "rubric": "q", "criterion": "c1", "annotator": "ann", "value": 1}\n'
    eve, missing = line.replace('"ann"', '"eve"'), line.replace('"completion_id": 1', '"completion_id": 9')
    lines = [line, line.replace('"value": 1', '"value": 0'), missing, eve, eve.replace('"value": 1', '"value": 0.5')]
    with pytest.raises(InvalidFileError) as caught:
        run(db, path, "".join(lines))
    assert [(e.line, e.code) for e in caught.value.errors] == [(2, "conflict"), (3, "not_found"), (5, "conflict")]
    assert "--replace" in caught.value.hint
    result = run(db, path, "".join(lines), skip_invalid=True)
    assert (result.new["labels"], result.skipped_records) == (1, 3)
