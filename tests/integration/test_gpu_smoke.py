"""`make gpu-smoke`, small and on the CPU; the judge is a scripted server in place of vLLM."""

import json

import pytest
import torch

from bench import gpu_smoke
from tests.scripted_server import labels, scripted_server


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_smoke_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    gpu_smoke.main([])
    assert capsys.readouterr().out == "no GPU here\n"


def test_gpu_smoke_measures_job_and_steps(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--completions", "8", "--steps", "1", "--prompts", "1", "--group-size", "2", "--max-new-tokens", "4"]
    with scripted_server(labels(Yes=0.7, No=0.2)) as server:
        gpu_smoke.main(["--cpu", "--judge-url", server.url, "--judge-model", "scripted", *small])
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (figures["device"], figures["completions"], figures["verdicts"]) == ("cpu", 8, 8 * len(gpu_smoke.POINTS))
    assert (figures["failed"], figures["steps"]) == (0, 1)
    for name in ("verdicts_per_s", "judge_tokens_per_s", "step_s", "policy_tokens_per_s"):
        assert figures[name] > 0, name
