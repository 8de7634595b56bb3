"""Modes of judging: readout, written, comparative, trajectory and custom prompts, one module each.

A mode is a module with a ``VERSION`` and, where it asks questions itself, ``build_call`` (criteria to a call),
``parse`` (a written reply to its content) and ``verdicts`` (a parsed reply to verdicts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

from rubricsvc.core.judge import FREE, Judge, Voting
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError
from workers.engines import factory_of
from workers.engines.base import Engine, EngineRequest, Failure, Reply, error_message
from workers.judges import comparative, custom_prompt, readout, trajectory, written
from workers.judges.calls import (
    AskedCriterion,
    JudgeCall,
    JudgeTemplate,
    ParsedReply,
    ReplyError,
    SharedPrompt,
    composition,
    is_quoted,
    join_notes,
    load,
    merge_repaired,
    parse_reply,
    repair_call,
    with_repaired_reply,
    writes,
)
from workers.judges.voting import aggregate

MODES: dict[str, Any] = {"readout": readout, "written": written, "comparative": comparative, "trajectory": trajectory}

Parsed = ParsedReply | Failure


@dataclass(frozen=True)
class JudgePlan:
    """How one judge is asked about one rubric, apart from the completion.

    ``mode`` parses the replies. ``voting`` is how often each call is asked, and how the samples are aggregated.
    ``answered`` are criteria that share calls with open ones, and get no verdict.
    """

    judge: Judge
    mode: Any
    template: JudgeTemplate
    calls: tuple[JudgeCall, ...]
    voting: Voting
    answered: frozenset[str] = frozenset()

    def request(self, shown: SharedPrompt) -> EngineRequest:
        """Return the request about one completion: each call's question, once for each sample."""
        thinking, sampling = self.judge.thinking, self.judge.sampling
        if thinking:
            sampling = sampling.model_copy(update={"max_tokens": sampling.max_tokens + thinking.budget_tokens})
        questions, limit = tuple(call.question for call in self._asked), self.judge.max_context
        return EngineRequest(self.template.system, shown.text, questions, sampling, limit, thinking is not None)

    async def ask(self, engine: Engine, shown: SharedPrompt) -> list[Verdict]:
        """Ask about one completion; return one verdict for each open criterion, in the rubric's order. Never raises.

        A reply that cannot be parsed is sent back once with its error, for the verdicts that it lacks.
        """

        async def replies(request: EngineRequest) -> list[Reply | Failure]:
            try:
                answers = await engine.ask(request)
                if len(answers) != len(request.questions):
                    raise ValueError(f"{len(answers)} replies to {len(request.questions)} questions")
            except Exception as error:  # noqa: BLE001 - an engine is foreign code; its fault must not lose the checks
                return [Failure(Reason.ENGINE_ERROR, error_message(error))] * len(request.questions)
            return list(answers)

        request = self.request(shown)
        answers = await replies(request)
        parsed = [self.parse(call, reply) for call, reply in zip(self._asked, answers, strict=True)]
        repairs = {
            index: (one, repair)
            for index, (call, one) in enumerate(zip(self._asked, parsed, strict=True))
            if not isinstance(one, Failure) and (repair := repair_call(call, one, self.template, self.mode.build_call))
        }
        if repairs:
            again = replace(request, questions=tuple(repair.question for _, repair in repairs.values()))
            for (index, (first, repair)), second in zip(repairs.items(), await replies(again), strict=True):
                reply = with_repaired_reply(first.reply, second)
                parsed[index] = replace(first, reply=reply)
                if not isinstance(second, Failure):
                    parsed[index] = merge_repaired(
                        first, parse_reply(reply, self.judge.thinking, partial(self.mode.parse, repair))
                    )
        return self.verdicts(parsed, shown)

    def verdicts(self, parsed: Sequence[Parsed], shown: SharedPrompt) -> list[Verdict]:
        """Return one verdict for each open criterion, in the rubric's order."""
        by_question = [self._verdicts(call, one, shown) for call, one in zip(self._asked, parsed, strict=True)]
        samples = self.voting.samples
        verdicts: list[Verdict] = []
        for number, call in enumerate(self.calls):
            rounds = by_question[number * samples : (number + 1) * samples]
            for asked, votes in zip(call.asked, zip(*rounds, strict=True), strict=True):
                if asked.criterion.key not in self.answered:
                    named = {f"sample {n}": verdict for n, verdict in enumerate(votes, start=1)}
                    verdicts.append(votes[0] if samples == 1 else aggregate(asked.criterion, named, self.voting.rule))
        return verdicts

    @cached_property
    def _asked(self) -> list[JudgeCall]:
        """The call of each question, once for each sample."""
        samples = range(self.voting.samples)
        return [replace(call, question=replace(call.question, sample=n)) for call in self.calls for n in samples]

    def parse(self, call: JudgeCall, reply: Reply | Failure) -> Parsed:
        """Parse the reply to a call."""
        if isinstance(reply, Failure):
            return reply
        if call.question.labels:  # a readout has nothing to parse, and asking again would bring the same token
            return ParsedReply(reply)
        return parse_reply(reply, self.judge.thinking, partial(self.mode.parse, call))

    def _verdicts(self, call: JudgeCall, parsed: Parsed, shown: SharedPrompt) -> list[Verdict]:
        if isinstance(parsed, Failure):
            fields = {"detail": join_notes(parsed.detail, shown.note, call.note), "raw": parsed.raw}
            return [Verdict.failed(asked.criterion.key, parsed.reason, **fields) for asked in call.asked]
        error, verdicts = parsed.error, list[Verdict]()
        passages = [text for one in call.asked for text in one.criterion.passages or ()]
        if (error is None or error.content) and is_quoted(parsed.reply.text, shown, passages):
            error = ReplyError(Reason.UNPARSEABLE, "the reply's verdict stands in what the judge was shown")
        if error is None:
            verdicts = self.mode.verdicts(call, parsed, self.judge, shown)
        else:  # the part of the call that it answers, in the call's order
            part = replace(call, asked=tuple(one for one in call.asked if one.id in error.content))
            scored = iter(self.mode.verdicts(part, parsed, self.judge, shown) if part.asked else ())
            failed = {c.id: call.failed(error.reason, str(error), parsed.reply, shown, only=c) for c in call.asked}
            verdicts = [next(scored) if one.id in error.content else failed[one.id][0] for one in call.asked]
        usage = parsed.reply.usage  # divided among the verdicts on open criteria
        paying = sum(verdict.criterion not in self.answered for verdict in verdicts)
        if usage is None or paying < 2:
            return verdicts
        shares = iter(usage.split(paying))
        return [
            verdict if verdict.criterion in self.answered else verdict.model_copy(update={"usage": next(shares)})
            for verdict in verdicts
        ]


