from pathlib import Path

import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Document, Prompt
from rubricsvc.errors import InvalidError
from workers.judges import calls, validate
from workers.judges.calls import load, parse

NAMES = ["readout", "readout_documents", "readout_short", "readout_short_documents", "written", "written_documents"]
FOLDER = Path(calls.__file__).parent / "prompts"


def judge(**fields: object) -> Judge:
    return Judge.model_validate({"name": "j", "model": "m", **fields})


def test_parse_takes_the_digest_of_the_file() -> None:
    content = (FOLDER / "readout.txt").read_bytes()
    assert parse("readout", content).digest == load(judge()).digest
    assert parse("readout", content + b"\n").digest != load(judge()).digest


def test_fenced_uses_the_mark_of_the_template() -> None:
    short = load(judge(template="readout_short"))
    assert short.fenced("prompt", 'has """ in it') == '""""\nhas """ in it\n""""'
    assert load(judge()).fenced("prompt", "text").startswith("<prompt-")


def test_shared_shows_the_task_before_the_completion() -> None:
    for name in NAMES:
        prompt = Prompt.of("THE TASK", reference="THE REFERENCE")
        text = load(judge(template=name)).shared(prompt, Completion(text="THE ANSWER")).text
        assert text.index("THE TASK") < text.index("THE REFERENCE") < text.index("THE ANSWER")
        assert text.endswith("\n\n")


def test_shared_shows_reference_and_documents() -> None:
    bare = load(judge()).shared(Prompt.of("q"), Completion(text="a")).text
    assert "reference" not in bare
    documents = (Document(id="d1", text="Alpha.", title="First"), Document(id="d2", text="Beta."))
    prompt = Prompt.of("q", documents=documents)
    assert (
        "[d1] First\nAlpha.\n\n[d2] \nBeta."
        in load(judge(template="readout_documents")).shared(prompt, Completion(text="a")).text
    )
    assert "Alpha" not in load(judge()).shared(prompt, Completion(text="a")).text


def test_shared_leaves_placeholders_in_filled_text() -> None:
    text = "I like {completion}, {prompt}, {criterion}, {criteria} and {nothing} {0} %s \\1"
    shown = load(judge()).shared(Prompt.of("{completion} {criterion}"), Completion(text=text))
    assert text in shown.text
    assert "{completion} {criterion}\n" in shown.text


def test_templates_have_known_sections_and_end_with_the_completion() -> None:
    for name in [path.stem for path in FOLDER.glob("*.txt")]:
        texts = calls.read(name).texts
        sections = "system fence shared empty binary ordinal numeric criterion criteria reference passages repair entry"
        assert {"system", "shared", "empty"} <= texts.keys() <= set(sections.split())
        assert (texts["shared"].names[0], texts["shared"].names[-1]) == ("prompt", "completion")


def test_load_of_comparative_judges_follows_their_options() -> None:
    for fields, name in [
        ({}, "groupwise"),
        ({"comparison": {"kind": "pairwise"}}, "pairwise"),
        ({"comparison": {"kind": "pairwise", "written": True}}, "pairwise_written"),
    ]:
        assert load(judge(mode="comparative", **fields)).name == name


def test_validate_rejects_templates_of_other_modes() -> None:
    for mode, name in [("readout", "pairwise"), ("comparative", "readout")]:
        with pytest.raises(InvalidError, match=f"{name!r}.* {mode} judge"):
            validate(judge(mode=mode, template=name))
