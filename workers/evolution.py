"""Evolution of rubrics: rounds that propose criteria, measure them and decide, on a service here or over HTTP.

The source of `evolve_on_labels` are people's overall scores, that of `trainer.evolution` the rollouts of a run.
Separation is the standard deviation of a criterion's values within a group of completions: what GRPO can learn from.
Agreement is the share of pairs of completions that a criterion, or the rewards of a rubric, order as people or a
trusted judge do; ties count half (docs/evolving.md). Needs the extra ``judging``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rubricsvc.core.evolution import (
    USED,
    Approve,
    BufferedCriterion,
    EvolutionData,
    EvolutionRequest,
    EvolutionRound,
    HeldOutResult,
    RetirementReason,
)
from rubricsvc.core.generation import NO_RUBRIC, Generation
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.reward import check_formula, reward_or_null
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.untrusted import clean
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError, UnavailableError, cut
from rubricsvc.lint import lint
from rubricsvc.lint.duplicates import near_duplicates
from rubricsvc.schemas.base import every_row
from rubricsvc.schemas.jobs import NewItem, NewJob, StoredJob
from rubricsvc.stats import OnProgress
from rubricsvc.stats.criteria import mean_estimates
from rubricsvc.stats.intervals import Floats, Ints
from rubricsvc.stats.paired import differences, ordered
from rubricsvc.stats.ranking import concordance
from workers import checks
from workers.authoring.author import Author, GenerationError, rubric_reader
from workers.authoring.templates import shown, shown_all
from workers.engines import make_engine
from workers.engines.base import Engine
from workers.engines.budget import SpendingLimit, current_budget

if TYPE_CHECKING:
    from rubricsvc.services.evolutions import Evolutions
    from rubricsvc.services.local import LocalService

TEMPLATE = "evolve"
REPAIRS = 2
MAX_PROPOSALS = 4
TEMPERATURE = 0.7
Proposed = tuple[list[BufferedCriterion], EvolutionRound]  # new entries of a buffer, and what the round has done so far


async def propose_criteria(
    engine: Engine,
    judge: Judge,
    base: Rubric,
    entries: Sequence[BufferedCriterion],
    *,
    texts: Mapping[str, str],
    limit: SpendingLimit,
    most: int = MAX_PROPOSALS,
    prompt: Prompt | None = None,
) -> Proposed:
    """Return the new criteria of one reply, at most ``most``; without any, the round's failure is its reason, then why.

    The model of the ``judge`` is shown the criteria in use and ``texts``, completions by SHA-256: answers to the
    ``prompt``, or each with its prompt and people's scores.
    """
    lines = [
        f"- {'(pitfall) ' * (one.criterion.weight < 0)}{' '.join(one.criterion.text.split())}"
        for one in entries
        if one.state in USED
    ]
    values = {"criteria": shown("criteria", "\n".join(lines)), "most": str(most)}
    answers = shown_all("answer", {f"answer {n}": text for n, text in enumerate(texts.values(), start=1)})
    if prompt is None:
        values["labelled"] = answers
    else:
        values |= {"prompt": shown("question", prompt.text), "answers": answers}
    reader = rubric_reader(TEMPLATE, least=1, needs_positive=False)
    own = SpendingLimit(None, 0.0, within=limit)
    token = current_budget.set(own)
    try:
        # a judge is usually asked at temperature 0, and would propose the same criteria in every round
        sampling = judge.sampling.model_copy(update={"temperature": judge.sampling.temperature or TEMPERATURE})
        author = Author(engine, judge, Generation(sampling=sampling, repairs=REPAIRS, redraws=0))
        draft = await author.write(TEMPLATE, values, reader=reader)
    except GenerationError as error:
        return [], EvolutionRound(failure=f"{error.reason}: {error}"[:500], cost=own.spent)
    finally:
        current_budget.reset(token)
    added, done = admit(draft.rubric.criteria[:most], base, entries, prompt=prompt)
    source = {"proposer": judge.name, "model": judge.model, "template_digest": draft.template.digest}
    reply = {"shown": tuple(texts), "raw_reply": draft.raw_reply, "cost": own.spent}
    return added, done.model_copy(update=source | reply)


def admit(
    proposed: Sequence[Criterion], base: Rubric, entries: Sequence[BufferedCriterion], *, prompt: Prompt | None
) -> Proposed:
    """Return the proposals that are new and have no fault that the linter finds; all criteria of the buffer count.

    They are tried without a veto, and without what a person would have to confirm: references and sources. Their keys
    are evolved-1, evolved-2, …, which no entry has or has had.
    """
    accepted: list[BufferedCriterion] = []
    refused: dict[str, str] = {}
    known = [entry.criterion for entry in entries]
    taken = {entry.key for entry in entries}
    keys = (name for name in (f"evolved-{number}" for number in count(1)) if name not in taken)
    size = min((abs(other.weight) for other in base.criteria if other.weight), default=1.0)
    for given, key in zip(proposed, keys, strict=False):
        removed = {"required": False, "reference": None, "passages": None, "sources": None}
        one = given.model_copy(update={"key": key, **removed})
        same = next((other for other in known if (other.check or other.question) == (one.check or one.question)), None)
        if same is None and one.check is None:
            judged = [other for other in known if other.check is None and other.custom_prompt is None]
            pairs = near_duplicates([*judged, one])
            same = next((judged[place] for place, later in pairs if later == len(judged)), None)
        if same is not None:
            refused[one.text] = f"duplicate of {same.key}"
            continue
        sized = one.model_copy(update={"weight": size if one.weight > 0 else -size})  # linted whatever its weight
        whole = base.model_copy(update={"criteria": (*base.criteria, sized)})
        findings = lint(whole, prompt, empty_value=checks.value_of_empty)
        found = next((f for f in findings if f.criterion == key and f.severity != "info"), None)
        if found is not None:
            refused[one.text] = f"{found.rule}: {found.message}"
            continue
        known.append(one)
        accepted.append(BufferedCriterion(criterion=one, state="proposed"))
    return accepted, EvolutionRound(proposed=tuple(one.key for one in accepted), refused=refused)


Values = Sequence[float | None]  # a criterion's value for each completion of a group; None where it was not judged

MIN_SHARE = 0.5  # share of a group that must be judged for a trial to count
MIN_ORDERED = 0.9  # share of the pairs that a draft must have rewards for


def trial_rubric(criteria: Sequence[Criterion], min_coverage: float = 1.0) -> Rubric:
    """Return a rubric to try criteria by: weights, vetoes and groups are not what is tried."""
    plain = [one.model_copy(update={"weight": 1.0, "group": (), "required": False}) for one in criteria]
    return Rubric(criteria=tuple(plain), min_coverage=min_coverage)


def measured(entry: BufferedCriterion, step: int, values: Values, reference: Values = ()) -> BufferedCriterion | None:
    """Return the entry after a trial at ``step``; None if too few completions were judged.

    ``values`` are those of its criterion in a group of completions, ``reference`` what the trusted judge or people say
    of each; empty without one.
    """
    known = [value for value in values if value is not None]
    if len(known) < max(2, MIN_SHARE * len(values)):
        return None
    both = zip(values, reference, strict=bool(reference))
    net_concordant, _, different = concordance([(a, b) for a, b in both if a is not None and b is not None])
    found = {"separation": pstdev(known), "mean": fmean(known), "pairs": entry.pairs + different}
    found["agreeing"] = entry.agreeing + (different + net_concordant) / 2
    return entry.model_copy(update={"trials": entry.trials + 1, "tested_step": step, **found})


def evolved_rubric(base: Rubric, entries: Sequence[BufferedCriterion], weight: float) -> Rubric:
    """Return the rubric with the active criteria after its own, in the order of the buffer.

    Each has a share ``weight`` of the sum of the rubric's absolute weights, with the sign that was proposed.
    """
    size = weight * sum(abs(criterion.weight) for criterion in base.criteria)
    active = [one.criterion for one in entries if one.state == "active"]
    sized = [one.model_copy(update={"weight": size if one.weight > 0 else -size}) for one in active]
    return base.model_copy(update={"criteria": (*base.criteria, *sized)}) if active else base


def with_criteria(rubric: Rubric, criteria: Sequence[Criterion]) -> Rubric:
    """Return the rubric with these criteria; what its examples say about others is left out."""
    kept = {one.key for one in criteria}
    examples = tuple(
        one.model_copy(
            update={
                name: {key: value for key, value in (getattr(one, name) or {}).items() if key in kept} or None
                for name in ("verdicts", "evidence")
            }
        )
        for one in rubric.examples or ()
    )
    used = tuple(one for one in examples if one.verdicts or one.reward is not None) or None
    return rubric.model_copy(update={"criteria": tuple(criteria), "examples": used})


def agreement(rewards: Floats, pairs: Ints) -> float | None:
    """Return the share of pairs [P, 2] that rewards [N] order as people do; None where too many have no reward."""
    units = ordered(differences(rewards, pairs))
    known = ~np.isnan(units)
    return float(units[known].mean()) if len(units) and known.mean() >= MIN_ORDERED else None


def held_out_result(pairs: Ints, clusters: Ints, start: Floats, best: Floats) -> HeldOutResult:
    """Return how much better rewards [N] of the best draft order held-out pairs [P, 2] than those of the start.

    ``clusters`` [N] are what is independent: the prompts, or the completions where all have one prompt.

    Raises:
        InvalidError: No pair has both rewards.
    """
    before, after = (ordered(differences(rewards, pairs)) for rewards in (start, best))
    known, of_pair = ~(np.isnan(before) | np.isnan(after)), clusters[pairs[:, 0]]
    if not known.any():
        raise InvalidError("no held-out pair has rewards of both rubrics", hint="see `rubricsvc jobs show` of its jobs")
    (difference,) = mean_estimates((after - before)[known, None], of_pair[known])
    return HeldOutResult(
        prompts=len(np.unique(of_pair)),
        units=int(known.sum()),
        left_out=int((~known).sum()),
        start=float(before[known].mean()),
        best=float(after[known].mean()),
        difference=difference,
        gain=difference.low is not None and difference.low > 0,
    )


SHOWN = 6  # completions that a proposer is shown, of the pairs that rubric and people order differently
MAX_CHARS = 6000  # characters of such a completion and of its prompt
WEIGHT = 0.1  # weight of a new criterion, as a share of the sum of the start's
MAX_FAILED = (1 - MIN_ORDERED) / 2  # share of the verdicts of a candidate that may fail: each has one end of a pair
_UNLIMITED = 1e9
_WRITING = frozenset({"written", "trajectory"})


@dataclass
class Round:
    """The round of the evolution ``id`` of the rubric ``base`` that follows a ``step``, which ``used`` a version.

    A source adds to the buffer (``entries``) what is proposed, replaces entries by what is measured, and says which are
    ``untested``, by key, since their trial failed. A round that is ``fresh`` has proposed nothing yet.
    """

    id: int
    step: int
    base: Rubric
    used: Rubric
    entries: list[BufferedCriterion]
    done: EvolutionRound = field(default_factory=EvolutionRound)
    fresh: bool = True
    untested: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    score: float | None = None

    def record(self, evolutions: Evolutions, rubric: Rubric | None = None, approve: Approve = "human") -> None:
        """Record what it has done."""
        entries = tuple(self.entries)
        evolutions.record(self.id, step=self.step, round=self.done, entries=entries, rubric=rubric, approve=approve)


class Source(Protocol):
    """What criteria are proposed from and measured on: people's labels, or the rollouts of a run."""

    def propose(self, rounds: Sequence[Round]) -> None:
        """Add proposed criteria to the buffer of each round, and set its ``done``, or add a failure."""

    def measure(self, rounds: Sequence[Round]) -> None:
        """Measure what is due in each round, and replace its entries."""

    def decide(self, one: Round) -> tuple[Mapping[str, RetirementReason | None], Rubric]:
        """Return which criteria are kept (None) or why they are retired, by key, and the rubric with those in use."""


