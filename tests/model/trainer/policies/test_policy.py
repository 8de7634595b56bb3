"""Policies: tokens, attention and cache."""

import copy
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import LlamaConfig
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from rubricsvc.core.prompt import Message, Prompt
from rubricsvc.errors import InvalidError
from tests.model.trainer.tiny import PROMPTS, SAMPLING, tiny_policy, tiny_tokenizer
from trainer.policies import policy as policies
from trainer.policies.policy import ROOM, GrowingLayer, Policy, grouped_attention, prompt_ids
from trainer.policies.rollouts import Rollouts, answer_ids


def sampled(policy: Policy, seed: int = 0, **sampling: object) -> Rollouts:
    settings = SAMPLING.model_copy(update=sampling)
    return policy.sample(PROMPTS[:3], 4, settings, seed)


def plain_logprobs(policy: Policy, rollouts: Rollouts, row: int, temperature: float) -> Tensor:
    """One completion after its prompt, without padding, cache or sharing."""
    prompt = rollouts.prompt_of_B[row]
    question = rollouts.prompt_ids_QP[prompt][rollouts.prompt_mask_QP[prompt]]
    answer = rollouts.ids_BT[row][rollouts.mask_BT[row]]
    logits = policy.model(input_ids=torch.cat([question, answer]).unsqueeze(0)).logits[0, len(question) - 1 : -1]
    logp: Tensor = (logits / temperature).log_softmax(-1)
    return logp


def brute_force_nucleus(probs: list[float], top_p: float) -> list[int]:
    """Return the most probable tokens up to the first whose mass reaches ``top_p``."""
    nucleus: list[int] = []
    for token in sorted(range(len(probs)), key=lambda i: -probs[i]):
        nucleus.append(token)
        if sum(probs[i] for i in nucleus) >= top_p:
            break
    return nucleus


