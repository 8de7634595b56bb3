"""pydantic's errors as plain messages, one for each field."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from rubricsvc.core.validation_messages import field_messages, first_error


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(default=9, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]


class Home(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = Field(default=[], min_length=1)
    secret: str = ""

    @field_validator("secret")
    @classmethod
    def _check(cls, value: str) -> str:
        if value == "bad":
            raise ValueError("must be good")
        return value


def errors_of(data: dict[str, object]) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        Home.model_validate(data)
    return caught.value


@pytest.mark.parametrize(
    ("data", "path", "code", "quoted"),
    [
        ({}, ("name",), "missing", ""),
        ({"name": 5}, ("name",), "string_type", "5"),
        ({"name": "a", "pets": []}, ("pets",), "too_short", "1"),
        ({"name": "a", "nme": "b"}, ("nme",), "extra_forbidden", "'name'"),
        ({"name": "a", "secret": "bad"}, ("secret",), "value_error", "'bad'"),
        ({"name": "a", "pets": [{"kind": "cow"}]}, ("pets", 0, "kind"), "union_tag_invalid", "'cat', 'dog'"),
        ({"name": "a", "pets": [{"lives": 1}]}, ("pets", 0, "kind"), "union_tag_not_found", ""),
        # without the name of the union's member
        ({"name": "a", "pets": [{"kind": "cat", "lives": 10}]}, ("pets", 0, "lives"), "less_than_equal", "10"),
    ],
)
def test_field_messages_give_path_code_and_value(
    data: dict[str, object], path: tuple[str | int, ...], code: str, quoted: str
) -> None:
    (one,) = field_messages(errors_of(data), model=Home, data=data)
    assert (one.path, one.code) == (path, code)
    assert quoted in one.message


def test_first_error_prefers_unknown_fields() -> None:
    assert first_error(errors_of({"nmae": "a"}), model=Home)[0] == "nmae"


def test_first_error_does_not_quote_secrets() -> None:
    path, message = first_error(errors_of({"name": "a", "secret": "bad"}), quoted=False)
    assert path == "secret" and "bad" not in message