def validate(judge: Judge) -> None:
    """Check that a judge, or each member of a panel or cascade, can be asked, and that it uses all of its settings."""
    for leaf in judge.leaf_judges:
        factory_of(leaf)
        template = load(leaf)
        if ("entry" in template.texts) != (leaf.mode in ("comparative", "trajectory")):  # which show several texts
            message = f"template {template.name!r} does not fit a {leaf.mode} judge"
            raise InvalidError(message, hint="leave it out: each mode has its own", path="judge.template")
        groupwise = leaf.mode == "comparative" and leaf.effective_comparison.kind == "groupwise"
        writing, changed = groupwise or writes(leaf), leaf.model_dump(exclude_defaults=True)
        unused = {f"sampling.{name}": "a judge that writes" for name in changed.get("sampling", {}) if not writing}
        unused |= {name: "a readout" for name in ("threshold", "min_answer_mass") if writing and name in changed}
        endpoint = changed.get("endpoint", {}).keys() - {"concurrency", "price"} if leaf.engine in FREE else set()
        unused |= {f"endpoint.{name}": "engine: openai_http" for name in sorted(endpoint)}
        if "criteria_per_call" in changed and (groupwise or not writing):
            unused["criteria_per_call"] = "mode: written"
        if leaf.voting and leaf.voting.samples == 1 and leaf.voting.rule != "mean":
            unused["voting.rule"] = "voting.samples above 1"
        for setting, needs in unused.items():
            message = f"judge {leaf.name!r}: {setting} has no effect; it needs {needs}"
            raise InvalidError(message, hint="leave it out", path=f"judge.{setting}")


@lru_cache(maxsize=512)
def plan(judge: Judge, rubric: Rubric, answered: frozenset[str] = frozenset()) -> JudgePlan:
    """Return how a judge is asked about the criteria of a rubric that are not ``answered``.

    A call is asked whole when any of its criteria is open: what shares a call decides its verdicts.
    """
    template, mode = load(judge), MODES[judge.mode]
    calls: list[JudgeCall] = []
    for criteria in composition(judge, rubric):
        if any(criterion.key not in answered for criterion in criteria):
            asked = [AskedCriterion(criterion, f"C{number}") for number, criterion in enumerate(criteria, start=1)]
            calls.append(mode.build_call(asked, template))
    return JudgePlan(judge, mode, template, tuple(calls), judge.voting or Voting(), answered)


def custom_prompt_plan(
    judge: Judge, criterion: Criterion, prompt: Prompt, completion: Completion
) -> tuple[JudgePlan, SharedPrompt]:
    """Return the plan for a criterion with a custom prompt about one completion, and the shared prompt."""
    custom = criterion.custom_prompt
    mode = {"readout": readout, "written": custom_prompt}.get(judge.mode)
    if custom is None or mode is None:
        raise InvalidError(
            f"a {judge.mode} judge cannot be asked a custom prompt", hint="use a readout or a written judge"
        )
    call, template, shown = custom_prompt.build_call(criterion, custom, judge, prompt, completion)
    overrides = custom.sampling.model_dump(exclude_none=True) if custom.sampling else {}
    asked = judge.model_copy(update={"sampling": judge.sampling.model_copy(update=overrides)})
    return JudgePlan(asked, mode, template, (call,), judge.voting or Voting()), shown
