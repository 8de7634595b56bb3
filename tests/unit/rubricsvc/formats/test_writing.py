"""Round trips of made-up rubrics through every format that can be written, in every container."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Check, Criterion, Level, NumberRange, Numeric, Ordinal, Rubric, RubricExample
from rubricsvc.errors import InvalidError
from rubricsvc.formats import Record, load
from rubricsvc.formats.writing import WRITERS, rows
from tests.unit.rubricsvc.formats.invalid import dump, errors_of

LEVELS = Ordinal(levels=tuple(Level(label=f"{value:g}", value=value) for value in (0.0, 0.5, 1.0)))
# Spreadsheets read a leading "-" as a formula; a text with a quote before it stays so (docs/formats.md)
TEXT = st.text("abcé=+@<&>{}[]\"',;:# \n\t中\\", min_size=1, max_size=20).filter(lambda text: bool(text.strip()))
NAME = st.text("abcxyz", min_size=1, max_size=8)
SCALES = st.sampled_from([None, Numeric(low=0.0, high=4.0), LEVELS])
CHECKS = st.sampled_from(
    [
        None,
        Check(name="math", args={"answer": "4"}),
        Check(name="words", args={"min": 1, "max": 9}),
        Check(name="ifeval", args={"instruction_id": "punctuation:no_comma", "kwargs": {}}),
    ]
)


@st.composite
def rubrics(draw: st.DrawFn) -> Rubric:
    keys = draw(st.lists(NAME, min_size=1, max_size=4, unique=True))
    criteria = []
    for key in keys:
        scale = draw(SCALES)
        check = draw(CHECKS) if scale is None else None
        fields = {"scale": scale} if scale else {"check": check}
        weight = draw(st.sampled_from([0.5, 1.0, 2.0, 3.0, 4.0, -2.0]))
        tags = tuple(draw(st.lists(NAME, max_size=2)))
        criteria.append(Criterion(key=key, text=draw(TEXT), weight=weight, tags=tags, **fields))
    examples = draw(st.lists(examples_of(criteria), max_size=2, unique_by=lambda one: one.key))
    return Rubric(criteria=tuple(criteria), examples=tuple(examples) or None)


@st.composite
def examples_of(draw: st.DrawFn, criteria: list[Criterion]) -> RubricExample:
    criterion, text = draw(st.sampled_from(criteria)), draw(TEXT)
    level = NumberRange(min=1, max=1) if not isinstance(criterion.scale, Numeric) else NumberRange(min=0.5)
    quotes: dict[str, tuple[str, ...]] = {criterion.key: (text[-1:] if text[-1:].strip() else text,)}
    expected = draw(st.sampled_from([level, NumberRange(max=0.75), NumberRange(min=0.25, max=1)]))
    return RubricExample(
        key=draw(NAME),
        text=text,
        prompt=draw(st.none() | st.builds(Prompt.of, TEXT, reference=st.none() | TEXT)),
        verdicts={criterion.key: expected},
        reward=draw(st.none() | st.just(NumberRange(max=1))),
        evidence=draw(st.none() | st.just(quotes)),
    )


@st.composite
def records(draw: st.DrawFn) -> Record:
    prompt = draw(st.none() | st.builds(Prompt.of, TEXT))
    return Record(prompt, draw(rubrics()), id=draw(st.none() | NAME), name=draw(NAME))


@pytest.mark.parametrize("name", WRITERS)
@given(record=records())
def test_dump_writes_again_what_it_carried(name: str, record: Record) -> None:
    """What is written is read back, and written again without any further loss."""
    with TemporaryDirectory() as folder:
        ending = ".csv" if name == "criteria_csv" else ".jsonl"
        out, again = Path(folder) / f"out{ending}", Path(folder) / f"again{ending}"
        try:
            dump([record], out, name)
        except InvalidError:
            return  # it cannot carry the record, and says so
        (carried, *_) = load(out, name)
        if name == "native":
            assert carried.rubric == record.rubric and carried.prompt == record.prompt
        dump([carried], again, name)
        (repeated, *_) = load(again, name)
        assert (repeated.rubric, repeated.prompt) == (carried.rubric, carried.prompt) or name == "openai_grader"


@pytest.mark.parametrize("name", ["native", "verl"])
@given(record=records())
def test_dump_carries_the_whole_rubric(name: str, record: Record) -> None:
    prompt = record.prompt or Prompt.of("Why?")
    whole = Record(prompt, record.rubric, id="p1", name="r")
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out.jsonl"
        dump([whole], out, name)
        (again,) = load(out, name)
    assert again.prompt == prompt
    assert again.rubric is not None and record.rubric is not None
    for one, other in zip(again.rubric.criteria, record.rubric.criteria, strict=True):
        same = {"scale": other.scale} if name == "verl" else {}
        assert one.model_copy(update=same) == other


def test_load_reads_what_is_written_as_parquet(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    criteria = (
        Criterion(key="c1", text="Is right.", weight=5, check=Check(name="math", args={"answer": "4"})),
        Criterion(key="tone", text="Is kind.", tags=("axis:tone",)),
    )
    record = Record(Prompt.of("2+2?"), Rubric(criteria=criteria), id="7", name="r")
    table = pa.Table.from_pylist(list(rows([record, record], "verl")))
    parquet.write_table(table, tmp_path / "train.parquet")
    first, _ = load(tmp_path / "train.parquet")
    assert first.rubric == record.rubric and first.prompt == record.prompt and first.id == "7"
    not_utf8 = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    for columns, code in (([["a"], ["b"]], "columns"), ([not_utf8, ["b"]], "not_readable")):
        names = ["prompt", "prompt" if code == "columns" else "criteria"]
        parquet.write_table(pa.Table.from_arrays(list(map(pa.array, columns)), names), tmp_path / "train.parquet")
        assert [one[3] for one in errors_of(tmp_path / "train.parquet")] == [code]


@pytest.mark.parametrize(("name", "path"), [("paperbench", "format"), ("x", "format"), ("healthbench", "prompt")])
def test_dump_refuses_what_a_format_cannot_carry(name: str, path: str, tmp_path: Path) -> None:
    rubric = Rubric(criteria=(Criterion(key="a", text="Is rude.", weight=-1), Criterion(key="b", text="Is right.")))
    with pytest.raises(InvalidError) as caught:
        dump([Record(None, rubric, name="r")], tmp_path / "out.jsonl", name)
    assert caught.value.path == path
