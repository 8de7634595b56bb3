from __future__ import annotations

from pathlib import Path

import pytest

from rubricsvc.formats.documents import load_passport
from rubricsvc.formats.record import InvalidFileError
from tests.made_passport import made_passport


def test_load_passport_reads_a_written_one(tmp_path: Path) -> None:
    path = tmp_path / "passport.json"
    with path.open("w") as stream:
        stream.write(made_passport().model_dump_json(exclude_none=True) + "\n")
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
