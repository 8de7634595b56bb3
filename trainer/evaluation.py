"""Evaluations on held-out prompts: their schedule, completions, scores and estimates, and the baselines."""

import json
import math
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, product
from pathlib import Path
from statistics import fmean
from threading import Event
from typing import Any

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.schemas import runs as wire
from rubricsvc.stats.estimates import over_prompts
from trainer import checkpoint
from trainer.config import EvalConfig, SamplingConfig, TrainConfig
from trainer.data.demonstrations import as_sampled
from trainer.data.tasks import Task, stream_seed
from trainer.environments.episodes import Acting, log_leaks
from trainer.environments.scripted import NAME, demonstrate
from trainer.environments.tools import Research
from trainer.loop import train
from trainer.metrics import PREFIX, monitor_metrics, observed_of
from trainer.monitors.measures import MONITORS, groups_of
from trainer.policies.policy import Policy
from trainer.policies.rollouts import Rollouts
from trainer.policy_scores import policy_scores, prompt_means
from trainer.recording import History, Metrics, RunRecorder, line_of, read, recorded_reward, replace_text
from trainer.rewards import RewardSource, ScoredRollout, StepScorer, StopRequested, judge_of
from workers import checks

TOOL_USE = "tool_use"
"""Share of completions that call a tool."""

_CALLS = Rubric(criteria=(Criterion(key="valid_calls", text="valid_calls", check=Check(name="valid_calls")),))
_CITATIONS = Rubric(
    criteria=tuple(
        Criterion(key=f"citation_{one}", text=one, check=Check(name="cites_pages", args={"measure": one}))
        for one in ("recall", "precision")
    )
)


def behaviour(tasks: Sequence[Task], completions: Iterable[tuple[int, Completion]]) -> dict[str, Estimate]:
    """Return the use of tools, the share of valid calls, and recall and precision of the pages that are cited.

    A completion without a call has no valid calls: its value is 0. Empty without a prompt that names its pages and
    without a completion that calls a tool. Each completion has the place of its task.
    """
    values: list[tuple[int, str, float | None]] = []
    for place, one in completions:
        prompt = tasks[place].prompt
        values.append((place, TOOL_USE, float(any(message.tool_calls for message in one.messages))))
        for rubric in (_CALLS, *([_CITATIONS] if "pages" in (prompt.item or {}) else [])):
            values += [(place, found.criterion, found.value) for found in checks.run(rubric, prompt, one)]
    found = means_by_key(len(tasks), values)
    return found if len(found) > 2 or (found and found[TOOL_USE].value) else {}


def means_by_key(prompts: int, values: Iterable[tuple[int, str, float | None]]) -> dict[str, Estimate]:
    """Return the estimate of each key over the prompts that have it, from values at the places of these."""
    found: dict[str, list[list[float | None]]] = defaultdict(lambda: [[] for _ in range(prompts)])
    for place, key, value in values:
        found[key][place].append(value)
    return {key: over_prompts(prompt_means(samples)) for key, samples in found.items()}


GREEDY_TOP_P = 1e-9
"""A nucleus of one token: the most probable one."""

_ADDRESSES: Any = {"judges": {"__all__": {"endpoint", "service", "timeout_s"}}}
_NOT_MEASURED = {"path", "format", "store", "share", "every", "baselines", "other", "stop_on_divergence"}


@dataclass
class EvalCompletion:
    """A completion of a held-out prompt. ``prompt`` is its place; ``scored`` are the results by score."""

    prompt: int
    completion: Completion
    tokens: int
    greedy: bool
    scored: dict[str, ScoredRollout] = field(default_factory=dict)


def setup_of(settings: EvalConfig, config: TrainConfig, tasks: Sequence[Task]) -> str:
    """Return the digest of what evaluations must share to be compared: ``settings``, prompts, sampling, environment."""
    plain: dict[str, Any] = {"mode": "json", "exclude_none": True}  # later settings must not change the digest
    measured = settings.model_dump(**plain, exclude=_NOT_MEASURED | {"judges"})
    judges = settings.model_dump(**plain, include={"judges"}, exclude=_ADDRESSES)
    sampling = config.sampling.model_dump(mode="json", include={"max_new_tokens", "temperature", "top_p"})
    if config.environment is not None:
        measured |= {"environment": config.environment.model_dump(**plain)}
    prompts = [[task.prompt.digest, task.rubric.digest] for task in tasks]
    return digest("evaluation", measured, judges, sampling, config.seed, prompts)


