"""Evolution of rubrics: proposals of a model, what is measured of them, and the rounds on people's labels.

Those on the rollouts of a run are in `trainer.evolution`; `rubricsvc.services.evolutions.hold_rounds` holds both.
Separation is the standard deviation of a criterion's values within a group of completions: what GRPO can learn from.
Agreement is the share of pairs of completions that a criterion, or the rewards of a rubric, order as people or a
trusted judge do; ties count half (docs/evolving.md). Needs the extra ``judging``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

import numpy as np

from rubricsvc.core.evolution import (
    USED,
    BufferedCriterion,
    EvolutionRequest,
    EvolutionRound,
    HeldOutResult,
    ProposalSource,
    RefusedProposal,
    RetirementReason,
)
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.generation import NO_RUBRIC, Generation
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.reward import check_formula, formula_for
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.states import DRAFT, EVOLVED
from rubricsvc.core.untrusted import clean
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError, UnavailableError, cut
from rubricsvc.lint import lint
from rubricsvc.lint.duplicates import near_duplicates
from rubricsvc.services.analysing import read_matrices, scope_of
from rubricsvc.services.evolutions import Round, hold_rounds
from rubricsvc.services.versions import Edit, add_version
from rubricsvc.stats import OnProgress
from rubricsvc.stats.criteria import contribution_matrix, mean_estimates
from rubricsvc.stats.intervals import Floats, Ints
from rubricsvc.stats.paired import differences, ordered, preference_pairs
from rubricsvc.stats.ranking import concordance
from rubricsvc.store import evolutions, jobs, judges, labels, rubrics
from rubricsvc.store.labels import Selection
from rubricsvc.store.session import by_id, get_or_add
from rubricsvc.store.tables import CANCELLED, CompletionRow, EvolutionRow, PromptRow, RubricRow
from workers import checks
from workers.authoring.author import Author, GenerationError, rubric_reader
from workers.authoring.templates import shown, shown_all
from workers.engines import make_engine
from workers.engines.base import Engine
from workers.engines.budget import SpendingLimit, current_budget

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.store.session import Database

TEMPLATE = "evolve"
REPAIRS = 2
MAX_PROPOSALS = 4
TEMPERATURE = 0.7
Proposed = tuple[list[BufferedCriterion], EvolutionRound]
"""New entries of a buffer, and what the round has done so far."""


async def propose_criteria(
    engine: Engine,
    judge: Judge,
    base: Rubric,
    entries: Sequence[BufferedCriterion],
    *,
    step: int,
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
    template = {"template": draft.template.name, "template_digest": draft.template.digest}
    source = ProposalSource(judge=judge.name, model=judge.model, step=step, group=tuple(texts), **template)
    added, done = admit(draft.rubric.criteria[:most], base, entries, prompt=prompt, source=source)
    return added, done.model_copy(update={"raw_reply": draft.raw_reply, "cost": own.spent})


def admit(
    proposed: Sequence[Criterion],
    base: Rubric,
    entries: Sequence[BufferedCriterion],
    *,
    prompt: Prompt | None,
    source: ProposalSource,
) -> Proposed:
    """Return the proposals that are new and have no fault that the linter finds; all criteria of the buffer count.

    They are tried without a veto, and without what a person would have to confirm: references and sources. Their keys
    are evolved-1, evolved-2, …, which no entry has or has had.
    """
    accepted: list[BufferedCriterion] = []
    refused: list[RefusedProposal] = []
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
            refused.append(RefusedProposal(text=one.text, reason=f"duplicate of {same.key}"))
            continue
        sized = one.model_copy(update={"weight": size if one.weight > 0 else -size})  # linted whatever its weight
        whole = base.model_copy(update={"criteria": (*base.criteria, sized)})
        findings = lint(whole, prompt, empty_value=checks.value_of_empty)
        found = next((f for f in findings if f.criterion == key and f.severity != "info"), None)
        if found is not None:
            refused.append(RefusedProposal(text=one.text, reason=f"{found.rule}: {found.message}"))
            continue
        known.append(one)
        accepted.append(BufferedCriterion(criterion=one, state="proposed", source=source))
    return accepted, EvolutionRound(proposed=tuple(one.key for one in accepted), refused=tuple(refused))


Values = Sequence[float | None]
"""A criterion's value for each completion of a group; None where it was not judged."""

