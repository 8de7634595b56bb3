"""Sampling of completions: n for each prompt, stored as they arrive, so that a killed run resumes."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rubricsvc.core.base import storable
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Message, Prompt
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError
from rubricsvc.schemas.completions import NewCompletion, StoredCompletion
from rubricsvc.store.session import name_of
from workers.engines.base import Engine, EngineRequest, Failure, Question, Reply

MAX_FIRST_FAILURES = 8
"""Sampling stops when this many requests have failed and none has succeeded: the model or the key is wrong."""

LOCAL_PROMPTS = 4  # prompts that a model in this process answers together

MAX_FAILURES = 20  # failures that are kept with their messages


class FailedSample(NamedTuple):
    """A sample without a completion."""

    prompt_id: int
    sample: int
    failure: Failure


@dataclass
class SamplingResult:
    """What a run has stored, and what failed.

    Of ``total`` samples ``existing`` ones were stored before, or meanwhile by another process. ``truncated`` replies
    were cut off at ``max_tokens``; ``tokens`` are of replies whose tokens are known. ``reasons`` counts the failed
    samples, ``failures`` are the first of them, and ``stopped`` is the one that ended the run early.
    """

    total: int
    existing: int
    stored: int = 0
    truncated: int = 0
    tokens: float = 0.0
    reasons: Counter[Reason] = field(default_factory=Counter)
    failures: list[FailedSample] = field(default_factory=list)
    stopped: Failure | None = None


class CompletionSampler:
    """Samples ``n`` completions of each prompt from the model of a judge, by its sampling, endpoint and engine alone.

    ``prompt`` returns the prompt of an id, and ``store`` stores samples that do not exist yet, and returns how many.

    Sampling options and the number of the sample are stored in ``Completion.sampling``: a sample that is stored with
    the same policy and options is not asked for again, and equal texts are different samples. It is an InvalidError to
    want several at temperature 0, where all are the same.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        policy: str,
        n: int,
        prompt: Callable[[int], Prompt],
        store: Callable[[Sequence[NewCompletion]], int],
    ) -> None:
        if n > 1 and judge.sampling.temperature == 0:
            raise InvalidError("at temperature 0 all samples of a prompt are the same", hint="raise it, or take -n 1")
        name_of("a policy", policy)
        self.judge, self.policy, self.n, self.prompt, self.store = judge, policy, n, prompt, store
        self.sampling = {"model": judge.model, **judge.sampling.model_dump()}
        self.is_local = judge.engine != "openai_http"

    async def run(
        self,
        engine: Engine,
        prompt_ids: Sequence[int],
        stored: Iterable[StoredCompletion],
        on_progress: Callable[[SamplingResult], None],
    ) -> SamplingResult:
        """Sample what is not among the ``stored`` ones. ``on_progress`` is called with the result so far."""
        known = {
            (one.prompt_id, one.completion.sampling.get("sample"))
            for one in stored
            if one.completion.policy == self.policy and self.sampling.items() <= one.completion.sampling.items()
        }
        missing = {id_: [n for n in range(self.n) if (id_, n) not in known] for id_ in prompt_ids}
        total = len(prompt_ids) * self.n
        result = SamplingResult(total, existing=total - sum(map(len, missing.values())))
        on_progress(result)

        def requests() -> Iterator[tuple[int, Prompt, list[int]]]:
            """Yield (prompt id, prompt, numbers of samples): of a server one sample at a time, stored at once."""
            for id_, left in missing.items():
                if left:
                    prompt = self.prompt(id_)
                    yield from ((id_, prompt, some) for some in ([left] if self.is_local else [[one] for one in left]))

        left = requests()
        running: set[asyncio.Task[list[tuple[int, int, Reply | Failure]]]] = set()
        capacity = LOCAL_PROMPTS if self.is_local else self.judge.endpoint.concurrency
        while True:
            while result.stopped is None and len(running) < capacity and (request := next(left, None)):
                running.add(asyncio.create_task(self._ask(engine, *request)))
            if not running:
                return result
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.to_thread(self._store, [reply for task in done for reply in task.result()], result)
            on_progress(result)

    async def _ask(
        self, engine: Engine, prompt_id: int, prompt: Prompt, numbers: list[int]
    ) -> list[tuple[int, int, Reply | Failure]]:
        """Return (prompt id, number of the sample, reply). Without text, as only a tool call, a reply is a failure."""
        questions = tuple(Question("", sample=number) for number in numbers)
        chat = tuple(message.openai for message in prompt.with_documents.messages)
        # thinking is left to the model: a policy is sampled as it is served
        replies = await engine.ask(EngineRequest("", "", questions, self.judge.sampling, thinking=True, chat=chat))
        found: list[tuple[int, int, Reply | Failure]] = []
        for number, reply in zip(numbers, replies, strict=True):
            if isinstance(reply, Reply) and not reply.text:
                cut_off = "cut off at the maximum of tokens before any text; raise --max-tokens"
                reason = Reason.TRUNCATED if reply.truncated else Reason.UNPARSEABLE
                failure = Failure(reason, cut_off if reply.truncated else "the reply has no text")
                found.append((prompt_id, number, failure))
            else:
                found.append((prompt_id, number, reply))
        return found

    def _store(self, replies: list[tuple[int, int, Reply | Failure]], result: SamplingResult) -> None:
        """Store the completions, then count the failures, and stop where further requests would fail too."""
        rows: list[NewCompletion] = []
        for prompt_id, number, reply in replies:
            if isinstance(reply, Reply):
                recorded = {**self.sampling, "sample": number, "truncated": reply.truncated}
                text, thought = storable(reply.text), storable(reply.thinking)
                messages = (Message(role="assistant", content=text, reasoning=thought),) if thought else ()
                completion = Completion(text=text, messages=messages, policy=self.policy, sampling=recorded)
                rows.append(NewCompletion(prompt_id=prompt_id, completion=completion))
                result.truncated += reply.truncated
                result.tokens += reply.usage.completion if reply.usage else 0.0
        if rows:
            result.stored += (stored := self.store(rows))
            result.existing += len(rows) - stored
        for prompt_id, number, reply in replies:
            if isinstance(reply, Failure):
                result.reasons[reply.reason] += 1
                result.failures += [FailedSample(prompt_id, number, reply)] * (len(result.failures) < MAX_FAILURES)
                hopeless = not result.stored and result.reasons.total() >= MAX_FIRST_FAILURES
                if reply.reason is Reason.UNAVAILABLE or hopeless:
                    result.stopped = result.stopped or reply
