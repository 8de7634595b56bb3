"""Adapters that peft wrote for a tiny random model, merged without peft."""

import asyncio
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError, RubricsvcError, UnavailableError
from rubricsvc.formats.documents import load_passport
from tests.tiny_adapter import tiny_adapter
from workers.audit.runner import asking_fingerprint
from workers.engines.base import EngineRequest, Failure, Question
from workers.engines.local import transformers_engine
from workers.engines.local.adapters import read_adapter
from workers.engines.local.embedded_model import WHEEL_SHA256
from workers.engines.local.models import load, open_merged
from workers.engines.local.transformers_engine import TransformersEngine
from workers.engines.local.weights import (
    PASSPORT_FILE,
    SHIPPED,
    SHIPPED_ADAPTER,
    ModelWeights,
    judge_with_adapter,
    trained_on,
    weights_sha256,
)
from workers.judges import validate

REQUEST = EngineRequest("s", "x", (Question("a", ("Yes", "No")),))


@pytest.fixture(scope="module")
def adapter(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_adapter(tiny, tmp_path_factory.mktemp("adapter"))


@pytest.fixture
def copied(adapter: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(adapter, tmp_path / "copied"))


@pytest.mark.parametrize(
    "options", [{}, {"use_rslora": True}, {"target_modules": r".*\.1\..*_proj"}, {"layers_to_transform": [1]}]
)
def test_merge_equals_pefts(tiny: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    folder = tiny_adapter(tiny, tmp_path / "adapter", **options)
    base = AutoModelForCausalLM.from_pretrained(tiny)
    before = {name: weight.clone() for name, weight in base.state_dict().items()}
    expected = PeftModel.from_pretrained(base, str(folder)).merge_and_unload().state_dict()
    merged, _ = open_merged(ModelWeights(str(tiny), adapter=str(folder)), torch.float32)
    weights = merged.state_dict()
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-5, atol=1e-6)
    assert any(not torch.equal(weight, before[name]) for name, weight in weights.items())


def test_load_keeps_a_base_and_its_adapters_apart(tiny: Path, adapter: Path) -> None:
    sha256 = weights_sha256(adapter)
    bare, judge = ModelWeights(str(tiny)), ModelWeights(str(tiny), adapter=str(adapter), sha256=sha256)
    loaded = [load(weights, torch.float32, "cpu") for weights in (bare, judge, judge)]
    assert loaded[0] is not loaded[1] is loaded[2]
    first, second, _ = (one.model.model.layers[0].mlp.up_proj.weight for one in loaded)
    assert not torch.equal(first, second)
    assert len(list(loaded[1].model.named_modules())) == len(list(loaded[0].model.named_modules()))


def edit(**fields: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return change


def edit_tensors(change: Callable[[dict[str, torch.Tensor]], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tensors = load_file(folder / "adapter_model.safetensors")
        change(tensors)
        save_file(tensors, folder / "adapter_model.safetensors")

    return apply


def cut_file(folder: Path) -> None:
    path = folder / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def set_first(value: float) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda tensors: next(iter(tensors.values())).view(-1)[:1].fill_(value) and None  # type: ignore[func-returns-value]


def to_float8(tensors: dict[str, torch.Tensor]) -> None:
    tensors.update({key: tensor.to(torch.float8_e4m3fn) for key, tensor in tensors.items()})


DAMAGES: dict[str, tuple[Callable[[Path], Any], type[RubricsvcError]]] = {
    "no folder": (shutil.rmtree, UnavailableError),
    "no configuration": (lambda folder: (folder / "adapter_config.json").unlink(), UnavailableError),
    "no weights": (lambda folder: (folder / "adapter_model.safetensors").unlink(), UnavailableError),
    "truncated": (cut_file, UnavailableError),
    "no JSON": (lambda folder: (folder / "adapter_config.json").write_text("{"), InvalidError),
    "no rank": (edit(r=0), InvalidError),
    "not LoRA": (edit(peft_type="IA3"), InvalidError),
    "DoRA": (edit(use_dora=True), InvalidError),
    "biases": (edit(bias="lora_only"), InvalidError),
    "whole modules": (edit(modules_to_save=["lm_head"]), InvalidError),
    "PiSSA": (edit(init_lora_weights="pissa"), InvalidError),
    "a setting of a later peft": (edit(use_later=True), InvalidError),
    "ranks by module": (edit(rank_pattern={"q_proj": 2}), InvalidError),
    "another rank": (edit(r=8), InvalidError),
    "too large a scale": (edit(lora_alpha=1e300), InvalidError),
    "too large a sum": (edit_tensors(lambda tensors: [t.fill_(1e30) for t in tensors.values()] and None), InvalidError),
    "NaN": (edit_tensors(set_first(math.nan)), InvalidError),
    "inf": (edit_tensors(set_first(math.inf)), InvalidError),
    "fp8": (edit_tensors(to_float8), InvalidError),
    "no tensors": (edit_tensors(lambda tensors: tensors.clear()), InvalidError),
    "one side": (edit_tensors(lambda tensors: tensors.popitem() and None), InvalidError),
    "embeddings": (
        edit_tensors(
            lambda tensors: tensors.update({"base_model.model.model.embed_tokens.lora_embedding_A": torch.ones(4, 4)})
        ),
        InvalidError,
    ),
    "unknown module": (
        edit_tensors(
            lambda tensors: tensors.update(
                {f"base_model.model.model.layers.9.mlp.up_proj.lora_{s}.weight": torch.ones(4, 4) for s in "AB"}
            )
        ),
        InvalidError,
    ),
    "another base": (
        lambda folder: (folder / "base.json").write_text(json.dumps({"model": "other", "base_sha256": "0" * 64})),
        InvalidError,
    ),
    "a passport of another base": (
        lambda folder: (folder / "passport.json").write_text(json.dumps({"base": {"name": "o", "sha256": "0" * 64}})),
        InvalidError,
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_open_merged_refuses_what_it_cannot_merge_exactly(tiny: Path, copied: Path, damage: str) -> None:
    change, error = DAMAGES[damage]
    change(copied)
    with pytest.raises(error) as caught:
        open_merged(ModelWeights(str(tiny), adapter=str(copied)), torch.float32)
    assert caught.value.hint and str(copied) in caught.value.message


@pytest.mark.parametrize("change", [edit(lora_alpha=9), edit_tensors(set_first(0.5))])
def test_read_adapter_refuses_other_weights_than_the_judges(copied: Path, change: Callable[[Path], None]) -> None:
    expected = weights_sha256(copied)
    read_adapter(str(copied), expected)
    change(copied)
    with pytest.raises(UnavailableError) as caught:
        read_adapter(str(copied), expected)
    assert expected in caught.value.message


def test_engine_fails_without_a_score_and_loads_once(tiny: Path, copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Any] = []

    def count(*key: Any) -> Any:
        loads.append(key)
        return load(*key)

    monkeypatch.setattr(transformers_engine, "load", count)
    cut_file(copied)
    engine = TransformersEngine(ModelWeights(str(tiny), adapter=str(copied)), device="cpu")
    for _ in range(2):
        (failure,) = asyncio.run(engine.ask(REQUEST))
        assert isinstance(failure, Failure) and failure.reason is Reason.UNREACHABLE
        assert "adapter_model.safetensors" in failure.detail
    assert len(loads) == 1


def test_adapter_of_the_embedded_model_is_merged_at_load(embedded: Path, tiny: Path, tmp_path: Path) -> None:
    folder = tiny_adapter(embedded, tmp_path / "adapter", target_modules=["q_proj"], r=2)
    (folder / "base.json").write_text(json.dumps({"model": "embedded", "base_sha256": WHEEL_SHA256}))
    bare = load(ModelWeights("embedded"), device="cpu")
    judge = load(ModelWeights("embedded", adapter=str(folder), sha256=weights_sha256(folder)), device="cpu")
    layers, merged = (dict(loaded.model.named_modules()) for loaded in (bare, judge))
    assert layers.keys() == merged.keys()
    changed = [name for name in layers if name.endswith("_proj") and (layers[name].weight != merged[name].weight).any()]
    assert len(changed) == 30 and all(name.endswith("q_proj") for name in changed)
    has_amx = "amx_tile" in Path("/proc/cpuinfo").read_text()
    assert merged[changed[0]].weight.dtype == (torch.bfloat16 if has_amx else torch.float32)
    with pytest.raises(InvalidError) as caught:
        open_merged(ModelWeights(str(tiny), adapter=str(folder)), torch.float32)
    assert WHEEL_SHA256 in caught.value.message


def test_shipped_adapter_fits_its_judge_and_its_passport() -> None:
    judge = judge_with_adapter("embedded", SHIPPED_ADAPTER)
    assert (judge.mode, judge.template) == ("readout", "readout_short")
    validate(judge)
    passport = load_passport(SHIPPED / PASSPORT_FILE)
    passport.check_judge(judge)
    measured = (passport.audit, passport.repeatability)
    assert {one and one.fingerprint for one in measured} == {asking_fingerprint(judge)}, "audit it again"
    assert trained_on(SHIPPED)[1] == WHEEL_SHA256
    assert (SHIPPED / "adapter_model.safetensors").stat().st_size <= 10_000_000
    load(ModelWeights("embedded", adapter="embedded", sha256=judge.weights_sha256), device="cpu")
