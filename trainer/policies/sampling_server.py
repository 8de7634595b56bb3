"""Sampling by a vLLM server: it writes the completions, and the policy of this process learns from them.

Token ids go in and come out, so that exactly the sampled tokens are learned. Each completion is a request, and so is
each turn of an episode: vLLM batches those that are under way, and none waits for the tools of another. The server
computes with other kernels, in other batches; its log-probabilities come with the tokens, and the loss corrects for the
difference (`trainer.algorithms.losses`).

The server gets the weights of the policy before it samples: it reads them from a folder (``reload_weights``). It holds
the version of its weights, which shows after the sampling whether it was restarted meanwhile, or loaded with others.
Both belong to vLLM's development mode. Cached prefixes are those of a version.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import save_file
from torch import Tensor

from rubricsvc.core.judge import Endpoint
from rubricsvc.errors import InvalidError, UnavailableError
from trainer.config import SamplingConfig
from trainer.data.tasks import stream_seed
from trainer.policies.rollouts import Transcript
from workers.engines.base import RequestFailed
from workers.engines.http.client import HttpClient
from workers.event_loop import EventLoopThread

if TYPE_CHECKING:
    from trainer.policies.policy import Policy

SETTING = "sampling.server"
TIMEOUT_S = 3600.0
"""Longest request. A server that has died refuses connections at once."""
_FOLDER = "weights-for-server"
_HEAD = "lm_head.weight"
_RESUME = "start the server again, and continue with --resume"
_START = "start it as docs/training.md shows (Sampling by a vLLM server)"
_WHOLE_DISTRIBUTION = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Over the defaults of the model's ``generation_config.json``."""


