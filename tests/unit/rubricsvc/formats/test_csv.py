"""CSV files: of criteria, and of completions."""

import re
from pathlib import Path
from zipfile import ZipFile

import pytest

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Binary, Check, Criterion, Level, Numeric, Ordinal, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.formats import InputFile, InvalidFileError, Record, load
from rubricsvc.formats.input_file import neutralized
from rubricsvc.services.importing import Imports
from rubricsvc.store import completions
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import CompletionRow
from tests.unit.rubricsvc.formats.invalid import dump, errors_of


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


def test_load_reads_scales_and_checks_as_yaml_and_json(path: Path) -> None:
    path.write_text('criterion,scale,check\na,"{no: 0, yes: 1}"\nb,"{""no"": 0, ""yes"": 1}"\nc,,"{words: {max: 9}}"\n')
    (record,) = load(path)
    assert record.rubric is not None
    first, second, third = record.rubric.criteria
    assert first.scale == second.scale == Ordinal(levels=(Level(label="no", value=0), Level(label="yes", value=1)))
    assert third.check == Check(name="words", args={"max": 9})


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


def test_load_fills_down_as_in_merged_cells_and_says_so(path: Path) -> None:
    """A blank name and prompt are those above, unless the other differs: a rubric for any prompt stays one."""
    path.write_text(
        "\ufeffPrompt ;NAME;Rubric item;Weight [pts];Owner;Axis\r\nOne?;a;Says one;2,5;me;x\r\n;;Is kind;−1;;\r\n"
        ";;Is short;;;y\r\nTwo?;b;Says two;1;;\r\nTwo?;;Is kind;1;;z\r\n;c;Is kind;1;;\r\n;;;;;\r\n;;Summe:;9;;\r\n"
    )
    records = load(path)
    named = [("a", "One?"), ("b", "Two?"), ("c", None)]
    assert [(one.name, one.prompt and one.prompt.text) for one in records] == named
    weights = [[one.weight for one in record.rubric.criteria] for record in records if record.rubric]
    assert weights == [[2.5, -1.0, 1.0], [1.0, 1.0], [1.0]]
    groups = [["".join(one.group) for one in record.rubric.criteria] for record in records if record.rubric]
    assert groups == [["x", "x", "y"], ["", "z"], [""]]
    assert [(note.code, note.message[-3:]) for note in records.notes] == [
        ("ignored", "ead"),
        ("filled", ": 3"),
        ("ignored", "ead"),
    ]


def test_csv_of_a_draft_carries_scale_and_check_and_stays_a_draft(db: Database, path: Path) -> None:
    levels = Ordinal(levels=(Level(label="poor", value=0.0), Level(label="good", value=1.0, text="Cites a source.")))
    scales = (levels, Numeric(low=1, high=5), Binary())
    criteria = tuple(Criterion(key=f"k{n}", text="Is good.", scale=scale) for n, scale in enumerate(scales))
    check = Criterion(key="words", text="Is short.", check=Check(name="words", args={"max": 9}))
    rubric = Rubric(criteria=(*criteria, check), formula="mean")
    dump([Record(Prompt.of("One?"), rubric, name="r", state="draft")], path, "criteria_csv")
    (again,) = load(path)
    assert (again.rubric, again.state) == (rubric, "draft")
    path.write_text(path.read_text().replace("Is short.", "Is brief."))
    assert [*Imports(db).create(path).not_approved.values()] == ["draft"]
    with pytest.raises(InvalidError) as caught:
        dump([Record(Prompt.of("One?"), rubric, state="draft")], path.with_suffix(".jsonl"), "verl")
    assert caught.value.path == "state"
    for lost in ({"min_coverage": 0.5}, {"criteria": (check.model_copy(update={"passages": ("a",)}),)}):
        with pytest.raises(InvalidError) as caught:
            dump([Record(None, rubric.model_copy(update=lost))], path, "criteria_csv")
        assert caught.value.path in ("min_coverage", "passages")


