"""CSV files: of criteria, and of completions."""

from pathlib import Path

import pytest

from rubricsvc.core.prompt import Prompt
from rubricsvc.formats import InvalidFileError, load
from rubricsvc.formats.input_file import neutralized
from rubricsvc.services.importing import Imports
from rubricsvc.store import completions
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import CompletionRow
from tests.unit.rubricsvc.formats.invalid import errors_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fridge.csv"


def test_load_reads_criteria(path: Path) -> None:
    path.write_text(
        "criterion,weight,key,group,required,tags\n"
        '"Names the dose, in mg",3,dose,content/facts,yes,safety; units\n'
        "Is rude,-1\n"
        '"Two\nlines",,,,no\n'
    )
    (record,) = load(path)
    assert (record.name, record.prompt) == ("fridge", None)
    assert record.rubric is not None
    first, second, third = record.rubric.criteria
    assert (first.key, first.text, first.weight, first.required) == ("dose", "Names the dose, in mg", 3.0, True)
    assert (first.group, first.tags) == (("content", "facts"), ("safety", "units"))
    assert (second.key, second.weight, third.text, third.weight) == ("c2", -1.0, "Two\nlines", 1.0)


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_load_reads_other_delimiters(path: Path, delimiter: str) -> None:
    path.write_text("\ufeffcriterion,weight\r\nSays one,2\r\n".replace(",", delimiter))
    (record,) = load(path)
    assert record.rubric is not None and record.rubric.criteria[0].weight == 2.0


def test_load_groups_rows_by_prompt(path: Path) -> None:
    path.write_text("id,prompt,criterion\na,One?,Says one\nb,Two?,Says two\na,One?,Is kind\n")
    first, second = load(path)
    assert [record.name for record in (first, second)] == ["a", "b"]
    assert first.prompt is not None and first.prompt.text == "One?"
    assert first.rubric is not None and [one.text for one in first.rubric.criteria] == ["Says one", "Is kind"]


def test_load_reports_errors_with_their_lines(path: Path) -> None:
    for content, expected in [
        (
            "criterion,weight\na,high\nb,1\n,2\n",
            [(2, "criteria[0].weight", "shape"), (4, "criteria[2].criterion", "missing")],
        ),
        ("criterion,wieght\na,1\nb,1\n", [(2, "criteria[0].wieght", "extra_forbidden")]),
        ("criterion,weight\na,1,2\n", [(2, "", "columns")]),
        ("criterion,criterion\na,1\n", [(1, "", "columns")]),
        ('criterion,weight\n"a"b,1\n', [(2, "", "csv")]),
        ("question,answer\na,b\n", [(None, "", "unknown_format")]),
        ("criterion,weight\n", [(None, "", "no_records")]),
    ]:
        path.write_text(content)
        assert [error[1:] for error in errors_of(path)] == expected


def test_load_leaves_a_rubric_with_an_invalid_row_out(path: Path) -> None:
    path.write_text("name,criterion,weight\none,a,high\none,b,1\ntwo,c,1\n")
    assert [record.name for record in load(path, skip_invalid=True)] == ["two"]


def test_load_names_the_command_for_completions(path: Path) -> None:
    path.write_text("prompt,text\nOne?,1\n")
    with pytest.raises(InvalidFileError) as caught:
        load(path)
    assert "completions import" in caught.value.hint


def test_import_file_reads_completions_from_csv(db: Database, path: Path) -> None:
    with db.write() as session:
        completions.add_prompt(session, Prompt.of("Two?"), "two")
    path.write_text("prompt,prompt_id,text,policy,step\nOne?,,1,mine,3\n,two,2,,\n")
    Imports(db).create(path)
    with db.read() as session:
        first, second = (row.value for row in page_of(session, CompletionRow))
    assert (first.text, first.policy, first.step) == ("1", "mine", 3)
    assert (second.text, second.policy, second.step) == ("2", "", None)


def test_load_reads_quoted_and_formula_like_cells_as_they_are(path: Path) -> None:
    path.write_text("criterion,weight\n\"=1+1, or so\",-1\n'-ed' is a suffix\n")
    (record,) = load(path)
    assert record.rubric is not None
    assert [(one.text, one.weight) for one in record.rubric.criteria] == [
        ("=1+1, or so", -1.0),
        ("'-ed' is a suffix", 1.0),
    ]


def test_neutralized_prefixes_formulas_only() -> None:
    """Text in CSV files that a spreadsheet would run."""
    for start in ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "'=", "''@", " =", "\u00a0+"):
        assert neutralized(f"{start}cmd|' /C calc'!A0") == f"'{start}cmd|' /C calc'!A0"
    for value in ("text", "'quoted'", "1=1", "", " ", -1.5, 3, None):
        assert neutralized(value) is value
