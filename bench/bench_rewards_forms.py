"""Which reward teaches: one policy trained by several forms of reward, at equal steps, on a task of a single turn.

    python -m bench.bench_rewards_forms [--forms NAME …] [--seeds 3] [--steps 16] [--out FOLDER]

A prompt asks two things of a document (`bench.hacking.facts`, invented); the rubric has a judged and a checked
criterion for each, and one of the length. All runs begin with one policy, which has learned to answer in half. Gold is
the share of the two things that an answer to a held-out prompt has, by a check. The table has the means over prompts,
and their differences to the start, paired by prompt, with 95 % intervals of a bootstrap over prompts of all seeds. The
same command continues, and keeps what is finished. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from bench.hacking.facts import Fact, load_facts
from rubricsvc.cli.models import fetch_embedded
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Level, Ordinal, Rubric
from rubricsvc.core.verdict import Evidence
from rubricsvc.stats.intervals import ENDS, cluster_draws
from trainer.config import TrainConfig
from trainer.data.tasks import Task
from trainer.loop import train, warm_up, warmed_up_model
from trainer.policies.policy import Policy
from trainer.rewards import CallableRewards, JudgeRewards, RewardSource, ScoredRollout
from workers.engines.local.weights import SHIPPED_ADAPTER, judge_with_adapter

Scored = list[ScoredRollout]
NOISE = 0.1
"""Standard deviation of a reward's error that the form ``noise`` assumes."""


def judged(fact: Fact) -> list[Criterion]:
    """Return a judged criterion for each thing that is asked."""
    return [Criterion(key=f"says-{n}", text=f"The answer mentions “{text}”.") for n, text in enumerate(fact.says[:2])]


def checked(fact: Fact) -> list[Criterion]:
    """Return a checked criterion for each thing that is asked, and one of the length."""
    found = [
        {"key": f"has-{n}", "text": f"Has {text}.", "check": {"name": "contains", "args": {"terms": [text]}}}
        for n, text in enumerate(fact.says[:2])
    ]
    length = {"key": "short", "text": "Is short.", "check": {"name": "words", "args": {"max": 30}}}
    return [Criterion.model_validate(one) for one in (*found, length)]


def overall(_fact: Fact) -> list[Criterion]:
    """Return one criterion on a scale of five levels, of the whole answer."""
    texts = ("useless", "poor", "fair", "good", "complete and right")
    levels = tuple(Level(label=text, value=n / 4, text=f"The answer is {text}.") for n, text in enumerate(texts))
    return [Criterion(key="overall", text="How well does it answer the question?", scale=Ordinal(levels=levels))]


def all_or_nothing(scored: Scored) -> Scored:
    """Reward 1 where every criterion is met by half or more, else 0."""
    met = [all((one.value or 0.0) >= 0.5 for one in each.verdicts) for each in scored]
    return [replace(each, reward=replace(each.reward, value=float(ok))) for each, ok in zip(scored, met, strict=True)]


class Form(RewardSource):
    """The rewards of a judge, changed; checks that are met quote the term that they found."""

    def __init__(self, source: RewardSource, change: Callable[[Scored], Scored]) -> None:
        self._source, self._change, self.judge = source, change, source.judge

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> Scored:
        """Score a step."""
        found = []
        for task, each in zip(tasks, self._source.score(tasks, completions), strict=True):
            verdicts = []
            for one in each.verdicts:
                check = task.rubric.by_key[one.criterion].check
                terms = check.args.get("terms", ()) if check is not None and one.value else ()
                quotes = tuple(Evidence(quote=str(term)) for term in terms)  # type: ignore[union-attr]
                verdicts.append(one.model_copy(update={"evidence": quotes}))
            found.append(replace(each, verdicts=tuple(verdicts)))
        return self._change(found)


def same(scored: Scored) -> Scored:
    """Return what is scored."""
    return scored


def both(fact: Fact) -> list[Criterion]:
    """Return all criteria of the rubric."""
    return [*judged(fact), *checked(fact)]


FORMS: dict[str, tuple[Callable[[Fact], list[Criterion]], Callable[[Scored], Scored], dict[str, Any]]] = {
    "rubric": (both, same, {}),
    "all or nothing": (both, all_or_nothing, {}),
    "overall score": (overall, same, {}),
    "judged criteria": (judged, same, {}),
    "checks": (checked, same, {}),
    "noise": (both, same, {"optim": {"pairwise_accuracy": NOISE}}),
    "credit by quotes": (both, same, {"optim": {"credit": 0.5}}),
    "shuffled": (both, same, {"control": {"reward": "shuffled"}}),
    "random": (both, same, {"control": {"reward": "random"}}),
}
OPTIM = {"lr": 3e-5, "warmup_steps": 2, "kl_every": 0}


