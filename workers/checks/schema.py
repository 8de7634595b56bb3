"""The check ``json_schema``: JSON that a schema accepts."""

from __future__ import annotations

from pydantic import Field, JsonValue, field_validator

from rubricsvc.core.prompt import Completion, Prompt
from workers.checks.markdown import Which, pick
from workers.checks.registry import Args, CheckResult, check
from workers.checks.sandbox.child_process import Child

_validator = Child(
    "schema",
    """
def answer(schema, text):
    import json
    from jsonschema.validators import validator_for, Draft202012Validator
    from referencing import Registry
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return [f"not JSON: {error}"]
    check = validator_for(schema, default=Draft202012Validator)(schema, registry=Registry())
    errors = sorted(check.iter_errors(value), key=lambda error: error.json_path)
    return [f"{error.json_path}: {error.message[:200]}" for error in errors[:5]]
""",
)


class JsonSchema(Args):
    """``schema_``: a JSON Schema (2020-12 unless it says otherwise; ``schema`` in a file). References stay inside it.

    ``block``: the last fenced block that is JSON or of no language (``last``, else the whole text where there is none),
    the ``first``, ``all`` joined, or the ``whole`` text.
    """

    schema_: dict[str, JsonValue] = Field(alias="schema")
    block: Which = "last"
    timeout_s: float = Field(default=5.0, gt=0.0, le=60.0)

    @field_validator("schema_")
    @classmethod
    def _is_schema(cls, schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
        try:
            from jsonschema.exceptions import SchemaError
            from jsonschema.validators import Draft202012Validator, validator_for
        except ImportError:  # reported when the check runs
            return schema
        try:
            validator_for(schema, default=Draft202012Validator).check_schema(schema)
        except SchemaError as error:
            raise ValueError(f"not a JSON Schema: {error.json_path}: {error.message[:200]}") from error
        return schema


@check("json_schema", JsonSchema)
def json_schema(completion: Completion, prompt: Prompt, args: JsonSchema) -> CheckResult:
    """Return 1 if the text is valid JSON for the schema, else 0; the rationale lists the errors."""
    text = pick(completion.text, args.block, ("json",))
    errors = _validator.ask(args.schema_, text, timeout_s=args.timeout_s)
    return CheckResult(float(not errors), "\n".join(errors) or "valid")
