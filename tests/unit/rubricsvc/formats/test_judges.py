"""Judge files, of which the documentation has every field, and passports."""

import io
import re
from pathlib import Path

import pytest

from rubricsvc.core.judge import Comparison, Endpoint, Judge, Price, Sampling, Thinking, TrajectoryOptions, Voting
from rubricsvc.errors import NotFoundError
from rubricsvc.formats.documents import dump_judge, load_judges, load_passport
from rubricsvc.formats.record import InvalidFileError
from tests.made_passport import made_passport

DOCS = Path(__file__).parents[4] / "docs" / "judges.md"
NESTED = (Endpoint, Sampling, Voting, Thinking, Comparison, TrajectoryOptions, Price)


def not_stored(name: str) -> Judge:
    raise NotFoundError(f"no judge {name!r}", hint="")


def load(path: Path, text: str) -> list[Judge]:
    path.write_text(text)
    return load_judges(path, not_stored)


def test_docs_table_has_every_field_of_a_judge() -> None:
    text = DOCS.read_text(encoding="utf-8")
    fields = set(re.findall(r"`(?:endpoint)?\.?(\w+)`", text)) | set(re.findall(r"(\w+):", text))
    assert Judge.model_fields.keys() - {"endpoint"} <= fields
    for model in NESTED:
        assert model.model_fields.keys() <= fields, model


def test_docs_example_is_a_judge_file(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    (judge,) = load(tmp_path / "judge.yaml", block)
    assert judge.thinking == Thinking(budget_tokens=2048)


def test_dump_judge_is_loaded_as_an_equal_judge(tmp_path: Path) -> None:
    member = Judge(name="a", model="m", endpoint=Endpoint(price=Price(prompt=1.5)))
    other = Judge(name="b", model="m", mode="written", sampling=Sampling(temperature=0.5))
    for judge in (member, other, Judge(name="c", mode="cascade", members=(member, other), band=(0.2, 0.8))):
        stream = io.StringIO()
        dump_judge(judge, stream)
        assert load(tmp_path / "judge.yaml", stream.getvalue()) == [judge]


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        (
            "- {name: a, model: m, threshold: 2}\n- {name: p, mode: panel, members: [a, x]}\n",
            [(1, "threshold", "less_than"), (2, "members[0]", "not_found")],
        ),
        ("name: a\nmodel: m1\n---\nname: a\nmodel: m2\n", [(4, "name", "duplicate_key")]),
    ],
)
def test_load_judges_collects_the_errors_of_all_judges(
    tmp_path: Path, text: str, errors: list[tuple[int, str, str]]
) -> None:
    with pytest.raises(InvalidFileError) as caught:
        load(tmp_path / "judges.yaml", text)
    assert [(error.line, error.path, error.code) for error in caught.value.errors] == errors


def test_load_passport_reads_a_written_one(tmp_path: Path) -> None:
    path = tmp_path / "passport.json"
    path.write_text(made_passport().model_dump_json(exclude_none=True) + "\n")
    assert load_passport(path) == made_passport()


@pytest.mark.parametrize(
    ("text", "code", "path"),
    [
        ("{", "json_invalid", ""),
        ("[]", "value_error", ""),
        ('{"version": 2}', "literal_error", "version"),
        ('{"weights_sha256": "x"}', "string_pattern_mismatch", "weights_sha256"),
    ],
)
def test_load_passport_names_the_errors(tmp_path: Path, text: str, code: str, path: str) -> None:
    file = tmp_path / "passport.json"
    file.write_text(text)
    with pytest.raises(InvalidFileError) as caught:
        load_passport(file)
    assert (code, path) in {(error.code, error.path) for error in caught.value.errors}
