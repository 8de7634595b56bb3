"""The stages of the demo, in order: author, answer, score, train, answer and score again.

Each leaves its result in the database or in the run's folder, looks there first, and does only what is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from rubricsvc import telemetry
from rubricsvc.cli.demo.plan import POLICY, STAGES, Workplace
from rubricsvc.cli.demo.questions import Question, questions
from rubricsvc.cli.output import ProgressBar, echo, progress_bar
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.services.waiting import follow
from rubricsvc.settings import Settings
from rubricsvc.store import completions, jobs, judges, prompts, rubrics
from rubricsvc.store.session import Database
from trainer import checkpoint, metrics
from trainer.config import OptimConfig, SamplingConfig, TrainConfig
from trainer.environments.documents import Documents, python_docstrings, python_reference
from trainer.generation import generate as generate_completions
from trainer.loop import train
from trainer.metrics import Metrics
from trainer.policy import Policy
from trainer.rewards import JudgeRewards, Task
from workers import checks
from workers.authoring.generate import generate
from workers.engines import make_engine
from workers.queue.in_process import embedded_worker

JUDGE = Judge(name="embedded", engine="transformers_local", model="embedded")
GENERATED = "generated"
_BATCH = 4


@dataclass(frozen=True)
class Stored:
    """A question as the books have it. ``generated`` is the rubric that the model wrote, with its id, where it did."""

    question: Question
    prompt_id: int
    rubric_id: int
    generated: tuple[int, Rubric] | None = None


def chosen(work: Workplace) -> list[Question]:
    """The questions that this demo asks; the passages come from the index, which is made if it is not there."""
    with Documents(work.documents) as documents:
        if not len(documents):
            documents.add(python_reference())
            documents.add(python_docstrings())
        found = questions(documents)
    training = [question for question in found if not question.held_out][: work.size.training]
    return training + [question for question in found if question.held_out][: work.size.held_out]


def author(work: Workplace, db: Database, asked: Sequence[Question]) -> list[Stored]:
    """Prompts and rubrics into the books, and a second rubric for the first few, written by the model."""
    stored = []
    with db.write() as session:
        for question in asked:
            checks.validate(question.rubric)
            prompt = prompts.add(session, question.prompt, external_id=question.name)
            rubric = rubrics.add(session, question.rubric, name=question.name, prompt_id=prompt.id, origin="written")
            stored.append(Stored(question, prompt.id, rubric.id))
    first = stored[: work.size.generated]
    with _stage(1, "second rubrics, by the model") as bar:
        for number, one in enumerate(first):
            bar.update(number, len(first), one.question.name)
            stored[number] = replace(one, generated=_generated(work, db, one))
        bar.update(len(first), len(first), "")
    return stored


def _generated(work: Workplace, db: Database, one: Stored) -> tuple[int, Rubric]:
    """The model's rubric for this question, written now if the books have none.

    Raises:
        InvalidError: the model wrote none that can be read.
    """
    name = f"{one.question.name}-{GENERATED}"
    with db.read() as session:
        if known := rubrics.page(session, name=name):
            return known[0].id, known[0].value
    written = asyncio.run(_write_rubric(one.question, work.seed))
    with db.write() as session:
        return rubrics.add(session, written, name=name, prompt_id=one.prompt_id, origin=GENERATED).id, written


async def _write_rubric(question: Question, seed: int) -> Rubric:
    engine = make_engine(JUDGE)
    try:
        return await generate(engine, Prompt.of(question.text), seed=seed, tries=16, max_tokens=160)
    except InvalidError as error:
        raise InvalidError(
            f"the model wrote no rubric for {question.name!r}: {error}", hint="try another --seed"
        ) from error
    finally:
        await engine.aclose()


def answer(work: Workplace, db: Database, stored: Sequence[Stored], step: int) -> dict[int, list[int]]:
    """Completions of the policy after ``step`` steps: their ids by prompt id."""
    known = {one.prompt_id: _answers(db, one.prompt_id, step) for one in stored}
    batches = [stored[start : start + _BATCH] for start in range(0, len(stored), _BATCH)]
    missing = [batch for batch in batches if not all(known[one.prompt_id] for one in batch)]
    if not missing:
        return known
    with _stage(5 if step else 2, f"answers {_when(step)}") as bar:
        policy, sampling = _policy(work, step), _sampling(work, work.size.samples)
        for batch in missing:
            bar.update(sum(bool(known[one.prompt_id]) for one in stored), len(stored), "questions")
            seed = int(digest(work.seed, step, batches.index(batch))[:12], 16)
            said = generate_completions(policy, [one.question.prompt for one in batch], sampling, seed, step)
            with db.write() as session:  # a batch is there as a whole, or not at all
                for one, group in zip(batch, said, strict=True):
                    pairs = [(one.prompt_id, completion) for completion in group]
                    known[one.prompt_id] = completions.add_many(session, pairs)
        bar.update(len(stored), len(stored), "questions")
    return known


def _answers(db: Database, prompt_id: int, step: int) -> list[int]:
    with db.read() as session:
        rows = completions.page(session, prompt_id=prompt_id, policy=POLICY, limit=1000)
        return [row.id for row in rows if row.value.step == step]


def _policy(work: Workplace, step: int) -> Policy:
    folder = checkpoint.folder(work.training, step) / "model"
    policy = Policy.load(str(folder) if step else "embedded")
    policy.name = POLICY
    return policy


def _sampling(work: Workplace, group_size: int) -> SamplingConfig:
    size = work.size
    return SamplingConfig(
        prompts_per_step=size.prompts_per_step,
        group_size=group_size,
        max_new_tokens=size.max_new_tokens,
        temperature=size.temperature,
    )


def score(work: Workplace, db: Database, stored: Sequence[Stored], said: dict[int, list[int]], step: int) -> int:
    """All completions under all rubrics of their question, through the queue; the job's id."""
    items = [
        (completion_id, rubric_id)
        for one in stored
        for rubric_id in (one.rubric_id, *(one.generated or ())[:1])
        for completion_id in said[one.prompt_id]
    ]
    criteria = {one.rubric_id: len(one.question.rubric.criteria) for one in stored}
    criteria |= {one.generated[0]: len(one.generated[1].criteria) for one in stored if one.generated}
    total = sum(criteria[rubric_id] for _, rubric_id in items)
    settings = Settings(database_url=work.database_url)
    with db.write() as session:
        judge = judges.add(session, JUDGE)
        name = f"demo after {step} steps"
        job_id = jobs.submit(session, judge_id=judge.id, items=items, key=name, name=name).id
    with db.read() as session:
        if jobs.get(session, job_id).finished_at is not None:
            return job_id
    telemetry.configure("WARNING", human=True)  # Celery greets on the terminal; the demo has its own lines there
    with _stage(6 if step else 3, f"verdicts {_when(step)}") as bar, embedded_worker(settings, db):
        for now in follow(db, job_id):
            bar.update(now.verdicts, total, f"{now.failed_verdicts} failed" if now.failed_verdicts else "")
    return job_id


