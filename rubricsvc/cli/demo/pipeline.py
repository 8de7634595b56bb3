"""The stages of the demo: author, sample, score, train, sample and score again.

Each stage stores its result in the database or in the run's folder, and does only what is missing there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from functools import cache
from threading import Event
from typing import Any

from sqlalchemy.orm import Session

from rubricsvc import telemetry
from rubricsvc.cli.demo.folder import DemoFolder
from rubricsvc.cli.demo.questions import Question
from rubricsvc.cli.output import ProgressBar, echo, fields_of, progress_bar
from rubricsvc.cli.run_folders import RUN, run_name
from rubricsvc.core.authoring import AuthoringTask
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.generation import Generation
from rubricsvc.core.judge import Judge, Sampling
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import DRAFT, GENERATED
from rubricsvc.errors import InvalidError
from rubricsvc.services.recording import DatabaseRuns
from rubricsvc.services.reward_jobs import RewardJobs
from rubricsvc.services.waiting import follow
from rubricsvc.settings import get_settings
from rubricsvc.store import completions, jobs, judges, prompts, rubrics
from rubricsvc.store.session import Database
from trainer import checkpoint, history
from trainer.config import OptimConfig, SamplingConfig, TrainConfig
from trainer.data.tasks import Task
from trainer.history import Metrics
from trainer.loop import train
from trainer.policies.policy import Policy
from trainer.recording.recorder import RunRecorder
from trainer.rewards.queue import QueueRewards
from workers.authoring.author import Author
from workers.authoring.methods import write_rubric
from workers.engines import make_engine
from workers.engines.local.adapter_judges import shipped_judge, shipped_passport
from workers.queue.in_process import embedded_worker

POLICY = "SmolLM2-135M-Instruct"
AUTHOR = Judge(name="embedded", engine="transformers_local", model="embedded")
"""The embedded model as it is, which writes rubrics."""

STAGES = {
    1: "generating rubrics",
    2: "sampling before training",
    3: "scoring before training",
    4: "training",
    5: "sampling after training",
    6: "scoring after training",
}
BATCH = 4
"""Questions that are sampled together."""


@cache
def demo_judge() -> Judge:
    """Return the embedded judge, which scores."""
    return shipped_judge("embedded")


@dataclass(frozen=True)
class StoredQuestion:
    """A question in the database, with its rubrics by id: the written one, and a generated one if it has any."""

    question: Question
    prompt_id: int
    rubrics: dict[int, Rubric]


def author(folder: DemoFolder, db: Database, questions: Sequence[Question]) -> list[StoredQuestion]:
    """Store prompts and rubrics, and generate a second rubric for the first questions."""
    stored = []
    with db.write() as session:
        for question in questions:
            prompt = prompts.add(session, question.prompt, external_id=question.name)
            rubric = rubrics.add(session, question.rubric, name=question.name, prompt_id=prompt.id, origin="written")
            stored.append(StoredQuestion(question, prompt.id, {rubric.id: question.rubric}))
    first = stored[: folder.size.generated]
    with _stage(1) as bar:
        for number, one in enumerate(first):
            bar.update(number, len(first), one.question.name)
            one.rubrics.update(_generated_rubric(folder, db, one))
        bar.update(len(first), len(first), "")
    return stored


def _generated_rubric(folder: DemoFolder, db: Database, one: StoredQuestion) -> dict[int, Rubric]:
    name = f"{one.question.name}-generated"
    with db.read() as session:
        if known := rubrics.page(session, name=name):
            return {known[0].id: known[0].value}
    try:
        rubric = asyncio.run(_generate_rubric(one.question, folder.seed))
    except InvalidError as error:
        echo(f"no rubric was generated for {one.question.name!r}: {error}")
        return {}
    with db.write() as session:
        row = rubrics.add(session, rubric, name=name, prompt_id=one.prompt_id, origin=GENERATED, state=DRAFT)
        return {row.id: rubric}


async def _generate_rubric(question: Question, seed: int) -> Rubric:
    async with aclosing(make_engine(AUTHOR)) as engine:
        sampling = Sampling(temperature=0.7, top_p=0.9, max_tokens=160, seed=seed)
        author = Author(engine, AUTHOR, Generation(sampling=sampling, redraws=15))
        return (await write_rubric(author, AuthoringTask(Prompt.of(question.text)))).rubric


def sample(folder: DemoFolder, db: Database, stored: Sequence[StoredQuestion], step: int) -> None:
    """Sample completions of the policy after ``step`` steps."""
    batches = [(start, stored[start : start + BATCH]) for start in range(0, len(stored), BATCH)]
    missing = [(start, batch) for start, batch in batches if not _completion_ids(db, batch[-1], step)]
    if not missing:
        return
    size = folder.size
    with _stage(5 if step else 2) as bar:
        policy = Policy.load(str(checkpoint.folder(folder.training, step) / "model") if step else "embedded")
        for start, batch in missing:
            bar.update(start, len(stored), "questions")
            seed = int(digest(folder.seed, step, start // BATCH)[:12], 16)
            sampling = _sampling(folder)
            rollouts = policy.sample([one.question.prompt for one in batch], size.samples, sampling, seed)
            pairs = [
                # its number makes each of two equal texts a completion
                (one.prompt_id, completion.model_copy(update={"sampling": {**completion.sampling, "number": number}}))
                for number, completion in enumerate(rollouts.completions(POLICY, step, sampling))
                for one in [batch[number // size.samples]]
            ]
            with db.write() as session:  # a batch is stored as a whole or not at all
                completions.add_many(session, pairs)
        bar.update(len(stored), len(stored), "questions")


def _completion_ids(db: Database, one: StoredQuestion, step: int) -> list[int]:
    with db.read() as session:
        rows = completions.page(session, prompt_id=one.prompt_id, policy=POLICY, limit=1000)
        return [row.id for row in rows if row.value.step == step]


def _sampling(folder: DemoFolder) -> SamplingConfig:
    names = ("prompts_per_step", "group_size", "max_new_tokens", "temperature")
    return SamplingConfig(**fields_of(folder.size, *names))


def score(db: Database, stored: Sequence[StoredQuestion], step: int) -> int:
    """Score all completions under all rubrics of their question through the queue; return the job's id."""
    items = [
        (completion_id, rubric_id)
        for one in stored
        for rubric_id in one.rubrics
        for completion_id in _completion_ids(db, one, step)
    ]
    name = f"demo after {step} steps"
    with db.write() as session:
        judge_id = _store_judge(session)
        job = jobs.submit(session, judge_id=judge_id, items=items, key=name, name=name, allow_drafts=True)
        job_id, finished_at = job.id, job.finished_at
    if finished_at is None:
        with _stage(6 if step else 3) as bar, _worker(db):
            for now in follow(db, job_id, echo):
                bar.update(now.finished, now.total, f"{now.verdicts} verdicts, {now.failed_verdicts} failed")
    return job_id