def hold_rounds(evolutions: Evolutions, rounds: Sequence[Round], source: Source, *, approve: Approve = "human") -> None:
    """Hold rounds together: propose, measure, decide, and record each, with its version in the same transaction.

    Where one has proposed already, that is not asked for again; what is decided stays.

    Raises:
        ConflictError: Another process has held the round of an evolution on labels meanwhile.
    """
    fresh = [one for one in rounds if one.fresh]
    source.propose(fresh)
    for one in fresh:
        one.record(evolutions)
    under_way = [one for one in rounds if not one.done.decided]
    source.measure(under_way)
    for one in under_way:
        moved: dict[str, tuple[str, ...]] = {}
        decided, version = source.decide(one)
        for place, entry in enumerate(one.entries):
            if entry.key in decided:
                reason = decided[entry.key]
                state = "retired" if reason else "frozen" if entry.key in one.base.by_key else "active"
                change = "retired" if reason else "activated"
                if bool(reason) == (entry.state in USED):
                    moved[change] = (*moved.get(change, ()), entry.key)
                one.entries[place] = entry.model_copy(update={"state": state, "reason": reason})
        failure = "; ".join(filter(None, [one.done.failure, *one.failures])) or None
        active = sum(entry.state == "active" for entry in one.entries)
        fields = {"untested": tuple(one.untested), "score": one.score, "failure": failure, "active": active}
        one.done = one.done.model_copy(update={"decided": True, **moved, **fields})
        one.record(evolutions, version, approve)