def test_prompt_ids_follow_the_tokenizer_and_its_template() -> None:
    """Without a template the tokenizer adds BOS, but no end; a system message that is refused can be folded."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"bos_token": "<bos>"})
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", bos), ("<eos>", eos)]
    )
    prompt = Prompt(messages=(Message(role="system", content="be short"), Message(role="user", content="say a")))
    plain = prompt_ids(tokenizer, Prompt.of("say a"))
    assert (plain[0], plain.count(bos), eos in plain) == (bos, 1, False)
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}"
        "{% endif %}{{ m.content }}{% endfor %}"
    )
    with pytest.raises(InvalidError, match="no system role") as caught:
        prompt_ids(tokenizer, prompt)
    assert (caught.value.path, "fold_system" in caught.value.hint) == ("policy.fold_system", True)
    folded = prompt_ids(tokenizer, prompt, fold_system=True)
    letters = tokenizer.decode(folded, skip_special_tokens=True)
    assert (folded.count(bos), letters.replace("\n", "")) == (1, "be shortsay a")
    assert prompt_ids(tokenizer, Prompt.of("say a"), fold_system=True) == prompt_ids(tokenizer, Prompt.of("say a"))


def test_logprobs_equal_plain_forward_passes() -> None:
    for temperature, sees_all in [(1.0, True), (0.6, True), (1.0, False)]:
        policy = tiny_policy(dtype=torch.float64)
        policy.sees_all = sees_all  # False as of a model with sliding windows
        rollouts = sampled(policy)
        rollouts.ids_BT[1:3, :2] = rollouts.ids_BT[0, :2]  # these begin alike
        weights = torch.linspace(-1, 1, rollouts.ids_BT.numel(), dtype=torch.float64).view_as(rollouts.ids_BT)
        logp, entropy = policy.logprobs(rollouts, temperature)
        (logp * weights).sum().backward()
        shared = [param.grad.clone() for param in policy.model.parameters()]
        policy.model.zero_grad()
        for row in range(len(rollouts.texts)):
            length = int(rollouts.lengths[row])
            full = plain_logprobs(policy, rollouts, row, temperature)
            expected = full.gather(-1, rollouts.ids_BT[row, :length].unsqueeze(-1)).squeeze(-1)
            torch.testing.assert_close(logp[row, :length], expected)
            torch.testing.assert_close(entropy[row, :length], -(full.exp() * full).sum(-1))
            assert not logp[row, length:].any()
            (expected * weights[row, :length]).sum().backward()
        # Llama's norms compute in float32 in any case
        torch.testing.assert_close(shared, [param.grad for param in policy.model.parameters()], rtol=1e-4, atol=1e-5)


def test_logprobs_with_top_p_are_of_the_truncated_distribution() -> None:
    for top_p in [0.2, 0.7, 0.97]:
        policy = tiny_policy(dtype=torch.float64)
        rollouts = sampled(policy, top_p=top_p)
        with torch.no_grad():
            logp, entropy = policy.logprobs(rollouts, 1.0)
        for row in range(len(rollouts.texts)):
            for place, token in enumerate(rollouts.ids_BT[row, : int(rollouts.lengths[row])].tolist()):
                probs = plain_logprobs(policy, rollouts, row, 1.0)[place].exp().tolist()
                nucleus = brute_force_nucleus(probs, top_p)
                assert token in nucleus
                assert float(logp[row, place].exp()) == pytest.approx(probs[token] / sum(probs[i] for i in nucleus))
                shares = [probs[i] / sum(probs[j] for j in nucleus) for i in nucleus]
                assert float(entropy[row, place]) == pytest.approx(-sum(s * math.log(s) for s in shares), abs=1e-9)
            assert not logp[row, int(rollouts.lengths[row]) :].any()
        part = rollouts.select(torch.tensor([2, 7]))
        torch.testing.assert_close(policy.logprobs(part, 1.0)[0].detach(), logp[[2, 7], : part.ids_BT.shape[1]])


def test_sample_ends_completion_with_end_token() -> None:
    policy = tiny_policy()
    rollouts = sampled(policy, max_new_tokens=40)
    assert 0 < rollouts.truncated_B.sum() < len(rollouts.texts)
    for row, length in enumerate(rollouts.lengths.tolist()):
        ids = rollouts.ids_BT[row, :length].tolist()
        assert (ids[-1] == 0) == (not rollouts.truncated_B[row]) and 0 not in ids[:-1]
        assert len(rollouts.texts[row]) == length - (ids[-1] == 0)


def test_logprobs_of_empty_completion() -> None:
    policy = tiny_policy()
    rollouts = sampled(policy)
    empty = replace(rollouts, ids_BT=torch.zeros_like(rollouts.ids_BT), mask_BT=torch.arange(8).expand(12, 8) < 1)
    logp, _ = policy.logprobs(empty.select(torch.arange(12)), 1.0)
    assert logp.shape == (12, 1) and (logp < 0).all()


def test_encode_uses_chat_template_or_plain_text() -> None:
    policy = tiny_policy()
    assert policy.tokenizer.decode(policy.encode([Prompt.of("hello")])[0][0]) == "hello"
    policy.tokenizer.chat_template = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}assistant"
    ids, mask = policy.encode([Prompt.of("hello"), Prompt.of("hi")])
    assert policy.tokenizer.decode(ids[0]) == "user hello assistant"
    assert policy.tokenizer.decode(ids[1][mask[1]]) == "user hi assistant" and not mask[1, :3].any()
    policy.tokenizer.chat_template = (
        "{% for m in messages %}{{ m.content }} {% endfor %}{% if add_generation_prompt %}{{ thinking }}{% endif %}"
    )
    policy.template_options = {"thinking": "off"}
    assert policy.tokenizer.decode(policy.encode([Prompt.of("hello")])[0][0]) == "hello off"
    answer = answer_ids(policy.tokenizer, [Message(role="tool", content="hi")], policy.template_options)
    assert policy.tokenizer.decode(answer).endswith("hi off")


def test_texts_keep_special_tokens_that_mark_reasoning() -> None:
    policy = tiny_policy()
    policy.tokenizer.add_special_tokens({"extra_special_tokens": ["[THINK]", "[/THINK]", "<|other|>"]})
    ids = policy.tokenizer("[THINK]hi[/THINK]hello<|other|>")["input_ids"]
    assert [one.replace(" ", "") for one in policy.texts([ids])] == ["[THINK]hi[/THINK]hello"]


def test_save_then_load(tmp_path: Path) -> None:
    policy = tiny_policy(dtype=torch.bfloat16)
    policy.save(tmp_path)
    again = Policy.load(str(tmp_path), dtype="bfloat16", device="cpu")
    assert again.model.dtype == torch.bfloat16 and sampled(again).texts == sampled(policy).texts


def tensors(length: int, context: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 6, length, 8), (2, 2, context, 8), (2, 2, context, 8))
    query, key, value = (torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes)
    return query, key, value


def test_grouped_attention_equals_scaled_dot_product_attention() -> None:
    cases = [(1, 7, True), (3, 7, True), (7, 7, True), (1, 7, False), (7, 7, False)]
    for length, context, masked in cases:
        query, key, value = tensors(length, context)
        mask = torch.ones(2, 1, length, context, dtype=torch.bool).tril(context - length)
        mask[1, ..., :2] = False
        mask[1, 0, :, 0] |= ~mask[1, 0].any(-1)  # no row without anything to look at
        module = torch.nn.Module()
        module.num_key_value_groups = 3  # type: ignore[assignment]
        arguments = (module, query, key, value, mask if masked else None)
        expected, _ = sdpa_attention_forward(*arguments, scaling=0.3)
        got, _ = grouped_attention(*arguments, scaling=0.3)
        torch.testing.assert_close(got, expected)
        weights = torch.linspace(-1, 1, got.numel(), dtype=torch.float64).view_as(got)
        for mine, theirs in zip(
            torch.autograd.grad((got * weights).sum(), (query, key, value)),
            torch.autograd.grad((expected * weights).sum(), (query, key, value)),
            strict=True,
        ):
            torch.testing.assert_close(mine, theirs)


CONFIG = LlamaConfig(num_hidden_layers=1)


def states(tokens: int, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, tokens, 4)


@torch.no_grad()
def test_layer_holds_what_a_plain_layer_holds() -> None:
    growing, plain = GrowingLayer(), DynamicLayer()
    for length in [5, *[1] * (ROOM + 3), 7, 1]:
        keys, values = states(length), states(length)
        for ours, theirs in zip(growing.update(keys, values), plain.update(keys, values), strict=True):
            assert torch.equal(ours, theirs)
    assert growing.get_seq_length() == plain.get_seq_length() == ROOM + 16


@torch.no_grad()
def test_chosen_rows_share_nothing_with_those_that_they_come_from() -> None:
    cache = DynamicCache(config=CONFIG)
    cache.layers = [GrowingLayer() for _ in cache.layers]
    for length in (5, 1):
        cache.update(states(length), states(length), 0)
    chosen = copy.copy(cache)
    chosen.layers = [copy.copy(layer) for layer in cache.layers]
    chosen.batch_select_indices(torch.tensor([1, 0, 1]))
    before = cache.layers[0].keys.clone()
    chosen.update(states(1, batch=3), states(1, batch=3), 0)
    assert torch.equal(cache.layers[0].keys, before)
    cache.update(new := states(1), states(1), 0)
    assert torch.equal(cache.layers[0].keys, torch.cat([before, new], dim=-2))


def logits(rows: int = 5, vocabulary: int = 7, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(rows, 3, vocabulary, generator=generator, dtype=torch.float64)


def test_token_logprobs_entropy_and_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    for chunk in [1, 20, 10**6]:
        for temperature in [1.0, 0.7]:
            monkeypatch.setattr(policies, "CHUNK", chunk)
            mine, plain = logits().requires_grad_(), logits().requires_grad_()
            ids = torch.arange(15).view(5, 3) % 7
            weights = torch.linspace(-1, 1, 15, dtype=torch.float64).view(5, 3)
            logp, entropy = policies.token_logprobs(mine, ids, temperature)
            expected = (plain / temperature).log_softmax(-1)
            torch.testing.assert_close(logp, expected.gather(-1, ids.unsqueeze(-1)).squeeze(-1))
            torch.testing.assert_close(entropy, -(expected.exp() * expected).sum(-1))
            assert not entropy.requires_grad
            (logp * weights).sum().backward()
            (expected.gather(-1, ids.unsqueeze(-1)).squeeze(-1) * weights).sum().backward()
            torch.testing.assert_close(mine.grad, plain.grad)


def test_token_logprobs_over_nucleus_equals_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, entropy and gradient are those of the softmax over the kept tokens alone."""
    for chunk in [1, 20, 10**6]:
        for temperature, top_p in [(1.0, 0.3), (0.7, 0.9), (1.3, 0.999)]:
            monkeypatch.setattr(policies, "CHUNK", chunk)
            mine, plain = logits(vocabulary=11).requires_grad_(), logits(vocabulary=11).requires_grad_()
            drawn = [
                policies.sample_tokens(mine[:, t].detach(), temperature, top_p, torch.rand(5, 1, dtype=torch.float64))
                for t in range(3)
            ]
            ids = torch.stack([token for token, _ in drawn], dim=1)
            nucleus = torch.stack([kept for _, kept in drawn if kept is not None], dim=1)
            weights = torch.linspace(-1, 1, 15, dtype=torch.float64).view(5, 3)
            logp, entropy = policies.token_logprobs(mine, ids, temperature, nucleus)
            (logp * weights).sum().backward()
            logp = logp.detach()
            expected = torch.zeros((), dtype=torch.float64)
            for row in range(5):
                for place in range(3):
                    scaled = plain[row, place] / temperature
                    order = scaled.detach().softmax(-1).argsort(descending=True)
                    mass = scaled.detach().softmax(-1)[order].cumsum(-1)
                    kept = order[: int((mass < top_p).sum()) + 1]
                    value = scaled[ids[row, place]] - scaled[kept].logsumexp(-1)
                    shares = scaled[kept].detach().softmax(-1)
                    assert float(logp[row, place]) == pytest.approx(float(value.detach()), abs=1e-9)
                    assert float(entropy[row, place]) == pytest.approx(float(-(shares * shares.log()).sum()), abs=1e-9)
                    expected = expected + value * weights[row, place]
            expected.backward()
            torch.testing.assert_close(mine.grad, plain.grad)