def prompt_of(fact: Fact) -> Prompt:
    """Return the question with its document."""
    prompt = fact.record.prompt
    assert prompt is not None
    return prompt


def tasks_of(facts: Sequence[Fact], criteria: Callable[[Fact], list[Criterion]]) -> list[Task]:
    """Return the tasks of facts; the policy may learn their partial answers first."""
    rubrics = [Rubric(criteria=tuple(criteria(fact))) for fact in facts]
    partial = [(Completion(text=fact.partial),) for fact in facts]
    of_facts = zip(facts, rubrics, partial, strict=True)
    return [Task(prompt_of(fact), rubric, demonstrations=one) for fact, rubric, one in of_facts]


def start_policy(out: Path, facts: Sequence[Fact]) -> Path:
    """Return the folder of the policy that all runs begin with."""
    optim = {
        "steps": 12,
        "demonstrations": {"steps": 12, "lr": 5e-5},
        "sampling": {"prompts_per_step": 8, "group_size": 2},
    }
    config = TrainConfig.model_validate(optim | {"out": out / "start"})
    if not warmed_up_model(config).is_dir():
        warm_up(config, Policy.load, tasks_of(facts, checked), CallableRewards(lambda _prompt, _text: 1.0))
    return warmed_up_model(config)


def gold(policy: Policy, facts: Sequence[Fact], config: TrainConfig) -> list[float]:
    """Return the share of the things that are asked which answers of a policy have: a mean for each prompt."""
    texts = policy.sample(list(map(prompt_of, facts)), 8, config.sampling, seed=1).texts
    shares = [
        fmean(text.casefold() in one.casefold() for text in facts[n // 8].says[:2]) for n, one in enumerate(texts)
    ]
    return [fmean(shares[n : n + 8]) for n in range(0, len(shares), 8)]


def main() -> None:
    """Train what is not finished, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench-rewards-forms"))
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=16)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    facts = load_facts()
    seen, held_out = ([one for one in facts if one.held_out is held] for held in (False, True))
    start = start_policy(given.out, seen)
    fetch_embedded()
    results: dict[str, list[dict[str, Any]]] = {form: [] for form in given.forms}
    with JudgeRewards(judge_with_adapter("embedded", SHIPPED_ADAPTER)) as source:
        for seed in range(given.seeds):
            for form in given.forms:
                path = given.out / f"{form.replace(' ', '-')}-{seed}-{given.steps}.json"
                criteria, change, changes = FORMS[form]
                fields = {"steps": given.steps, "seed": seed, "sampling": {"prompts_per_step": 4, "max_new_tokens": 48}}
                config = TrainConfig.model_validate(fields | changes | {"optim": OPTIM | changes.get("optim", {})})
                if not path.is_file():
                    began, policy = time.perf_counter(), Policy.load(str(start))
                    before = gold(policy, held_out, config)
                    history = train(policy, tasks_of(seen, criteria), Form(source, change), config)
                    row = {"before": before, "after": gold(policy, held_out, config)}
                    row["rewards"] = [step["reward"] for step in history.steps]
                    path.write_text(json.dumps(row | {"seconds": time.perf_counter() - began}), encoding="utf-8")
                results[form].append(json.loads(path.read_text(encoding="utf-8")))
                print(f"{form}, seed {seed}: {fmean(results[form][-1]['after']):.3f}", flush=True)
    report(results)


def report(results: dict[str, list[dict[str, Any]]]) -> None:
    """Print the table, and the same as JSON."""
    print("\n| reward | gold before | after | difference |\n|---|--:|--:|--:|")
    lines: dict[str, list[float]] = {}
    for form, rows in results.items():
        before, after = (np.array([row[name] for row in rows]) for name in ("before", "after"))
        gains = (after - before).mean(0)
        low, high = np.quantile([gains[d].mean() for d in cluster_draws(np.arange(len(gains)), 2000, seed=0)], ENDS)
        lines[form] = [before.mean(), after.mean(), gains.mean(), low, high]
        print(f"| {form} | {before.mean():.3f} | {after.mean():.3f} | {gains.mean():+.3f} [{low:+.3f}, {high:+.3f}] |")
    print(json.dumps({"bench": "rewards-forms"} | {name: [round(x, 4) for x in one] for name, one in lines.items()}))


if __name__ == "__main__":
    main()