def _store_judge(session: Session) -> int:
    """Store the judge with its passport; return its id."""
    row = judges.add(session, demo_judge())
    judges.set_passport(session, row.id, shipped_passport())
    return row.id


def _worker(db: Database) -> AbstractContextManager[None]:
    telemetry.configure("WARNING", human=True)  # Celery prints a banner; the demo has its own lines
    return embedded_worker(get_settings(), db, keep_models=True)


def _stage(number: int) -> AbstractContextManager[ProgressBar]:
    return progress_bar(f"stage {number} of {len(STAGES)}, {STAGES[number]}")


def train_policy(folder: DemoFolder, db: Database, questions: Sequence[Question]) -> list[Metrics]:
    """Train with GRPO on the training questions and their written rubrics; return the metrics of every step.

    Each step is scored through the queue, as one job.
    """
    size = folder.size
    if checkpoint.folder(folder.training, size.steps).is_dir():
        return history.read(folder.training)
    config = TrainConfig(
        steps=size.steps,
        seed=folder.seed,
        out=folder.training,
        checkpoint_every=max(1, size.steps // 2),
        keep_checkpoints=1,
        criterion_metrics=True,
        sampling=_sampling(folder),
        optim=OptimConfig(lr=size.lr, warmup_steps=2),
    )
    tasks = [Task(question.prompt, question.rubric) for question in questions if not question.held_out]
    resume = bool(checkpoint.steps(folder.training))
    repeatability = shipped_passport().repeatability
    rewards = QueueRewards(demo_judge(), RewardJobs(db, echo), run="demo", repeatability=repeatability)
    name, stop = run_name(folder.training, resume=True), Event()
    with (
        _stage(4) as bar,
        _worker(db),
        RunRecorder(DatabaseRuns(db), name, folder.training, stop) as recorder,
    ):

        def on_step(step: Metrics) -> None:
            bar.update(step["step"], size.steps, f"reward {step['reward']:.2f}, deviation {step['reward_std']:.2f}")

        options: dict[str, Any] = {"on_step": on_step, "stop": stop, "resume": resume, "record": {RUN: name}}
        return train(Policy.load(), tasks, rewards, config, recorder=recorder, **options).steps