@dataclass(frozen=True, slots=True)
class SamplingServer:
    """A vLLM server at ``url`` (with ``/v1``), which reads weights from a folder in ``out``, under the same path."""

    url: str
    out: Path

    def check(self, policy: Policy) -> None:
        """Check that the server loads the weights of the policy whole, and returns the probabilities of its tokens."""
        self._run(lambda connection: connection.check(policy))

    def sample(
        self,
        policy: Policy,
        prompts: tuple[Tensor, Tensor, Tensor],
        transcripts: Sequence[Transcript],
        sampling: SamplingConfig,
        seed: int,
    ) -> None:
        """Sample the completions of a policy; see `trainer.policies.policy.sample_completions`.

        The same seed gives the same completions only where the server rounds alike, which depends on the requests that
        it has at once.
        """
        ids_QP, mask_QP, prompt_of_B = prompts
        rows = [ids[mask].tolist() for ids, mask in zip(ids_QP, mask_QP, strict=True)]
        asked = [rows[place] for place in prompt_of_B.tolist()]
        self._run(lambda connection: connection.sample(policy, asked, transcripts, sampling, seed))

    def _run(self, work: Callable[[_Connection], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine with a connection, in an event loop of its own: notebooks have one in this thread."""
        connection = _Connection(self, HttpClient(Endpoint(base_url=self.url, timeout_s=TIMEOUT_S)))
        with closing(EventLoopThread("sampling server")) as loop:
            try:
                loop.run(work(connection))
            finally:
                loop.run(connection.client.aclose())


@dataclass(eq=False)
class _Connection:
    """Requests to a server."""

    server: SamplingServer
    client: HttpClient

    async def check(self, policy: Policy) -> None:
        """See `SamplingServer.check`."""
        await self._version()
        token = next(id_ for id_ in itertools.count() if id_ not in policy.end_ids.tolist())
        certain = {
            "model": (await self._call("/models"))["data"][0]["id"],
            "max_tokens": 1,
            "allowed_token_ids": [token],
        }
        _, (logprob,) = await self._turn([int(policy.end_ids[0])], certain)
        problem = "returns log-probabilities that it does not sample with" if logprob != 0.0 else ""
        if is_tied(policy.model) and not problem:
            config = (await self._call(f"{self.client.root}/server_info?config_format=json"))["vllm_config"]
            overrides = config["model_config"]["hf_overrides"] or {}
            if config["device_config"]["device"] == "cpu" and overrides.get("tie_word_embeddings") is not False:
                problem = "runs on a CPU, where it does not reload output embeddings that are tied to the input's"
        if problem:
            raise InvalidError(f"the server {self.server.url} {problem}", hint=_START, path=SETTING)

    async def sample(
        self,
        policy: Policy,
        prompts: Sequence[Sequence[int]],
        transcripts: Sequence[Transcript],
        sampling: SamplingConfig,
        seed: int,
    ) -> None:
        """Extend the transcripts until all of them end."""
        if await self._version() != policy.version:
            await self._load(policy)
        settings = {
            "model": (await self._call("/models"))["data"][0]["id"],
            "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "stop_token_ids": policy.end_ids.tolist(),
            "cache_salt": policy.version,
            **_WHOLE_DISTRIBUTION,
        }
        tasks = [
            asyncio.create_task(self._complete(policy, prompt, one, settings, stream_seed(seed, "completion", row)))
            for row, (prompt, one) in enumerate(zip(prompts, transcripts, strict=True))
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:  # the others, after an error
                task.cancel()
        if await self._version() != policy.version:
            raise UnavailableError(
                f"the server {self.server.url} lost the weights of the policy while it sampled: it was restarted, or "
                "another run uses it",
                hint=f"use a server for one run at a time; {_RESUME}",
                path=SETTING,
            )

    async def _complete(
        self, policy: Policy, prompt: Sequence[int], one: Transcript, settings: dict[str, Any], seed: int
    ) -> None:
        """Extend a transcript until it ends."""
        ends = set(settings["stop_token_ids"])
        for turn in itertools.count():
            seeded = settings | {"seed": stream_seed(seed, "turn", turn)}
            ids, logprobs = await self._turn([*prompt, *one.ids[one.start :]], seeded)
            one.add(ids, logprobs=logprobs)
            one.truncated = ids[-1] not in ends
            if one.episode is None:
                return
            answers = one.episode.start(*policy.texts([ids]))
            await asyncio.wait([asyncio.wrap_future(answers)], timeout=one.episode.limits.tool_timeout_s)
            if not one.answered(policy, answers, settings["max_tokens"]):
                return

    async def _turn(self, ids: Sequence[int], settings: dict[str, Any]) -> tuple[list[int], list[float]]:
        """Return the tokens that follow, and their log-probabilities."""
        fixed = {"prompt": ids, "logprobs": 0, "return_token_ids": True}
        reply = await self._call("/completions", settings | fixed)
        try:
            (choice,) = reply["choices"]
            tokens, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
            if choice["finish_reason"] in ("stop", "length") and 0 < len(tokens) == len(logprobs):
                return [int(one) for one in tokens], [float(one) for one in logprobs]
        except (KeyError, TypeError, ValueError):
            pass
        problem = f"it did not reply with tokens and their log-probabilities: {str(reply)[:300]}"
        raise UnavailableError(f"the server {self.server.url} failed: {problem}", hint=_START, path=SETTING)

    async def _load(self, policy: Policy) -> None:
        """Load the weights of a policy into the server."""
        folder = (self.server.out / _FOLDER).resolve()
        shutil.rmtree(folder, ignore_errors=True)
        try:
            policy.save(folder)
            if is_tied(policy.model):  # a server on a CPU has them untied
                head = policy.model.get_output_embeddings().weight.detach().contiguous().clone()
                save_file({_HEAD: head}, folder / "head.safetensors")
            reload = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
            hint = f"it must read {folder} under this path, and have been started with the same model; {_RESUME}"
            await self._call(f"{self.client.root}/collective_rpc", reload, hint)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        await self._call(f"{self.client.root}/update_weight_version", {"new_version": policy.version})

    async def _version(self) -> Any:
        return (await self._call(f"{self.client.root}/weight_info", hint=_START)).get("weight_version")

    async def _call(self, path: str, body: dict[str, Any] | None = None, hint: str = _RESUME) -> Any:
        """Return the JSON of a response."""
        content = await self.client.call(path, body)
        if isinstance(content, RequestFailed):
            problem = content.failure.detail
        else:
            try:
                return json.loads(content)
            except ValueError:
                problem = f"{path} is not JSON"
        raise UnavailableError(f"the server {self.server.url} failed: {problem}", hint=hint, path=SETTING)


def is_tied(model: Any) -> bool:
    """Return whether the output embeddings of a model are those of its input."""
    return bool(model.get_output_embeddings().weight is model.get_input_embeddings().weight)
