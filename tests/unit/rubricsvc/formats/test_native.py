import json
from contextlib import suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rubricsvc.core.prompt import Completion, Document, Message, Prompt
from rubricsvc.core.rubric import Binary, Check, Criterion, Group, Level, Numeric, Ordinal, Rubric
from rubricsvc.core.verdict import Label
from rubricsvc.formats import FIELDS, FORMATS, HIDDEN, InputFile, InvalidFileError, Record, load
from rubricsvc.formats.writing import plain, write_text

SHORT = """\
id: q1
name: greeting
prompt: Say hello.
reference: Hello!
documents: [{id: d, text: Doc.}]
tags: [easy]
formula: tree
min_coverage: 0.5
groups: {style: 0.25, content: 0.75, content/facts: 2}
criteria:
  - Greets.
  - {key: warm, text: Is warm., weight: 3, group: style, scale: {cold: 0, warm: 1}, required: true}
  - {text: How long?, group: content/facts, scale: [1, 5], tags: [axis]}
  - {text: Has a smile., check: {contains: {terms: [":-)"]}}}
  - {text: Is clean., check: clean}
completions:
  - Hi.
labels: {c1: true, warm: [1, 0.5, null]}
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_read_expands_short_forms(tmp_path: Path) -> None:
    (record,) = load(write(tmp_path, "r.yaml", SHORT))
    assert record.prompt == Prompt.of(
        "Say hello.", reference="Hello!", documents=[Document(id="d", text="Doc.")], tags=["easy"]
    )
    assert (record.id, record.name) == ("q1", "greeting")
    assert record.rubric == Rubric(
        formula="tree",
        min_coverage=0.5,
        groups=(
            Group(path=("style",), weight=0.25),
            Group(path=("content",), weight=0.75),
            Group(path=("content", "facts"), weight=2),
        ),
        criteria=(
            Criterion(key="c1", text="Greets."),
            Criterion(
                key="warm",
                text="Is warm.",
                weight=3,
                group=("style",),
                scale=Ordinal(levels=(Level(label="cold", value=0), Level(label="warm", value=1))),
                required=True,
            ),
            Criterion(
                key="c3", text="How long?", group=("content", "facts"), scale=Numeric(low=1, high=5), tags=("axis",)
            ),
            Criterion(key="c4", text="Has a smile.", check=Check(name="contains", args={"terms": [":-)"]})),
            Criterion(key="c5", text="Is clean.", check=Check(name="clean")),
        ),
    )
    assert record.completions == (Completion(text="Hi."),)
    assert record.labels == (
        Label(criterion="c1", annotator="person 1", value=1.0),
        Label(criterion="warm", annotator="person 1", value=1.0),
        Label(criterion="warm", annotator="person 2", value=0.5),
        Label(criterion="warm", annotator="person 3"),
    )


@pytest.mark.parametrize("name", ["r.json", "r.jsonl", "r.yaml"])
def test_read_accepts_a_prompt_or_a_rubric(tmp_path: Path, name: str) -> None:
    (record,) = load(write(tmp_path, name, '{"prompt": "x", "completions": [{"text": ""}]}'))
    assert record.rubric is None and record.completions == (Completion(text=""),)
    (record,) = load(write(tmp_path, name, '{"criteria": ["x"]}'))
    assert record.prompt is None


def test_read_takes_the_text_of_a_trajectory_from_its_last_answer(tmp_path: Path) -> None:
    said = [{"role": "assistant", "content": "a"}, {"role": "tool", "content": "b"}]
    record = {"prompt": "x", "completions": [{"messages": said}]}
    (read,) = load(write(tmp_path, "r.jsonl", json.dumps(record)))
    assert read.completions[0].text == "a"


def test_example_is_valid(tmp_path: Path) -> None:
    from rubricsvc import formats
    from workers import checks

    text = Path(formats.__file__).with_name("example.yaml").read_text()
    before, examples = text.split("# examples:")
    whole = write(tmp_path, "whole.yaml", f"{before}examples:{examples}".replace("\n#   ", "\n  "))
    for path, count in ((write(tmp_path, "example.yaml", text), 0), (whole, 2)):
        (record,) = load(path)
        assert record.rubric is not None and len(record.rubric.examples or ()) == count
        checks.validate(record.rubric)


VISIBLE = st.characters(exclude_categories=["Cs"], exclude_characters="\0").filter(lambda one: not HIDDEN.match(one))
TEXT = st.text(VISIBLE, max_size=30)
SOME = TEXT.filter(bool)
NAME = st.text("abcxyz-_ é:#'\"", min_size=1, max_size=12).filter(lambda name: name == name.strip() and bool(name))
LABEL = SOME.map(lambda text: " ".join(text.split()).casefold()).filter(bool)
SHARE = st.floats(0, 1)
SCALES = st.one_of(
    st.just(Binary()),
    st.builds(lambda low, width: Numeric(low=low, high=low + width), st.integers(-5, 5), st.integers(1, 9)),
    st.lists(
        st.tuples(LABEL, SHARE), min_size=2, max_size=4, unique_by=(lambda p: p[0].casefold(), lambda p: p[1])
    ).map(lambda pairs: Ordinal(levels=tuple(Level(label=label, value=value, text=label) for label, value in pairs))),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
CRITERIA = st.lists(
    st.builds(
        Criterion,
        key=NAME,
        text=SOME,
        weight=st.floats(0.5, 10),
        scale=SCALES,
        check=st.none() | st.builds(Check, name=NAME, args=st.dictionaries(TEXT, JSON, max_size=2)),
        group=st.lists(SOME, max_size=2).map(tuple),
        required=st.booleans(),
        tags=st.lists(TEXT, max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda criterion: criterion.key,
).map(tuple)
RUBRICS = st.builds(
    Rubric, criteria=CRITERIA, formula=st.sampled_from(["weighted_mean", "healthbench", "tree"]), min_coverage=SHARE
)
MESSAGES = st.lists(
    st.builds(Message, role=st.sampled_from(["system", "user", "assistant", "tool"]), content=TEXT),
    min_size=1,
    max_size=3,
).map(tuple)
PROMPTS = st.builds(
    Prompt,
    messages=MESSAGES,
    reference=st.none() | TEXT,
    documents=st.lists(st.builds(Document, id=TEXT, text=TEXT, title=TEXT), max_size=2).map(tuple),
    tags=st.lists(TEXT, max_size=2).map(tuple),
)
COMPLETIONS = st.builds(
    Completion,
    text=TEXT,
    messages=st.just(()) | MESSAGES,
    policy=TEXT,
    step=st.none() | st.integers(0, 9),
    sampling=st.dictionaries(TEXT, JSON, max_size=2),
    id=st.none() | TEXT,
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    prompt, rubric = draw(st.none() | PROMPTS), draw(st.none() | RUBRICS)
    if prompt is None and rubric is None:
        rubric = draw(RUBRICS)
    completions = tuple(draw(st.lists(COMPLETIONS, max_size=2))) if prompt else ()
    labels: list[Label] = []
    if rubric is not None and len(completions) == 1:
        for criterion in rubric.criteria:
            people = draw(st.sampled_from([("ann", "bob"), ("person 1", "person 2")]))
            values = draw(st.lists(st.none() | SHARE, max_size=2))
            labels += [
                Label(criterion=criterion.key, annotator=person, value=value)
                for person, value in zip(people, values, strict=False)
            ]
    return Record(prompt, rubric, completions, tuple(labels), draw(st.none() | NAME), draw(NAME))


@given(given_records=st.lists(records(), min_size=1, max_size=3), as_yaml=st.booleans())
def test_dump_can_be_read_back(given_records: list[Record], as_yaml: bool) -> None:
    stream = StringIO()
    write_text(map(plain, given_records), stream, "yaml" if as_yaml else "jsonl")
    with TemporaryDirectory() as folder:
        path = write(Path(folder), "r.yaml" if as_yaml else "r.jsonl", stream.getvalue())
        assert list(load(path, "native")) == given_records


@given(text=st.text(st.sampled_from(list("ab:,-[]{}#&*!|>'\"%@`\n \t?~.0123456789eE+")), max_size=40))
def test_load_raises_only_format_errors_for_random_yaml(text: str) -> None:
    from rubricsvc.errors import FormatError

    with TemporaryDirectory() as folder:
        path = write(Path(folder), "r.yaml", text)
        try:
            load(path)
        except FormatError as error:
            assert str(path) in str(error)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(0.5) | st.sampled_from(["", "a", "Says why."]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "key", "a"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@example(record={"criteria": [1]}, name=None)
@example(record={"criterion": "a", "name": {}}, name="criteria_csv")
@given(
    record=st.dictionaries(st.sampled_from(FIELDS), ANY_JSON, min_size=1, max_size=4),
    name=st.sampled_from([None, *FORMATS]),
)
def test_load_raises_only_format_errors_for_random_fields(record: dict[str, object], name: str | None) -> None:
    with TemporaryDirectory() as folder, suppress(InvalidFileError):
        load(write(Path(folder), "r.json", json.dumps(record)), name)


def test_docs_name_every_field_and_have_valid_examples(tmp_path: Path) -> None:
    import re

    from rubricsvc.formats import record

    text = (Path(__file__).resolve().parents[4] / "docs" / "formats.md").read_text(encoding="utf-8")
    for field in {*record.FIELDS, *record.COMPLETION_FIELDS, *record.LABEL_FIELDS, *Criterion.model_fields}:
        assert f"`{field}`" in text, field
    blocks = [one for one in re.findall(r"```(yaml|json)\n(.*?)```", text, re.DOTALL) if not one[1].startswith("about")]
    assert [kind for kind, _ in blocks] == ["yaml", "json", "json"]
    readers = (record.read, record.read_completion, record.read_label)
    for (kind, block), read in zip(blocks, readers, strict=True):
        path = write(tmp_path, f"example.{kind}l" if kind == "json" else "example.yaml", block)
        file = InputFile(path)
        assert list(file.parse(read)) and not file.errors.count
