"""A server over a real socket with the part of vLLM's API that `trainer.policies.sampling_server` uses.

It samples with a policy, whose weights it loads when it is asked to, and returns the log-probabilities that it sampled
with. `fail_at` ends the connection of that request (from 1) without a response, as a server does that dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from aiohttp import web

from trainer.config import SamplingConfig
from trainer.policies.policy import Policy, sample_completions
from trainer.policies.rollouts import Transcript, rollouts_of


class PolicyServer:
    """Serves from a thread. ``requests`` are the bodies of the requests for tokens."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.version, self.loads = policy, "default", 0
        self.requests: list[dict[str, Any]] = []
        self.fail_at = 0
        self.processed, self.device, self.tied = True, "cuda", True
        self.replaced_after = 0  # the request after which the weights are lost, as by a restart
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="policy server", daemon=True)

    async def start(self) -> None:
        app = web.Application()
        app.add_routes(
            [
                web.get("/v1/models", self._models), web.get("/weight_info", self._weight_info),
                web.get("/server_info", self._server_info), web.post("/collective_rpc", self._reload),
                web.post("/update_weight_version", self._set_version), web.post("/v1/completions", self._completions),
            ]
        )  # fmt: skip
        self.runner = web.AppRunner(app, shutdown_timeout=0)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}/v1"

    @contextlib.contextmanager
    def running(self) -> Iterator[PolicyServer]:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.start(), self._loop).result(10)
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self.runner.cleanup(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "policy", "object": "model"}]})

    async def _weight_info(self, _request: web.Request) -> web.Response:
        return web.json_response({"weight_version": self.version})

    async def _server_info(self, _request: web.Request) -> web.Response:
        overrides = {} if self.tied else {"tie_word_embeddings": False}
        config = {"model_config": {"hf_overrides": overrides}, "device_config": {"device": self.device}}
        return web.json_response({"vllm_config": config})

    async def _reload(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["method"] == "reload_weights"
        self.policy = Policy.load(str(Path(body["kwargs"]["weights_path"])), dtype="float32")
        self.loads += 1
        return web.json_response({"results": [None]})

    async def _set_version(self, request: web.Request) -> web.Response:
        self.version = (await request.json())["new_version"]
        return web.json_response({"success": True})

    async def _completions(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        if len(self.requests) == self.fail_at:
            assert request.transport is not None
            request.transport.abort()
        if len(self.requests) == self.replaced_after:
            self.version = "default"
        ids, logprobs = self._sampled(body)
        choice = {"index": 0, "text": "", "token_ids": ids, "logprobs": {"token_logprobs": logprobs}}
        choice["finish_reason"] = "stop" if ids[-1] in body.get("stop_token_ids", ()) else "length"
        return web.json_response({"choices": [choice]})

    def _sampled(self, body: dict[str, Any]) -> tuple[list[int], list[float]]:
        if allowed := body.get("allowed_token_ids"):
            return allowed[:1], [0.0 if self.processed else -1.0]
        sampling = SamplingConfig(
            max_new_tokens=body["max_tokens"], temperature=body["temperature"], top_p=body["top_p"]
        )
        prompt = torch.tensor([body["prompt"]])
        asked = prompt, torch.ones_like(prompt, dtype=torch.bool), torch.tensor([0])
        with torch.no_grad():
            sample_completions(self.policy, asked, [one := Transcript()], sampling, body.get("seed", 0))
            (row, *_), _ = self.policy.logprobs(rollouts_of(self.policy, asked, [one], [""]), sampling.temperature)
        logprobs: list[float] = row.tolist() if self.processed else [-1.0] * len(one.ids)
        return one.ids, logprobs