def test_token_logprobs_reads_bfloat16_in_float32() -> None:
    rough = logits().bfloat16().requires_grad_()
    ids = torch.zeros(5, 3, dtype=torch.long)
    logp, _ = policies.token_logprobs(rough, ids, 1.0)
    assert logp.dtype == torch.float32
    torch.testing.assert_close(logp, rough.float().log_softmax(-1)[..., 0])
    logp.sum().backward()
    assert rough.grad is not None and rough.grad.dtype == torch.bfloat16


def frequencies(row: Tensor, temperature: float, top_p: float, draws: int = 20_000) -> Tensor:
    uniform = torch.rand(draws, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    sampled, _ = policies.sample_tokens(row.expand(draws, -1), temperature, top_p, uniform)
    return torch.bincount(sampled, minlength=len(row)) / draws


def test_sample_tokens_follows_distribution() -> None:
    row = torch.tensor([2.0, -1.0, 0.5, -torch.inf, 1.0])
    observed = frequencies(row, temperature=0.8, top_p=1.0)
    assert observed[3] == 0
    torch.testing.assert_close(observed, (row / 0.8).softmax(-1), atol=0.015, rtol=0)  # 0.015 is over 4 sigma


def test_sample_tokens_nucleus_is_smallest_set_with_mass() -> None:
    for top_p, kept in [(0.3, [1]), (0.5, [1]), (0.55, [1, 3]), (0.81, [1, 2, 3])]:
        probs = torch.tensor([0.05, 0.5, 0.2, 0.25])
        expected = torch.zeros(4)
        expected[kept] = probs[kept] / probs[kept].sum()
        torch.testing.assert_close(frequencies(probs.log(), 1.0, top_p), expected, atol=0.015, rtol=0)