class Evaluator:
    """Samples completions of held-out prompts and has them scored.

    All evaluations of a run use the same random numbers, so that those of two policies are paired. ``scorers`` have
    the names of ``EvalConfig.score_names``. When ``stop`` is set, an evaluation ends without a result.
    """

    def __init__(
        self,
        config: TrainConfig,
        tasks: Sequence[Task],
        scorers: Mapping[str, RewardSource],
        *,
        on_progress: Callable[[str], None] = lambda _text: None,
        stop: Event | None = None,
    ) -> None:
        if config.eval is None:
            raise InvalidError("the configuration has no [eval]", hint="add the table", path="eval")
        if not tasks:
            raise InvalidError("there are no held-out prompts", hint="name prompts with rubrics", path="eval")
        if set(scorers) != set(config.eval.score_names):
            missing = ", ".join(sorted(set(config.eval.score_names) ^ set(scorers)))
            raise InvalidError(f"scorers and [eval] do not agree: {missing}", hint="name each score once", path="eval")
        check_gold(config.eval.gold_name, tasks, scorers)
        self.settings: EvalConfig = config.eval
        self.tasks = tasks
        self.on_progress = on_progress
        self._config, self._stop = config, stop or Event()
        evaluated = {name: source.of_evaluation(name) for name, source in scorers.items()}
        self._scorers = {name: StepScorer(source, config, self._stop) for name, source in evaluated.items()}
        self._joined = {name for name, source in scorers.items() if source.items_at == scorers[wire.REWARD].items_at}
        self.setup = setup_of(config.eval, config, tasks)

    def evaluate(
        self, policy: Policy, step: int, *, name: str = "", best_of: int = 1, start: Metrics | None = None
    ) -> tuple[Metrics, list[EvalCompletion]]:
        """Return the line of an evaluation of a policy after ``step`` training steps, and its completions.

        Of ``best_of`` samples each counted one is the best by the training reward; ``start`` is a line to compare with.
        """
        begun = time.perf_counter()
        completions = list(self._sampled(policy, step, name or policy.name, self.settings.samples * best_of))
        generated = len(completions)
        if best_of > 1:
            self._score(wire.REWARD, completions)
            # the best of so many neighbours by the training reward; of equal ones the first, of unscored ones too
            rewards = [one.scored[wire.REWARD].reward.value for one in completions]
            known = [-math.inf if value is None else value for value in rewards]
            firsts = range(0, len(completions), best_of)
            completions = [completions[max(range(at, at + best_of), key=known.__getitem__)] for at in firsts]
        elif self.settings.greedy:
            completions += self._sampled(policy, step, name or policy.name, 1, greedy=True)
        completions.sort(key=lambda one: (one.prompt, one.greedy))
        for score in self._scorers:
            if score != wire.REWARD or best_of == 1:
                self._score(score, completions)
        scores, values = self._estimates(completions, start["values"] if start is not None else {})
        sampled = [one for one in completions if not one.greedy]
        tasks, texts = [self.tasks[one.prompt] for one in sampled], [one.completion for one in sampled]
        observed = observed_of(tasks, texts, [one.scored[wire.REWARD] for one in sampled])
        of_prompts = [monitor_metrics(group, MONITORS) for group in groups_of(observed)]  # of each prompt alone
        monitored = dict.fromkeys(name for line in of_prompts for name in line if name.startswith(PREFIX))
        groups = groupby(sampled, key=lambda one: one.prompt)
        lengths: list[float | None] = [fmean(one.tokens for one in group) for _, group in groups]
        behaved = behaviour(self.tasks, [(one.prompt, one.completion) for one in completions])
        judged = [
            (one.prompt, verdict.criterion, verdict.value)
            for one in completions
            for verdict in one.scored[wire.REWARD].verdicts
            if verdict.value is not None
        ]
        by_criterion = means_by_key(len(self.tasks), sorted(judged, key=lambda one: one[1]))
        tools: list[Any] = [one.completion.sampling.get("tools") for one in completions]
        hits = [one["leak_hits"] for one in tools if isinstance(one, dict) and "leak_hits" in one]
        line = {
            "step": step,
            "policy": name or policy.name,
            "best_of": best_of,
            "prompts": len(self.tasks),
            "prompt_digests": [task.prompt.digest for task in self.tasks],
            "rubric_digests": [task.rubric.digest for task in self.tasks],
            "k": self.settings.samples,
            "gold": self.settings.gold_name,
            "scores": scores,
            "values": values,
            "generated": generated,
            "completions/mean_length": sum(one.tokens for one in completions) / len(completions),
            "completions/clipped_ratio": fmean(bool(one.completion.sampling["truncated"]) for one in completions),
            "behaviour": {name: _plain(value) for name, value in behaved.items()},
            "criteria": {name: _plain(value) for name, value in by_criterion.items()},
            "monitors": {name: [line.get(name) for line in of_prompts] for name in monitored}
            | {"completions/mean_length": lengths},
            **({"leak_hits": sum(hits)} if hits else {}),
            "eval_time": time.perf_counter() - begun,
            "setup": self.setup,
        }
        return line, completions

    def _sampled(
        self, policy: Policy, step: int, name: str, samples: int, *, greedy: bool = False
    ) -> Iterator[EvalCompletion]:
        """Sample in batches of at most a training step's completions; those of a prompt are adjacent."""
        sampling = self._config.sampling
        most = sampling.prompts_per_step * sampling.group_size
        size = max(1, most // samples)
        how = sampling.model_copy(update={"temperature": 1.0, "top_p": GREEDY_TOP_P}) if greedy else sampling
        shown = sampling.model_copy(update={"temperature": 0.0, "top_p": 1.0}) if greedy else sampling
        for first, part in product(range(0, len(self.tasks), size), range(0, samples, most)):
            self._progress(f"evaluating {name} after {step} steps: sampling, prompt {first + 1} of {len(self.tasks)}")
            prompts = [task.prompt for task in self.tasks[first : first + size]]
            seed = stream_seed(self._config.seed, f"eval {'greedy' if greedy else part}", first)
            rollouts = policy.sample(prompts, min(most, samples - part), how, seed)
            places, lengths = rollouts.prompt_of_B.tolist(), rollouts.lengths.tolist()
            for at, one in enumerate(rollouts.completions(name, step, shown)):
                yield EvalCompletion(first + places[at], one, int(lengths[at]), greedy)

    def _progress(self, text: str) -> None:
        """Report what is done now, unless a stop was requested: what is left is done after a resume."""
        if self._stop.is_set():
            raise StopRequested
        self.on_progress(text)

    def _score(self, score: str, completions: Sequence[EvalCompletion]) -> None:
        self._progress(f"evaluating: scoring {len(completions)} completions by {score}")
        tasks = [self.tasks[one.prompt] for one in completions]
        texts = [one.completion for one in completions]
        scored, _ = self._scorers[score].score(tasks, texts)
        for one, result in zip(completions, scored, strict=True):
            one.scored[score] = result if score in self._joined else replace(result, item_id=None)

    def _estimates(self, completions: Sequence[EvalCompletion], start: Metrics) -> tuple[Metrics, Metrics]:
        """Return the estimates by score, and the values by prompt that they are computed from.

        ``start`` has such values of the policy to compare with.
        """
        scores, values = {}, {}
        for score in self._scorers:
            samples: list[list[float | None]] = [[] for _ in self.tasks]
            greedy: list[float | None] = []
            for one in completions:
                (greedy if one.greedy else samples[one.prompt]).append(one.scored[score].reward.value)
            found = policy_scores(samples, greedy, start.get(score))
            scores[score] = {name: _plain(value) for name, value in found.items()}
            values[score] = {"mean": prompt_means(samples), "greedy": greedy or None}
        return scores, values


def check_gold(gold: str, tasks: Sequence[Task], scorers: Mapping[str, RewardSource]) -> None:
    """Check that the judge of the gold score is not the judge of the training reward under another name."""
    by_gold, trained = (judge_of(tasks, scorers[name]) for name in (gold, wire.REWARD))
    if gold == wire.REWARD or by_gold is None or trained is None or by_gold.digest is None:
        return
    if by_gold.digest == trained.digest:
        raise InvalidError(
            f"the gold score is by {by_gold.name}, which is the judge of the training reward, {trained.name} "
            f"(digest {by_gold.digest[:8]})",
            hint='name another judge in eval.judges, or checks; `gold = "reward"` needs no judge of its own',
            path="eval.gold",
        )


def _plain(value: Estimate | float) -> Any:
    """Return an estimate as plain data, without the reason where there is none."""
    if not isinstance(value, Estimate):
        return value
    plain = asdict(value)
    return plain if value.null_reason else {name: plain[name] for name in ("value", "low", "high")}


def record_of(
    evaluator: Evaluator, line: Metrics, completions: Sequence[EvalCompletion], name: str = wire.STEP
) -> wire.RunEvaluation:
    """Return an evaluation as it is recorded, with its completions."""
    groups: dict[int, list[wire.EvaluationCompletion]] = defaultdict(list)
    for one in completions:
        rewards = [
            wire.EvaluationReward(score=score, **recorded_reward(result)) for score, result in one.scored.items()
        ]
        truncated = bool(one.completion.sampling["truncated"])
        fields: dict[str, Any] = {"greedy": one.greedy, "tokens": one.tokens, "truncated": truncated}
        groups[one.prompt].append(
            wire.EvaluationCompletion(completion=one.completion, rewards=tuple(rewards), **fields)
        )
    tasks, named = evaluator.tasks, {} if name == wire.STEP else {"baseline": name}
    recorded = tuple(wire.EvaluationGroup(**tasks[at].recorded, completions=tuple(some)) for at, some in groups.items())
    return wire.RunEvaluation(name=name, step=line["step"], line=line | named, groups=recorded)


LINES = "eval.jsonl"


class Evaluation:
    """Evaluates the policies of a run: the starting one, those after every ``eval.every`` steps, and the last.

    They are recorded under ``name``: `STEP`, or that of a baseline, of which the ``recorder`` gets the last only.
    Without the folder ``out`` they are in memory.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        out: Path | None,
        steps: int,
        recorder: RunRecorder | None = None,
        *,
        name: str = wire.STEP,
    ) -> None:
        self.evaluator = evaluator
        self._out, self._steps, self._recorder, self._name = out, steps, recorder, name
        self._history = History(None)

    @property
    def lines(self) -> list[Metrics]:
        """The evaluations so far, by step."""
        return sorted(self._history.steps, key=lambda line: int(line["step"]))

    def begin(self, done: int) -> None:
        """Continue after ``done`` steps: the lines of later ones, which are repeated, are dropped.

        Evaluations that the record lacks, of a run that was not recorded, or elsewhere, are recorded.

        Raises:
            ConflictError: There are evaluations with other held-out prompts or settings.
        """
        self._history = History(self._out, done, LINES)
        check_setup(self._out, self.lines, self.evaluator.setup)
        if self._recorder is not None and self._name == wire.STEP:
            self._recorder.complete(self.lines)

    def run(self, policy: Policy, step: int, name: str) -> Metrics | None:
        """Evaluate ``policy`` after ``step`` steps if that is due and was not done; return the line."""
        due = step == self._steps or step % self.evaluator.settings.every == 0
        if not due or any(line["step"] == step for line in self.lines):
            return None
        first = next((line for line in self.lines if line["step"] == 0), None)
        line, completions = self.evaluator.evaluate(policy, step, name=name, start=first)
        line["best"] = self._save_if_best(policy, step, line)
        tasks = [self.evaluator.tasks[one.prompt] for one in completions]
        log_leaks(self._out, tasks, [one.completion for one in completions])
        if self._recorder is not None and (self._name == wire.STEP or step == self._steps):
            # before the line: a killed run repeats what has no line
            self._recorder.send(record_of(self.evaluator, line, completions, self._name))
        return self._history.add(line)

    def _save_if_best(self, policy: Policy, step: int, line: Metrics) -> bool:
        """Save the policy if its gold score is above those before; return whether it is.

        The one saved before is deleted once this one is complete and on disk.
        """
        name = self.evaluator.settings.gold_name
        saved = saved_best(self._out) if self._out is not None else None
        repeated = saved is not None and saved["step"] == step  # of a run that ended before the line was written
        known = [one["scores"][name]["mean"]["value"] for one in self.lines]
        known += [saved["value"]] if saved is not None and not repeated else []
        estimate = line["scores"][name]["mean"]
        gold = estimate["value"]
        if gold is None or any(value is not None and value >= gold for value in known):
            return False
        if step and self._out is not None and not (repeated and saved is not None and saved["value"] == gold):
            final = self._out / "best" / f"step-{step:06d}"
            with checkpoint.complete_folder(final) as part:
                policy.save(part / "model")
                state = {"step": step, "gold": name, **estimate}
                (part / "state.json").write_text(json.dumps(state, indent=2), encoding="utf-8")
            for other in set(final.parent.glob("step-*")) - {final}:
                shutil.rmtree(other, ignore_errors=True)
        return True


def check_setup(out: Path | None, lines: Iterable[Metrics], setup: str) -> None:
    """Check that evaluations were of the held-out prompts and the settings with the digest ``setup``.

    Raises:
        ConflictError: One was of others, so that it cannot be compared with those to come.
    """
    if any(line["setup"] != setup for line in lines):
        raise ConflictError(
            f"{out}/{LINES} has evaluations with other held-out prompts or other settings of [eval]",
            hint="restore the settings, or choose another `out`; or delete the file to evaluate from here on",
            path="eval",
        )


def saved_best(out: Path) -> dict[str, Any] | None:
    """Return the record of the best checkpoint, with its ``folder``; None without one."""
    found = [
        {**json.loads((folder / "state.json").read_bytes()), "folder": str(folder)}
        for folder in sorted((out / "best").glob("step-*"))
    ]
    return max(found, key=lambda state: float(state["value"]), default=None)


class Script(Policy):
    """A script of `research` in the place of a policy, whose tokenizer it uses."""

    def __init__(self, policy: Policy, acting: Acting) -> None:
        """Raise an InvalidError unless the policy acts in `research`."""
        super().__init__(policy.model, policy.tokenizer, NAME, acting)
        if not isinstance(acting.own_environment, Research):
            raise InvalidError("the script is one of `research`", hint="remove it", path="eval.baselines")
        self._environment, self._limits = acting.own_environment, acting.limits

    def sample(self, prompts: Sequence[Prompt], group_size: int, sampling: SamplingConfig, seed: int) -> Rollouts:
        """Return its completion of each prompt, ``group_size`` times; it has no chance."""
        completions: list[Completion] = []
        for prompt in prompts:
            found = demonstrate(self._environment, prompt, self._limits, informed=False)
            completion = found or Completion(text="", policy=NAME)
            whole = {"sampling": {**completion.sampling, "truncated": False}}
            completions += [completion.model_copy(update=whole)] * group_size
        return as_sampled(prompts, completions, self)


def with_other_tools(policy: Policy, baseline: str) -> Policy:
    """Return a trained policy without its tools, with tools that find nothing, or a script in its place.

    Raises:
        InvalidError: The policy acts in no environment, or the script's is another one than `research`.
    """
    if (acting := policy.acting) is None:
        raise InvalidError("the run has no environment", hint="remove the baseline", path="eval.baselines")
    if baseline == SCRIPT:
        return Script(policy, acting)
    changed = copy(policy)
    empty = replace(acting, limits=replace(acting.limits, empty_results=True))
    changed.acting = None if baseline == WITHOUT_TOOLS else empty
    return changed


FOLDER = "baselines"
FILE = "evaluations.jsonl"
_TRAINED = "best-of-n-supervised"
START, BEST_OF_N, SUPERVISED = wire.EQUAL_COMPUTE
WITHOUT_TOOLS, _, SCRIPT = wire.OF_TOOLS
OTHER_START, OTHER_TRAINED = wire.OTHER


def read_baselines(out: Path) -> list[Metrics]:
    """Return the evaluations of a run's baselines; empty before they are run."""
    return read(out / FOLDER, FILE)


def missing_baselines(config: TrainConfig, lines: Sequence[Metrics]) -> list[str]:
    """Return the baselines of a run that are not among its evaluations: of those named, or all that it can have."""
    if config.eval is None:
        return []
    chosen = set[str]()
    if not isinstance(config.eval.baselines, bool):
        chosen |= {*config.eval.baselines} - {wire.BEFORE}  # that comes before the demonstrations or not at all
    else:
        chosen |= {*wire.EQUAL_COMPUTE, *(wire.OTHER if config.eval.other else ())}
        chosen |= {*wire.OF_TOOLS} if config.environment is not None else set()
        chosen -= set() if config.environment is not None and config.environment.name == "research" else {SCRIPT}
    of_trained = {SUPERVISED, *wire.OF_TOOLS, OTHER_TRAINED}
    done = {line["baseline"] for line in lines if line["baseline"] not in of_trained or line["step"] == config.steps}
    return [name for name in wire.BASELINES if name in chosen - done]


class Baselines:
    """The evaluations of a run's baselines, in its folder and on record."""

    def __init__(self, out: Path, evaluator: Evaluator, recorder: RunRecorder | None) -> None:
        self.out, self.folder, self.recorder = out, out / FOLDER, recorder
        setup = evaluator.setup
        known = read_baselines(out)
        self.lines = {one["baseline"]: one for one in known if one["setup"] == setup or one["baseline"] in wire.OTHER}

    def add(self, name: str, line: Metrics) -> None:
        """Keep the line of a baseline in the folder."""
        self.lines[name] = line
        self.folder.mkdir(parents=True, exist_ok=True)
        named = ({**self.lines[one], "baseline": one} for one in wire.BASELINES if one in self.lines)
        replace_text(self.folder / FILE, "".join(map(line_of, named)))

    def evaluate(
        self,
        name: str,
        policy: Policy,
        evaluator: Evaluator,
        *,
        step: int = 0,
        best_of: int = 1,
        start: str | None = None,
    ) -> None:
        """Evaluate a policy, and compare it with an earlier baseline ``start``."""
        before = self.lines[start] if start else None
        line, completions = evaluator.evaluate(policy, step, best_of=best_of, start=before)
        if self.recorder is not None:
            self.recorder.send(record_of(evaluator, line, completions, name))
        self.add(name, line)


def run_baselines(
    config: TrainConfig,
    policies: tuple[Callable[[], Policy], Callable[[], Policy]],
    tasks: Sequence[Task],
    rewards: RewardSource,
    evaluator: Evaluator,
    *,
    other: tuple[Evaluator, Acting | None] | None = None,
    on_step: Callable[[Metrics], None] | None = None,
    stop: Event | None = None,
    recorder: RunRecorder | None = None,
) -> list[Metrics] | None:
    """Run the baselines that are missing, and return their evaluations; None if it was stopped.

    ``policies`` load the policy that the run starts from, and the one that it has trained; ``other`` is the evaluator
    of other prompts, with the environment that the policy acts in there. ``on_step`` is called with the steps of the
    supervised baseline, which goes on when it is run again after a stop. The ``recorder`` gets earlier baselines as
    well that are not on record.
    """
    if config.out is None:
        raise InvalidError("baselines need the folder of the run", hint="set `out`", path="out")
    found, (load_start, load_trained) = Baselines(config.out, evaluator, recorder), policies
    if recorder is not None:
        recorder.complete([{**line, "baseline": name} for name, line in found.lines.items()])
    missing = missing_baselines(config, list(found.lines.values()))
    try:
        if START not in found.lines:  # the others are compared with it
            known = [line for line in read(found.out, LINES) if line["step"] == 0 and line["setup"] == evaluator.setup]
            if not known:
                found.evaluate(START, load_start(), evaluator)
            else:
                if recorder is not None:
                    line = {**known[0], "baseline": START}
                    recorder.send(wire.RunEvaluation(name=START, step=0, line=line))
                found.add(START, known[0])
        if BEST_OF_N in missing:
            best_of = config.sampling.group_size
            found.evaluate(BEST_OF_N, load_start(), evaluator, best_of=best_of, start=START)
        for name in [name for name in missing if name in wire.OF_TOOLS]:
            policy = with_other_tools(load_trained(), name)
            found.evaluate(name, policy, evaluator, step=config.steps, start=START)
        if other is not None and OTHER_TRAINED in missing:
            for name, load, step in ((OTHER_START, load_start, 0), (OTHER_TRAINED, load_trained, config.steps)):
                policy = load()
                elsewhere, policy.acting = other
                found.evaluate(name, policy, elsewhere, step=step, start=OTHER_START if step else None)
    except StopRequested:
        return None
    if SUPERVISED in missing:
        trained = found.folder / _TRAINED
        changes = {"algorithm": SUPERVISED, "out": trained, "evolve": None, "demonstrations": None}
        supervised = config.model_copy(update=changes)
        if not read(trained, LINES):  # its starting policy is evaluated already
            trained.mkdir(parents=True, exist_ok=True)
            line = {name: value for name, value in found.lines[START].items() if name != "baseline"}
            replace_text(trained / LINES, line_of(line))
        evaluation = Evaluation(evaluator, trained, config.steps, recorder, name=SUPERVISED)
        how: dict[str, Any] = {"on_step": on_step, "stop": stop, "resume": checkpoint.has_run(trained)}
        history = train(load_start(), tasks, rewards, supervised, evaluation=evaluation, **how)
        if history.stopped:
            return None
        found.add(SUPERVISED, history.evaluations[-1])
    return read_baselines(config.out)