def evolve_on_labels(
    s: LocalService,
    request: EvolutionRequest,
    score_job: Callable[[int], StoredJob],
    on_progress: OnProgress = lambda done, total, note: None,
) -> int:
    """Evolve a rubric version on labels; with the same settings, labels and verdicts, continue or return that one's id.

    ``s`` is the service, here or over HTTP; ``score_job`` waits until a job is finished, and returns it;
    ``on_progress`` is called with the round, their number and a note.

    Raises:
        NotFoundError, InvalidError: As of `Evolutions.start`; or the budget is used up: with a larger one it continues.
        ConflictError: Another process continues it.
        UnavailableError: A model cannot be asked.
    """
    data, note = s.evolutions.start(request), ""
    source = LabelSource(s, data, request, score_job)
    for step in range(request.rounds):
        report = s.evolutions.get(data.id)
        if report.finished_at is not None:
            return data.id
        on_progress(step, request.rounds, note)
        used = s.rubrics.get(report.newest or report.rubric).rubric
        done = next((one.round for one in report.rounds if one.step == step), None)
        fresh = done is None or done.asked_again
        one = Round(data.id, step, data.rubric, used, list(report.entries), done or EvolutionRound(), fresh)
        hold_rounds(s.evolutions, [one], source)
        note = f"agreement {one.done.score:.4f}" if one.done.score is not None else ""
    source.finish()
    on_progress(request.rounds, request.rounds, "")
    return data.id


