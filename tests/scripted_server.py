"""A server with ``/v1/chat/completions`` over a real socket, whose replies and errors a script determines.

As ``kind="vllm"`` or ``"sglang"`` it takes lists of prompts too, as those servers do. Its tokens are characters, and
SGLang's texts begin with ``BEGIN``; the script is called for each prompt, with the equivalent chat request.

In a test::

    with scripted_server(labels(Yes=0.7, No=0.2)) as server:      # or a list, or a function of (number, body)
        ... server.url ... server.requests ...

In a process of its own: ``with server_process("instant") as url``, or ``python -m tests.scripted_server --port 9000``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web

from tests.instant_engine import agreeable
from tests.services import wait_for
from workers.engines.base import Question, Reply


@dataclass(frozen=True)
class ScriptedReply:
    """One response of the server. ``body`` replaces the chat completion."""

    text: str = "Yes"
    logprobs: Mapping[str, float] | None = None  # token to log-probability, of the first token
    finish_reason: str = "stop"
    usage: Mapping[str, Any] | None = field(default_factory=lambda: {"prompt_tokens": 10, "completion_tokens": 1})
    extra: Mapping[str, Any] = field(default_factory=dict)  # fields of the completion, over the usual ones
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    delay_s: float = 0.0
    drip_s: float = 0.0  # a pause after each byte
    drop: bool = False  # close the connection without a response
    cut: bool = False  # close the connection in the middle of the body

    def payload(self) -> bytes:
        if self.body is not None:
            return self.body
        top = [{"token": t, "logprob": p, "bytes": None} for t, p in (self.logprobs or {}).items()]
        listed = {"content": [{**top[0], "top_logprobs": top}]} if top else None
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": self.text},
            "finish_reason": self.finish_reason,
            "logprobs": listed,
        }
        completion = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "scripted"}
        return json.dumps({**completion, "choices": [choice], "usage": self.usage, **self.extra}).encode()

    @staticmethod
    def completions(replies: Sequence[ScriptedReply], kind: str) -> bytes:
        """Return the body of ``/v1/completions`` with the first tokens of the replies."""
        choices = [
            {"index": n, "text": one.text, "logprobs": {"top_logprobs": [dict(one.logprobs or {})]}}
            for n, one in enumerate(replies)
        ]
        usages = [one.usage for one in replies if one.usage]
        cached = [(usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0) for usage in usages] or [0]
        usage = {
            "prompt_tokens": sum(usage["prompt_tokens"] for usage in usages),
            "completion_tokens": len(replies),
            "prompt_tokens_details": {"cached_tokens": sum(cached) if kind == "sglang" else cached[-1]},
        }
        return json.dumps({"id": "cmpl-1", "object": "text_completion", "choices": choices, "usage": usage}).encode()


MODEL = "scripted"
BEGIN = "\x02"
_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>\n", re.DOTALL)


def chat_ml(messages: Sequence[Mapping[str, str]]) -> str:
    """A chat template that is widely used."""
    turns = (f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages)
    return "".join(turns) + "<|im_start|>assistant\n"


def unsupported(_messages: Sequence[Mapping[str, str]]) -> str:
    """Stand for a ``/tokenize`` without messages, as in older versions of SGLang."""
    raise NotImplementedError


def read_chat_ml(text: str) -> list[dict[str, str]]:
    """Back from ``chat_ml``."""
    assert text.endswith("<|im_start|>assistant\n"), text[-80:]
    return [{"role": role, "content": content} for role, content in _TURN.findall(text)]


def text_reply(text: str, **fields: Any) -> ScriptedReply:
    return ScriptedReply(text, **fields)


def labels(**mass: float) -> ScriptedReply:
    """The first token is each label with the given probability."""
    return ScriptedReply(next(iter(mass), ""), {label: math.log(share) for label, share in mass.items()})


def error(status: int, message: str = "scripted", *, retry_after: float | None = None) -> ScriptedReply:
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return ScriptedReply(status=status, headers=headers, body=json.dumps({"error": {"message": message}}).encode())


DROPPED = ScriptedReply(drop=True)
CUT_OFF = ScriptedReply(cut=True)  # fewer bytes than Content-Length says
NOT_JSON = ScriptedReply(body=b"<html>proxy</html>")
NAN = ScriptedReply("Yes", {"Yes": math.nan, "No": -1.0})
POSITIVE = ScriptedReply("Yes", {"Yes": 0.5})
SLOW_LORIS = ScriptedReply(drip_s=0.05)

Script = ScriptedReply | Sequence[ScriptedReply] | Callable[[int, dict[str, Any]], ScriptedReply]
"""Always the same reply; one after the other, the last one repeated; or by number (from 0) and request."""

_TYPICAL = labels(Yes=0.85, No=0.1, A=0.02, B=0.01, C=0.005)
_TYPICAL = replace(_TYPICAL, body=_TYPICAL.payload())


def instant(_number: int, request: dict[str, Any]) -> ScriptedReply:
    """Agree with everything, at little cost."""
    if request.get("logprobs"):
        return _TYPICAL
    schema = request.get("response_format", {}).get("json_schema", {}).get("schema")
    if schema is None:
        return ScriptedReply("Yes.")
    reply = agreeable(Question("", schema=schema))
    assert isinstance(reply, Reply)
    return ScriptedReply(reply.text)


MODES: dict[str, Script] = {
    "instant": instant, "down": error(503), "dropped": DROPPED, "not-json": NOT_JSON,
    "slow": replace(_TYPICAL, delay_s=1.0),
}  # fmt: skip


class ScriptedServer:
    """Serves from a thread with its own event loop. ``script`` may be changed at any time."""

    def __init__(self, script: Script, *, port: int = 0, remember: bool = True, kind: str = MODEL) -> None:
        self.script = script
        self.kind = kind
        self.render: Callable[[Sequence[Mapping[str, str]]], str] = chat_ml
        self.render_thinking: Callable[[Sequence[Mapping[str, str]]], str] | None = (
            None  # without the template option that disables thinking
        )
        self.tokenize_delay_s = 0.0
        self.list_sizes: list[int] = []  # the number of prompts in each list
        self.template_options = True  # whether the chat template accepts options; Mistral's does not
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.count = 0
        self.max_concurrent = 0
        self.port = port
        self.probes = 0  # of ``/v1/models``
        self.alive: Callable[[int], bool] = lambda _probes: True
        self.models: Callable[[int], Sequence[str] | None] = lambda _probes: [MODEL]  # None: 404
        self.concurrent = 0
        self._remember = remember
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scripted server", daemon=True)

    @property
    def url(self) -> str:
        """The base URL, as judges' endpoints want it."""
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        self._thread.start()
        self._runner = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> web.ServerRunner:
        runner = web.ServerRunner(web.Server(self._handle, handler_cancellation=True), shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port, backlog=1024).start()
        self.port = runner.addresses[0][1]
        return runner

    async def _close(self) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()  # requests that still wait
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/v1/models":
            return self._models()
        body = json.loads(await request.read()) if request.method == "POST" else {}
        if self.kind in ("vllm", "sglang") and request.path in ("/tokenize", "/detokenize"):
            await asyncio.sleep(self.tokenize_delay_s)
            return self._refusal(body) or self._tokens(body)
        if self.kind in ("vllm", "sglang") and request.path == "/v1/completions":
            self.list_sizes.append(len(body["prompt"]))
            assert body.get("add_special_tokens") is (False if self.kind == "vllm" else None)
            return await self._record(request, body, self._list(body))
        if request.path != "/v1/chat/completions" or request.method != "POST":
            return web.json_response({"error": {"message": f"no {request.path} here"}}, status=404)
        return self._refusal(body) or await self._record(request, body, self._next_reply(body))

    def _models(self) -> web.Response:
        self.probes += 1
        if not self.alive(self.probes):
            return web.json_response({"error": {"message": "not yet"}}, status=503)
        if (models := self.models(self.probes)) is None:
            return web.json_response({"error": {"message": "no such page"}}, status=404)
        cards = [{"id": model, "object": "model", "owned_by": self.kind} for model in models]
        return web.json_response({"object": "list", "data": cards})

    def _refusal(self, body: dict[str, Any]) -> web.Response | None:
        if self.template_options or "chat_template_kwargs" not in body:
            return None
        message = "chat_template is not supported for Mistral tokenizers."
        return web.json_response({"error": {"message": message}}, status=400)

    def _tokens(self, body: dict[str, Any]) -> web.Response:
        begin = BEGIN if self.kind == "sglang" else ""
        if "tokens" in body:
            text = "".join(map(chr, body["tokens"]))
            if self.kind == "vllm":
                return web.json_response({"prompt": text})
            return web.json_response(
                {"text": text.replace(BEGIN, "") if body.get("skip_special_tokens", True) else text}
            )
        if "messages" in body and self.render is unsupported:
            return web.json_response({"error": {"message": "prompt: field required"}}, status=422)
        thinking = self.render_thinking if "chat_template_kwargs" not in body else None
        render = thinking or self.render
        text = begin + (render(body["messages"]) if "messages" in body else body["prompt"])
        return web.json_response({"tokens": [*map(ord, text)]})

    async def _record(self, request: web.BaseRequest, body: dict[str, Any], reply: ScriptedReply) -> web.StreamResponse:
        if self._remember:
            self.requests.append(body)
            self.headers.append(request.headers)
        self.concurrent += 1
        self.max_concurrent = max(self.max_concurrent, self.concurrent)
        try:
            return await self._respond(request, reply)
        finally:
            self.concurrent -= 1

    def _list(self, body: dict[str, Any]) -> ScriptedReply:
        """Return the first reply that is an error, or all as one list."""
        replies: list[ScriptedReply] = []
        for prompt in body["prompt"]:
            number, self.count = self.count, self.count + 1
            replies.append(self._next(number, {"messages": read_chat_ml(prompt), "logprobs": True}))
        if failed := next(
            (one for one in replies if one.status != 200 or (one.body is not None and not one.logprobs)), None
        ):
            return failed
        return replace(replies[0], body=ScriptedReply.completions(replies, self.kind))

    def _next_reply(self, body: dict[str, Any]) -> ScriptedReply:
        number, self.count = self.count, self.count + 1
        return self._next(number, body)

    def _next(self, number: int, body: dict[str, Any]) -> ScriptedReply:
        if isinstance(self.script, ScriptedReply):
            return self.script
        if callable(self.script):
            return self.script(number, body)
        return self.script[min(number, len(self.script) - 1)]

    async def _respond(self, request: web.BaseRequest, reply: ScriptedReply) -> web.StreamResponse:
        if reply.delay_s:
            await asyncio.sleep(reply.delay_s)
        payload = reply.payload()
        if not (reply.drop or reply.cut or reply.drip_s):
            kind = "application/json"
            return web.Response(body=payload, status=reply.status, headers=reply.headers, content_type=kind)
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(payload))})
        if not reply.drop:
            await response.prepare(request)
            for byte in payload[: len(payload) // 2] if reply.cut else payload:
                await response.write(bytes([byte]))
                await asyncio.sleep(reply.drip_s)
        if reply.drop or reply.cut:
            assert request.transport is not None
            request.transport.abort()
        return response


@contextlib.contextmanager
def scripted_server(script: Script, *, remember: bool = True, kind: str = MODEL) -> Iterator[ScriptedServer]:
    server = ScriptedServer(script, remember=remember, kind=kind)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def server_process(mode: str = "instant", *, kind: str = MODEL) -> Iterator[str]:
    """Start the server in a process of its own, and yield its base URL."""
    command = [sys.executable, "-m", "tests.scripted_server", "--mode", mode, "--kind", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def wait_for_calls(server: ScriptedServer, more: int) -> None:
    """Wait until the server has had so many more requests."""
    seen = server.count
    wait_for(lambda: server.count >= seen + more)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", type=int, default=0)
    arguments.add_argument("--mode", choices=sorted(MODES), default="instant")
    arguments.add_argument("--kind", default=MODEL)
    options = arguments.parse_args()
    server = ScriptedServer(MODES[options.mode], port=options.port, remember=False, kind=options.kind)
    server.start()
    print(server.url, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


if __name__ == "__main__":
    main()