def _when(step: int) -> str:
    return "after training" if step else "before training"


def _stage(number: int, what: str) -> AbstractContextManager[ProgressBar]:
    return progress_bar(f"stage {number} of {STAGES}, {what}")


def learn(work: Workplace, asked: Sequence[Question]) -> list[Metrics]:
    """GRPO on the training questions and their written rubrics; every step's metrics."""
    size = work.size
    config = TrainConfig(
        steps=size.steps,
        seed=work.seed,
        out=work.training,
        checkpoint_every=max(1, size.steps // 2),
        keep_checkpoints=1,
        criterion_metrics=True,
        sampling=_sampling(work, size.group_size),
        optim=OptimConfig(lr=size.lr, warmup_steps=2),
    )
    if trained(work):
        return metrics.read(work.training)
    tasks = [Task(question.prompt, question.rubric) for question in asked if not question.held_out]
    resume = bool(checkpoint.steps(work.training))
    if resume:
        echo(f"training goes on after step {checkpoint.steps(work.training)[-1]}")
    done = len(metrics.read(work.training)) if resume else 0
    with _stage(4, "training") as bar, JudgeRewards(JUDGE) as rewards:
        bar.update(done, size.steps, "")
        policy = _policy(work, 0)

        def on_step(step: Metrics) -> None:
            bar.update(step["step"], size.steps, f"reward {step['reward']:.2f}, deviation {step['reward_std']:.2f}")

        return train(policy, tasks, rewards, config, on_step=on_step, resume=resume).steps


def trained(work: Workplace) -> bool:
    """Whether the policy of the last step is there."""
    return checkpoint.folder(work.training, work.size.steps).is_dir()


def drop_optimizer(work: Workplace) -> None:
    """1.6 GB that only further training would need; the trained policy stays."""
    for path in work.training.glob("checkpoints/*/optimizer.safetensors"):
        path.unlink()
