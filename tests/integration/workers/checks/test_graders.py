"""The checks that OpenAI's string_check, text_similarity and python graders are."""

import re

import pytest

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import reward
from rubricsvc.core.verdict import Reason
from rubricsvc.formats.openai_grader import parse
from rubricsvc.graders.model import rubric_of
from tests.graded import found
from workers import checks


@pytest.mark.usefixtures("sandboxed")
class TestPython:
    def test_python_passes_sample_and_item(self) -> None:
        source = "def grade(sample, item):\n    return sample['output_json']['n'] / item['rows'][1]"
        assert found('{"n": 3}', type="python", source=source).value == 0.75

    def test_python_maps_its_range(self) -> None:
        grader = parse({"type": "python", "name": "g", "source": "def grade(s, i): return 4", "range": [1, 5]})
        verdicts = checks.run(rubric_of(grader), Prompt.of("?"), Completion())
        assert (verdicts[0].value, reward(rubric_of(grader), verdicts).value) == (0.75, 4.0)

    def test_python_fails_on_errors_and_escapes(self) -> None:
        cases = [
            ("def grade(sample, item): return 4", r'"range": \[0, 4\]'),
            ("def grade(sample, item): return item['none']", "KeyError"),
            ("def grade(sample, item): return 'good'", "good"),
            ("import os\ndef grade(sample, item): os._exit(0)", "ended early"),
            ("def grade(sample, item): return len(open('/etc/passwd').read())", "No such file"),
            ("def grade(sample, item):\n    open('/usr/x', 'w')\n    return 1.0", "Read-only file system"),
            (
                "import socket\ndef grade(s, item):\n    socket.create_connection(('1.1.1.1', 53), 2)\n    return 1.0",
                "unreachable",
            ),
            (
                "import os\ndef grade(sample, item): return float(os.kill(os.getppid(), 9) is None)",
                "Operation not permitted|ended early",
            ),
        ]
        for source, why in cases:
            verdict = found("x", type="python", source=source)
            assert (verdict.value, verdict.reason) == (None, Reason.CHECK_ERROR)
            assert re.search(why, verdict.detail or ""), verdict.detail

    def test_python_fails_on_timeout(self) -> None:
        source = "def grade(sample, item):\n    while True: pass"
        rubric = rubric_of(parse({"type": "python", "name": "g", "source": source}))
        check = rubric.criteria[0].check
        assert check is not None
        short = check.model_copy(update={"args": {**check.args, "cpu_s": 1, "wall_s": 10}})
        bounded = rubric.model_copy(update={"criteria": (rubric.criteria[0].model_copy(update={"check": short}),)})
        (verdict,) = checks.run(bounded, Prompt.of("?"), Completion())
        assert verdict.reason == Reason.CHECK_ERROR and "out of CPU time" in (verdict.detail or "")