MIN_SHARE = 0.5
"""Share of a group that must be judged for a trial to count."""
MIN_ORDERED = 0.9
"""Share of the pairs that a draft must have rewards for."""


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


def selected(
    entries: Sequence[BufferedCriterion],
    step: int,
    *,
    max_active: int,
    min_separation: float,
    referenced: bool,
) -> dict[str, RetirementReason | None]:
    """Return by key which criteria are kept (None), and why the others are retired.

    Of the criteria that are active or were tested at this ``step``, the best ``max_active`` are kept. Frozen criteria,
    retired ones that were not tested, and proposed ones without a trial stay as they are. A separation under
    ``min_separation`` says nothing about a group. Where there is a trusted judge to agree with (``referenced``),
    agreement counts.
    """
    reasons: dict[str, RetirementReason | None] = {}
    eligible: list[tuple[float, int, str]] = []
    for place, entry in enumerate(entries):
        if entry.state == "frozen" or (entry.state != "active" and entry.tested_step != step):
            continue
        # separation, times 2 · agreement − 1 where there is a reference; nothing confirms what has no pairs to compare
        share = entry.agreeing / entry.pairs if entry.pairs else 0.5
        merit = (entry.separation or 0.0) * (2 * share - 1 if referenced else 1.0)
        reasons[entry.key] = "agreement" if merit <= 0 else "limit"
        if not entry.separation or entry.separation < min_separation:
            reasons[entry.key] = "separation"
        elif merit > 0:
            eligible.append((-merit, place, entry.key))
    return reasons | {key: None for *_, key in sorted(eligible)[:max_active]}


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


def reward_vector(rubric: Rubric, values: Floats) -> Floats:
    """Return the rewards [N] of `core.reward.reward`, NaN where there is none."""
    how = formula_for(rubric, rubric.formula)
    judged = ~np.isnan(values)
    weights = np.array([how.weights(rubric)[criterion.key] for criterion in rubric.criteria])
    covered = judged @ weights / (weights.sum() or 1.0)
    rewards = contribution_matrix(rubric, values).sum(1)
    required = np.array([criterion.required for criterion in rubric.criteria])
    pitfall = np.array([criterion.weight < 0 for criterion in rubric.criteria])
    vetoed = (required & judged & ((values >= 0.5) == pitfall)).any(1)
    rewards = np.where(vetoed, np.minimum(rewards, 0.0), rewards)
    if how.clip is not None:
        rewards = np.clip(rewards, *how.clip)
    least = (covered >= rubric.min_coverage - 1e-12) & (covered > 0)
    known = judged.all(1) | (least & (not how.complete) & ~(required & ~judged).any(1))
    return np.asarray(np.where(known, rewards, np.nan), float)


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
        raise InvalidError("no held-out pair has rewards of both rubrics", hint="see the failures of its jobs")
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


MIN_PAIRS = {"search": 20, "held-out": 10}
MIN_PROMPTS = 5
"""Prompts with pairs in each part: fewer give no interval."""
SHOWN = 6
"""Completions that a proposer is shown, of the pairs that rubric and people order differently."""
MAX_CHARS = 6000
"""Characters of such a completion and of its prompt."""
WEIGHT = 0.1
"""Weight of a new criterion, as a share of the sum of the start's."""
_WRITING = frozenset({"written", "trajectory"})


def evolve_on_labels(
    db: Database,
    rubric: int | str,
    request: EvolutionRequest,
    score_job: Callable[[int], None],
    on_progress: OnProgress = lambda done, total, note: None,
) -> int:
    """Evolve a rubric version on labels; with the same settings, labels and verdicts, continue or return that one's id.

    ``score_job`` waits until a job is finished; ``on_progress`` is called with the round, their number and a note.

    Raises:
        NotFoundError: There is no such rubric, job or judge.
        InvalidError: The start has no verdicts, or they depend on other completions; there are too few labels or labels
            of one class; a price is not known; or the budget is used up: with a larger one it continues.
        ConflictError: Another process continues it.
        UnavailableError: A model cannot be asked.
    """
    source, note = LabelSource(db, rubric, request, score_job), ""
    if not source.finished:
        for step in range(request.rounds):
            on_progress(step, request.rounds, note)
            (one,) = hold_rounds(db, step, [source.id], source)
            note = f"agreement {one.done.score:.4f}" if one.done.score is not None else ""
        source.finish()
        on_progress(request.rounds, request.rounds, "")
    return source.id


