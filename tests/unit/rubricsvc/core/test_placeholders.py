"""Templates: paths into the item and the sample, filled once."""

import pytest
from pydantic import TypeAdapter, ValidationError

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.templates import MAX_LENGTH, MAX_PLACEHOLDERS, PlaceholderError, TemplateText, fill, template_data
from rubricsvc.core.verdict import Reason

SAFE = TypeAdapter(TemplateText)


def filled(template: str, text: str = "", **item: object) -> str:
    return fill(SAFE.validate_python(template), template_data(Prompt.of("?", item=item), Completion(text=text)))


def test_fill_inserts_text_as_it_is_and_other_values_as_json() -> None:
    assert filled("{{item.a}}|{{ item.b }}|{{item.c}}", a='"x"', b=[1, "ü"], c=None) == '"x"|[1, "ü"]|null'
    assert filled("{{item.rows[1].name}} {{item.rows.0.name}}", rows=[{"name": "p"}, {"name": "q"}]) == "q p"


def test_fill_reads_the_sample_from_the_completion() -> None:
    assert filled("{{sample.output_text}}", "{}") == "{}"
    assert filled("{{sample.output_json.steps[0]}}", '{"steps": [1.5]}') == "1.5"
    assert filled("{{sample.choices[0].message.content}} {{sample.output_tools}}", "hi") == "hi []"


def test_openai_sample_has_the_tools_of_the_last_turn() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}
    turns = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "found"}]
    completion = Completion.model_validate({"messages": turns})
    template = "{{sample.output_tools[0].function.name}} {{sample.choices[0].message.tool_calls[0].function.arguments}}"
    assert fill(template, template_data(Prompt.of("?"), completion)) == 'search {"q": "x"}'
    answered = Completion.model_validate({"messages": [*turns, {"role": "assistant", "content": "It is x."}]})
    assert fill("{{sample.output_tools}}", template_data(Prompt.of("?"), answered)) == "[]"


def test_fill_leaves_other_braces_as_text() -> None:
    for template in ["plain", "{{", "}} {{", "{item.a}", "{% if item %}", "$x^{2}}$", "{{{{", "{{ a", "{{items"]:
        assert filled(template) == template


def test_template_text_rejects_all_but_paths() -> None:
    for template in [
        "{{item}}", "{{ }}", "{{item.a + 1}}", "{{item.a()}}", "{{item.__class__}}",
        "{{item.a.__init__.__globals__}}", "{{item['a']}}", "{{item[-1]}}", "{{item.a|upper}}", "{{config.secret}}",
        "{{self}}", "{{sample.reasoning}}", "{{ {{item.a}} }}", "{{item..a}}", "{{item.a[99999999]}}", "{{item.a",
        "{{item.a }", "{{\tsample.output_text", "{{ and {{item.a",
    ]:  # fmt: skip
        with pytest.raises(ValidationError):
            SAFE.validate_python(template)
        with pytest.raises(ValueError, match="template"):
            fill(template, {})


def test_fill_gives_the_reason_of_a_missing_value() -> None:
    for template, text, reason in [
        ("{{item.b}}", "", Reason.NO_VARIABLE),
        ("{{item.a.b}}", "", Reason.NO_VARIABLE),
        ("{{item.list[1]}}", "", Reason.NO_VARIABLE),
        ("{{item.list.length}}", "", Reason.NO_VARIABLE),
        ("{{item.list.٠}}", "", Reason.NO_VARIABLE),
        ("{{item.list.0000000}}", "", Reason.NO_VARIABLE),
        ("{{sample.output_json}}", "no JSON", Reason.NOT_JSON),
        ("{{sample.output_json.x}}", "[NaN]", Reason.NOT_JSON),
        ("{{sample.output_json.x}}", '{"x": 1e999}', Reason.NOT_JSON),
        ("{{sample.output_json.x}}", "[" * 100_000, Reason.NOT_JSON),
        ("{{sample.output_json.x}}", "{}", Reason.NO_VARIABLE),
    ]:
        with pytest.raises(PlaceholderError) as error:
            filled(template, text, a="x", list=[1])
        assert error.value.reason is reason


@pytest.mark.parametrize("piece", ["{", "{{ ", "{{a", "{{\n"])
def test_template_text_scans_unclosed_braces_once(piece: str) -> None:
    template = piece * (MAX_LENGTH // len(piece))  # minutes, were the end looked for from each {{
    assert filled(template) == template
    with pytest.raises(ValidationError, match="}}"):
        filled(template[: -len("{{item.a")] + "{{item.a")


def test_template_text_limits_placeholders() -> None:
    assert filled("{{item.a}}" * MAX_PLACEHOLDERS, a="x") == "x" * MAX_PLACEHOLDERS
    with pytest.raises(ValidationError, match=str(MAX_PLACEHOLDERS + 1)):
        SAFE.validate_python("{{item.a}}" * (MAX_PLACEHOLDERS + 1))