class LabelSource:
    """Proposes from the pairs that rubric and people order differently, and measures whole drafts on all pairs."""

    def __init__(
        self, s: LocalService, data: EvolutionData, request: EvolutionRequest, score_job: Callable[[int], StoredJob]
    ) -> None:
        self._s, self._data, self._request, self._score_job = s, data, request, score_job
        judge = s.judges.get(data.judge).value
        # leaving a criterion out changes what such a judge is asked about the others
        self._together = any(one.mode in _WRITING and one.criteria_per_call != 1 for one in judge.leaf_judges)
        held_out, pairs = np.array(data.held_out), np.array(data.pairs, np.int64)
        self._parts = {"search": np.flatnonzero(~held_out), "held-out": np.flatnonzero(held_out)}
        self._pairs = {"search": pairs[~held_out[pairs].any(1)], "held-out": pairs[held_out[pairs].all(1)]}
        hint = "continue by the same command with a larger --budget"
        self._exhausted = InvalidError(f"evolution {data.id} has used its budget", hint=hint)
        self._verdicts = {
            key: [Verdict.abstained(key) if each is None else Verdict.scored(key, each) for each in column]
            for key, column in data.values.items()
        }
        report = s.evolutions.get(data.id)
        tried = {self._name(str(one.step)) for one in report.rounds if one.round.decided}
        for job in map(s.jobs.get, report.jobs):
            if job.name in tried:
                self._verdicts |= self._verdicts_of(job.id)

    def _name(self, what: str) -> str:
        return f"evolution {self._data.id}: {what}"

    def _rewards(self, rubric: Rubric, verdicts: Mapping[str, Sequence[Verdict]] | None = None) -> Floats:
        columns = [(self._verdicts if verdicts is None else verdicts)[one.key] for one in rubric.criteria]
        return np.array([reward_or_null(rubric, row).value for row in zip(*columns, strict=True)], float)

    def propose(self, rounds: Sequence[Round]) -> None:
        """Ask for criteria that tell what people prefer, in pairs that the rubric orders in another way.

        Raises:
            InvalidError: The budget is used up.
            UnavailableError: The proposer cannot be asked.
        """
        if self._request.proposer is None:
            return
        proposer = self._s.judges.get(self._request.proposer).value
        for one in rounds:
            rewards, pairs, texts = self._rewards(one.used), self._pairs["search"], dict[str, str]()
            worst = np.argsort(ordered(differences(rewards, pairs)), kind="stable")[: 4 * SHOWN]
            drawn = np.random.default_rng([self._request.seed, 2, one.step]).permutation(worst)
            for row in list(dict.fromkeys(pairs[drawn].flatten().tolist()))[:SHOWN]:
                stored = self._s.completions.get(self._data.completions[row])
                note = f"People gave it {self._data.scores[row]:.2f} of 1; its reward is {rewards[row]:.2f}."
                question = cut(self._s.prompts.get(stored.prompt_id).prompt.text, MAX_CHARS)
                answer = cut(f"{note}\n\n{stored.completion.text}", MAX_CHARS)
                texts[stored.completion.digest] = clean(f"Question:\n{question}\n\nAnswer:\n{answer}").text
            before = one.done.cost
            added, done = asyncio.run(self._ask(proposer, one, texts))
            one.done = done.model_copy(update={"cost": before + done.cost})
            if one.done.asked_again:
                one.record(self._s.evolutions)
            reason = (one.done.failure or "").partition(":")[0]
            if reason == Reason.BUDGET:
                raise self._exhausted
            if reason not in ("", NO_RUBRIC):
                raise UnavailableError(f"the proposer {proposer.name!r}: {one.done.failure}")
            one.entries += added

    async def _ask(self, proposer: Judge, one: Round, texts: Mapping[str, str]) -> Proposed:
        limit = SpendingLimit(self._left(), 0.0)
        async with aclosing(make_engine(proposer)) as engine:
            return await propose_criteria(engine, proposer, one.base, one.entries, texts=texts, limit=limit)

    def measure(self, rounds: Sequence[Round]) -> None:
        """Have the judge asked about the criteria that it was not asked about yet."""
        searched = self._parts["search"].tolist()
        for one in rounds:
            new = [entry.criterion for entry in one.entries if entry.key not in self._verdicts]
            if new:
                self._verdicts |= self._score(f"{one.step}", trial_rubric(new), "search")
            for place, entry in enumerate(one.entries):
                if not entry.trials:
                    values = [self._verdicts[entry.key][row].value for row in searched]
                    sign = -1.0 if entry.criterion.weight < 0 else 1.0
                    reference = [sign * self._data.scores[row] for row in searched]
                    one.entries[place] = measured(entry, one.step, values, reference) or entry

    def decide(self, one: Round) -> tuple[Mapping[str, RetirementReason | None], Rubric]:
        """Keep the best of the version and its changes: a criterion is left out, or one more is taken in."""
        criteria, tried = list(one.used.criteria), list[list[Criterion]]()
        if len(criteria) > 1:
            tried += [criteria[:place] + criteria[place + 1 :] for place in range(len(criteria))]
        for entry in one.entries:
            if entry.key not in one.used.by_key:
                active = entry.model_copy(update={"state": "active"})
                start = self._data.rubric
                added = start.by_key.get(entry.key) or evolved_rubric(start, [active], WEIGHT).criteria[-1]
                tried.append([*criteria, added])
        best, one.score = one.used, agreement(self._rewards(one.used), self._pairs["search"])
        for changed in tried:
            try:
                draft = Rubric.model_validate(with_criteria(one.used, changed).model_dump())
                check_formula(draft)
            except ValueError:  # the formula does not take them
                continue
            score = agreement(self._rewards(draft), self._pairs["search"])
            if score is not None and (one.score is None or score > one.score + 1e-9):
                best, one.score = draft, score
        return {entry.key: None if entry.key in best.by_key else "agreement" for entry in one.entries}, best

    def finish(self) -> None:
        """Score the best rubric as a whole on held-out prompts, and store it as a draft of the start's name."""
        start, report = self._data.rubric, self._s.evolutions.get(self._data.id)
        best = self._s.rubrics.get(report.newest or report.rubric).rubric
        before, after = self._rewards(start), self._rewards(best)
        done = EvolutionRound(decided=True, score=agreement(after, self._pairs["search"]))
        if best.by_key.keys() - start.by_key.keys() or (self._together and len(best.criteria) < len(start.criteria)):
            after = self._rewards(best, self._score("held-out", best, "held-out"))
        result = held_out_result(self._pairs["held-out"], np.array(self._data.clusters), before, after)
        self._s.evolutions.record(
            self._data.id, step=self._request.rounds, round=done, entries=report.entries, rubric=best, result=result
        )

    def _score(self, what: str, rubric: Rubric, part: str) -> dict[str, list[Verdict]]:
        """Have a rubric scored on a part by a job, or that submitted for it before; return the verdicts by key."""
        name, jobs, left, lineage = self._name(what), self._s.jobs, self._left(), f"evolution-{self._data.id}"
        submitted = map(jobs.get, self._s.evolutions.get(self._data.id).jobs)
        known = next((one for one in submitted if one.name == name), None)
        if known is not None and known.status == "budget_exhausted":
            jobs.retry(known.id, budget=known.spent + (_UNLIMITED if left is None else left))
        if known is None:  # work without a rubric's name never uses drafts of an evolution's name
            added = self._s.rubrics.add(rubric=rubric, name=lineage, prompt_id=self._data.prompt_id, draft=True)
            ids = [self._data.completions[row] for row in self._parts[part].tolist()]
            items, key = tuple(NewItem(completion_id=id_, rubric=added.id) for id_ in ids), f"{lineage}-{what}"
            new = NewJob(judge=self._data.judge, items=items, key=key, name=name, budget=left, allow_drafts=True)
            known = jobs.submit(new)
        job = self._score_job(known.id)
        if job.status == "budget_exhausted":
            raise self._exhausted
        again, what = "then evolve again by the same command", f"job {job.id} of {self._name(what)}"
        if job.status == "cancelled":
            raise InvalidError(f"{what} was cancelled", hint=f"rubricsvc jobs retry {job.id}, {again}")
        failed, good = (job.progress.failed_verdicts, job.progress.verdicts) if job.progress is not None else (0, 0)
        if failed > MAX_FAILED * (failed + good):  # else drafts would lose for want of rewards
            message = f"{what}: {failed} of {failed + good} verdicts failed"
            raise UnavailableError(message, hint=f"rubricsvc jobs retry {job.id} --wait, {again}")
        return self._verdicts_of(job.id)

    def _verdicts_of(self, job_id: int) -> dict[str, list[Verdict]]:
        by_id = {one.completion_id: one.verdicts for one in every_row(self._s.jobs.items, job_id)}
        found = {(id_, one.criterion): one for id_, verdicts in by_id.items() for one in verdicts}
        ids, keys = self._data.completions, dict.fromkeys(key for _, key in found)
        return {key: [found.get((id_, key)) or Verdict.abstained(key) for id_ in ids] for key in keys}

    def _left(self) -> float | None:
        """Return the US dollars that are left; None without a limit."""
        budget, spent = self._request.budget, self._s.evolutions.get(self._data.id).cost
        if budget is not None and budget <= spent:
            raise self._exhausted
        return None if budget is None else budget - spent