class LabelSource:
    """Proposes from the pairs that rubric and people order differently, and measures whole drafts on all pairs.

    ``id`` is that of the evolution of the rubric with these settings, labels and verdicts.
    """

    def __init__(
        self, db: Database, rubric: int | str, request: EvolutionRequest, score_job: Callable[[int], None]
    ) -> None:
        self._db, self._request, self._score_job = db, request, score_job
        self._proposer: Judge | None = None
        with db.write() as session:
            row = rubrics.get(session, rubric, allow_drafts=True)
            _, judge = scope_of(session, row.id, request.job_id, request.judge)
            leaves = judge.value.leaf_judges
            if any(leaf.mode == "comparative" for leaf in leaves):
                message = f"judge {judge.name!r} compares completions: its verdicts depend on the group"
                raise InvalidError(message, hint="evolve with a readout or written judge: --judge NAME", path="judge")
            # leaving a criterion out changes what such a judge is asked about the others
            self._together = any(one.mode in _WRITING and one.criteria_per_call != 1 for one in leaves)
            if request.proposer is not None:
                self._proposer = judges.get(session, request.proposer).value
                if not self._proposer.model:
                    message = f"judge {request.proposer!r} ({self._proposer.mode}) has no model of its own"
                    raise InvalidError(message, hint="name one of its members", path="proposer")
                for one in (self._proposer, judge.value):
                    jobs.check_budget(one, request.budget)
            self._start_id, self._start, self._prompt_id = row.id, row.value, row.prompt_id
            self._judge_id = judge.id
            found = self._read_labels(session, row, Selection(judge.id, request.job_id, row.id))
            settings = request.model_copy(update={"judge": judge.name})
            key = digest("evolution", row.id, judge.id, settings.model_copy(update={"budget": None}), found)
            columns = {"rubric_id": row.id, "judge_id": judge.id, "data_digest": found}
            given = settings.model_dump(mode="json")
            evolution, _ = get_or_add(session, EvolutionRow, {"key": key}, settings=given, **columns)
            evolution.settings = given
            self.id, self._name = evolution.id, evolutions.lineage(evolution)
            self.finished = evolution.finished_at is not None
            hint = "continue by the same command with a larger --budget"
            self._exhausted = InvalidError(f"evolution {self.id} has used its budget", hint=hint)
            held = [one for one in evolutions.steps(session, self.id) if one.round_value and one.round_value.decided]
            tried = {f"{self._name}-{one.step}" for one in held}
            known = evolutions.jobs_of(session, self.id)
        for job in known:
            if (job.key or "").rpartition("-")[0] in tried:
                self._values |= self._values_of(job.id)

    def _read_labels(self, session: Session, rubric: RubricRow, selection: Selection) -> str:
        """Read the completions that the judge scored and people gave overall scores; return the SHA-256 of all."""
        matrix = next(read_matrices(session, selection))
        order = np.argsort(matrix.completions)  # not that of the items, which may change
        self._ids, self._verdicts = matrix.completions[order], matrix.values[order]
        self._clusters = matrix.independent[order]
        place = {id_: row for row, id_ in enumerate(self._ids.tolist())}
        overall = [(place[id_], who, score) for id_, who, score in labels.overall_labels(session, selection)]
        scored, given = [row for row, *_ in overall], [score for *_, score in overall]
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: no person gave a score
            self._scores = np.bincount(scored, given, len(place)) / np.bincount(scored, minlength=len(place))
        kept = ~np.isnan(reward_vector(rubric.value, self._verdicts)) & ~np.isnan(self._scores)
        clusters = np.random.default_rng([self._request.seed, 0]).permutation(np.unique(self._clusters[kept]))
        out = np.isin(self._clusters, clusters[: round(self._request.held_out * len(clusters))])
        self._rows = {"search": kept & ~out, "held-out": kept & out}
        pairs = preference_pairs(overall, matrix.prompts[order]).reshape(-1, 2)
        self._pairs = {name: pairs[rows[pairs].all(1)] for name, rows in self._rows.items()}
        for name, found in self._pairs.items():
            among = len(np.unique(self._clusters[found[:, 0]]))
            if len(found) < MIN_PAIRS[name] or among < MIN_PROMPTS:
                needed = f"{MIN_PAIRS[name]} pairs that a person scored differently, of {MIN_PROMPTS} prompts"
                label = "label more completions (`rubricsvc labels import FILE`)"
                hint = f"{label}, and score them: `rubricsvc jobs submit --judge NAME`"
                message = f"the {name} part needs {needed}; found {len(found)} of {among}"
                raise InvalidError(message, hint=hint, path="labels")
        self._values = dict(zip([one.key for one in rubric.value.criteria], self._verdicts.T, strict=True))
        parts = (self._ids, self._verdicts, self._scores, *self._pairs.values())
        return sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in parts)).hexdigest()

    def _rewards(self, rubric: Rubric, values: Mapping[str, Floats] | None = None) -> Floats:
        values = self._values if values is None else values
        return reward_vector(rubric, np.column_stack([values[one.key] for one in rubric.criteria]))

    def propose(self, rounds: Sequence[Round]) -> None:
        """Ask for criteria that tell what people prefer, in pairs that the rubric orders in another way.

        Raises:
            InvalidError: The budget is used up.
            UnavailableError: The proposer cannot be asked.
        """
        if (proposer := self._proposer) is None:
            return
        for one in rounds:
            rewards, pairs, texts = self._rewards(one.used), self._pairs["search"], dict[str, str]()
            worst = np.argsort(ordered(differences(rewards, pairs)), kind="stable")[: 4 * SHOWN]
            drawn = np.random.default_rng([self._request.seed, 2, one.step]).permutation(worst)
            with self._db.read() as session:
                rows = list(dict.fromkeys(pairs[drawn].flatten().tolist()))[:SHOWN]
                found = by_id(session, CompletionRow, self._ids[rows].tolist())
                asked = by_id(session, PromptRow, {completion.prompt_id for completion in found.values()})
            for row in rows:
                completion = found[int(self._ids[row])]
                note = f"People gave it {self._scores[row]:.2f} of 1; its reward is {rewards[row]:.2f}."
                question = cut(asked[completion.prompt_id].value.text, MAX_CHARS)
                answer = cut(f"{note}\n\n{completion.value.text}", MAX_CHARS)
                texts[completion.digest] = clean(f"Question:\n{question}\n\nAnswer:\n{answer}").text
            added, one.done = asyncio.run(self._ask(proposer, one, texts))
            reason = (one.done.failure or "").partition(":")[0]
            if reason == Reason.BUDGET:
                raise self._exhausted
            if reason not in ("", NO_RUBRIC):
                raise UnavailableError(f"the proposer {proposer.name!r}: {one.done.failure}")
            one.entries += added

    async def _ask(self, proposer: Judge, one: Round, texts: Mapping[str, str]) -> Proposed:
        limit = SpendingLimit(self._left(), 0.0)
        async with aclosing(make_engine(proposer)) as engine:
            return await propose_criteria(
                engine, proposer, one.base, one.entries, step=one.step, texts=texts, limit=limit
            )

    def measure(self, rounds: Sequence[Round]) -> None:
        """Have the judge asked about the criteria that it was not asked about yet."""
        labelled = np.flatnonzero(self._rows["search"])
        for one in rounds:
            new = [entry.criterion for entry in one.entries if entry.key not in self._values]
            if new:
                plain = [each.model_copy(update={"weight": 1.0, "group": (), "required": False}) for each in new]
                self._values |= self._score(f"{one.step}", Rubric(criteria=tuple(plain)), "search")
            for place, entry in enumerate(one.entries):
                if not entry.trials:
                    known = self._values[entry.key][labelled].tolist()
                    values = [None if np.isnan(each) else each for each in known]
                    sign = -1.0 if entry.criterion.weight < 0 else 1.0
                    reference = (sign * self._scores[labelled]).tolist()
                    one.entries[place] = measured(entry, one.step, values, reference) or entry

    def decide(self, one: Round) -> tuple[Mapping[str, RetirementReason | None], Rubric]:
        """Keep the best of the version and its changes: a criterion is left out, or one more is taken in."""
        criteria, tried = list(one.used.criteria), list[list[Criterion]]()
        if len(criteria) > 1:
            tried += [criteria[:place] + criteria[place + 1 :] for place in range(len(criteria))]
        for entry in one.entries:
            if entry.key not in one.used.by_key:
                active = entry.model_copy(update={"state": "active"})
                added = self._start.by_key.get(entry.key) or evolved_rubric(self._start, [active], WEIGHT).criteria[-1]
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
        with self._db.read() as session:
            row = evolutions.get(session, self.id)
            best = (evolutions.newest_target(session, self.id) or row.rubric).value
            entries = evolutions.newest_entries(session, row)
        start, after = reward_vector(self._start, self._verdicts), self._rewards(best)
        done = EvolutionRound(decided=True, score=agreement(after, self._pairs["search"]))
        new = best.by_key.keys() - self._start.by_key.keys()
        if new or (self._together and len(best.criteria) < len(self._start.criteria)):
            after = self._rewards(best, self._score("held-out", best, "held-out"))
        result = held_out_result(self._pairs["held-out"], self._clusters, start, after)
        with self._db.write() as session:
            row = evolutions.get(session, self.id)
            recorded = evolutions.begin_step(session, row, self._request.rounds)
            if recorded.round is None:
                target = None
                if best != self._start:  # a branch where somebody has edited the start since
                    given = rubrics.get(session, self._start_id)
                    edit, of = Edit(parent=given.id, force=True, draft=True), {"prompt_id": given.prompt_id}
                    target = add_version(session, best, edit, name=given.name, origin=EVOLVED, **of).row.id
                evolutions.write_round(session, recorded, entries, done, target)
                row.result, row.finished_at = result.model_dump(mode="json"), datetime.now(UTC)

    def _score(self, what: str, rubric: Rubric, part: str) -> dict[str, Floats]:
        """Have a rubric scored on a part by a job, or by the one that was submitted for it; return the values by key.

        Raises:
            InvalidError: The budget is used up, or the job was cancelled.
            UnavailableError: Most verdicts of the job failed.
        """
        key, left = f"{self._name}-{what}-{rubric.digest[:12]}", self._left()
        with self._db.write() as session:
            known = next((job for job in evolutions.jobs_of(session, self.id) if job.key == key), None)
            if known is not None and known.exhausted:
                jobs.retry(session, known.id, budget=None if left is None else known.spent + left)
            if known is None:  # a candidate is a draft that work without a rubric's name never uses
                stored: dict[str, Any] = {"prompt_id": self._prompt_id, "origin": EVOLVED, "added_by": self._name}
                rubric_id = rubrics.add(session, rubric, name=self._name, state=DRAFT, **stored).id
                items = [(id_, rubric_id) for id_ in self._ids[self._rows[part]].tolist()]
                options: dict[str, Any] = {"key": key, "name": f"evolution {self.id}: {what}", "allow_drafts": True}
                known = jobs.submit(session, judge_id=self._judge_id, items=items, budget=left, **options)
            job_id = known.id
        self._score_job(job_id)
        with self._db.read() as session:
            job, progress = jobs.get(session, job_id), jobs.progress(session, job_id)
            if job.exhausted:
                raise self._exhausted
            again, what = "then evolve again by the same command", f"job {job_id} of evolution {self.id}"
            if job.status == CANCELLED:
                raise InvalidError(f"{what} was cancelled", hint=f"rubricsvc jobs retry {job_id}, {again}")
            if progress.failed_verdicts > progress.verdicts:
                message = f"{what}: {progress.failed_verdicts} verdicts failed"
                raise UnavailableError(message, hint=f"rubricsvc jobs retry {job_id} --wait, {again}")
        return self._values_of(job_id)

    def _values_of(self, job_id: int) -> dict[str, Floats]:
        with self._db.read() as session:
            (matrix,) = read_matrices(session, Selection(self._judge_id, job_id))
        return dict(zip([one.key for one in matrix.rubric.criteria], matrix.aligned(self._ids).T, strict=True))

    def _left(self) -> float | None:
        """Return the US dollars that are left; None without a limit."""
        with self._db.read() as session:
            spent = sum(job.spent for job in evolutions.jobs_of(session, self.id))
            spent += evolutions.proposal_costs(session, evolution_id=self.id)
        budget = self._request.budget
        if budget is not None and budget <= spent:
            raise self._exhausted
        return None if budget is None else budget - spent