def test_load_reports_errors_with_their_lines(path: Path) -> None:
    for content, expected in [
        (
            "criterion,weight\na,high\nb,1\n,2\n",
            [(2, "criteria[0].weight", "shape"), (4, "criteria[2].criterion", "missing")],
        ),
        ('criterion,scale\na,"{no: 0, no: 1}"\n', [(2, "criteria[0].scale", "shape")]),
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
    path.write_text("Answer ID,Question,Answer,Grade,Comments\n7,One?,3,B,good\n")
    assert len(Imports(db).create(path).notes) == 2
    path.write_text("prompt,reference,tags,completion\nSix?,6,,a\n,,,b\nTwo?,,,c\n,,,d\n")
    filled = Imports(db).create(path)
    assert [(one.code, one.message[-3:]) for one in filled.notes] == [("filled", ": 2")]
    assert (filled.new["prompts"], filled.new["completions"]) == (1, 4), "Two? is known"
    with db.read() as session:
        first, second, third, *_ = (row.value for row in page_of(session, CompletionRow))
    assert (first.text, first.policy, first.step) == ("1", "mine", 3)
    assert (third.text, third.id) == ("3", "7")
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


def test_load_reads_the_first_sheet_of_a_workbook(tmp_path: Path) -> None:
    """Merged cells have the value of the first; what is no workbook, or a formula without a value, is an error."""
    openpyxl, path = pytest.importorskip("openpyxl"), tmp_path / "r.xlsx"
    book = openpyxl.Workbook()
    sheet = book.active
    for row in [
        ("Name", "Question", "Category", "Criterion", "Points", "Required", None),
        ("a", "One?", "tone", "Is kind.", 2.5, True, None),
        (None, None, None, "Is calm.", -1, None, None),
        ("b", "Two?", None, 7, 1, None, None),
    ]:
        sheet.append(row)
    sheet.merge_cells("C2:C3")
    book.create_sheet("Notes")
    book.save(path)
    for name in ("r.xlsx", "renamed.csv"):
        records = load(path.rename(path := tmp_path / name))
        found = [
            [(one.text, one.weight, one.group, one.required) for one in r.rubric.criteria] for r in records if r.rubric
        ]
        first = [("Is kind.", 2.5, ("tone",), True), ("Is calm.", -1.0, ("tone",), False)]
        assert found == [first, [("7", 1.0, (), False)]]
        assert [one.code for one in records.notes] == ["ignored", "filled", "filled"]
    content = path.read_bytes()
    with ZipFile(path) as archive, ZipFile(other := tmp_path / "other.xlsx", "w") as rewritten:
        for name in archive.namelist():  # as other programs write it
            part = archive.read(name).replace(b'mergeCell ref="C2:C3"', b"mergeCell\n  ref='C2:C3'")
            rewritten.writestr(name, part)
    assert [(r.rubric, r.name) for r in load(other)] == [(r.rubric, r.name) for r in load(path)]
    with pytest.raises(InvalidFileError, match=r"^[^:]*: has more than 24"):
        InputFile(path, max_values=24).first()
    with ZipFile(path) as archive, ZipFile(other, "w") as rewritten:
        for name in archive.namelist():  # openpyxl would lose the weight
            part = re.sub(rb'(<c r="D2".*?</c>)(<c r="E2".*?</c>)(.*?)(</row>)', rb"\1\3\2\4", archive.read(name))
            rewritten.writestr(name, part)
    assert [one[3] for one in errors_of(other)] == ["shape"]
    sheet["E2"] = "=1+1"
    book.save(path := tmp_path / "r.xlsx")
    invalid = [(path.read_bytes(), "shape"), (b"\xd0\xcf\x11\xe0" + bytes(600), "not_readable"), (b"", "not_readable")]
    invalid += [(content[: len(content) // 2], "not_readable"), (b"PK\3\4" + bytes(30), "not_readable")]
    for data, code in invalid:
        path.write_bytes(data)
        assert [one[3] for one in errors_of(path)] == [code]


def test_load_reads_utf16_and_names_what_is_no_text(path: Path) -> None:
    text = "criterion\tweight\r\n“Boil” it\t2\r\n"
    path.write_bytes(text.encode("utf-16"))
    (record,) = load(path)
    assert record.rubric is not None and record.rubric.criteria[0].text == "“Boil” it"
    for data, code in (
        (text.encode("cp1252"), "encoding"),
        (text.encode("utf-16-le"), "not_text"),
        (b"", "no_records"),
    ):
        path.write_bytes(data)
        assert [one[3] for one in errors_of(path)] == [code]


def test_dump_refuses_two_versions_of_a_name_as_csv(path: Path) -> None:
    """Their rows would be one rubric, in the state of the first."""
    versions = [Record(None, Rubric(criteria=(Criterion(key="c1", text=text),)), name="r") for text in ("One.", "Two.")]
    with pytest.raises(InvalidError, match="two versions of a name"):
        dump(versions, path, "criteria_csv")
