"""The stages of the demo: author, sample, score, train, sample and score again.

Each stage stores its result in the database or in the run's folder, and does only what is missing there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from rubricsvc import telemetry
from rubricsvc.cli.demo.folder import DemoFolder
from rubricsvc.cli.demo.questions import Question, load_questions
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
from trainer.environments.documents import Documents, python_reference
from trainer.generation import generate as generate_completions
from trainer.loop import train
from trainer.metrics import Metrics
from trainer.policy import Policy
from trainer.rewards import JudgeRewards, Task
from workers import checks
from workers.authoring.generate import generate
from workers.engines import make_engine
from workers.queue.in_process import embedded_worker

POLICY = "SmolLM2-135M-Instruct"
JUDGE = Judge(name="embedded", engine="transformers_local", model="embedded")
GENERATED = "generated"
STAGES = 6
BATCH = 4
"""Questions that are sampled together."""


@dataclass(frozen=True)
class StoredQuestion:
    """A question in the database, with the id and content of its generated rubric if it has one."""

    question: Question
    prompt_id: int
    rubric_id: int
    generated: tuple[int, Rubric] | None = None

    @property
    def criteria(self) -> dict[int, int]:
        """Number of criteria by rubric id."""
        counts = {self.rubric_id: len(self.question.rubric.criteria)}
        return counts | ({self.generated[0]: len(self.generated[1].criteria)} if self.generated else {})


def select_questions(folder: DemoFolder) -> list[Question]:
    """Return the questions of this demo's size; index the documents first if needed."""
    with Documents(folder.documents) as documents:
        if not len(documents):
            documents.add(python_reference())
        questions = load_questions(documents)
    training = [question for question in questions if not question.held_out][: folder.size.training]
    return training + [question for question in questions if question.held_out][: folder.size.held_out]


def author(folder: DemoFolder, db: Database, questions: Sequence[Question]) -> list[StoredQuestion]:
    """Store prompts and rubrics, and generate a second rubric for the first questions."""
    stored = []
    with db.write() as session:
        for question in questions:
            checks.validate(question.rubric)
            prompt = prompts.add(session, question.prompt, external_id=question.name)
            rubric = rubrics.add(session, question.rubric, name=question.name, prompt_id=prompt.id, origin="written")
            stored.append(StoredQuestion(question, prompt.id, rubric.id))
    first = stored[: folder.size.generated]
    with _stage(1, "generating rubrics") as bar:
        for number, one in enumerate(first):
            bar.update(number, len(first), one.question.name)
            stored[number] = replace(one, generated=_generated_rubric(folder, db, one))
        bar.update(len(first), len(first), "")
    return stored


def _generated_rubric(folder: DemoFolder, db: Database, one: StoredQuestion) -> tuple[int, Rubric]:
    name = f"{one.question.name}-{GENERATED}"
    with db.read() as session:
        if known := rubrics.page(session, name=name):
            return known[0].id, known[0].value
    rubric = asyncio.run(_generate_rubric(one.question, folder.seed))
    with db.write() as session:
        return rubrics.add(session, rubric, name=name, prompt_id=one.prompt_id, origin=GENERATED).id, rubric


async def _generate_rubric(question: Question, seed: int) -> Rubric:
    engine = make_engine(JUDGE)
    try:
        return await generate(engine, Prompt.of(question.text), seed=seed, attempts=16, max_tokens=160)
    except InvalidError as error:
        message = f"no rubric was generated for {question.name!r}: {error}"
        raise InvalidError(message, hint="choose another --seed") from error
    finally:
        await engine.aclose()


def sample(folder: DemoFolder, db: Database, stored: Sequence[StoredQuestion], step: int) -> dict[int, list[int]]:
    """Sample completions of the policy after ``step`` steps; return their ids by prompt id."""
    ids = {one.prompt_id: _completion_ids(db, one.prompt_id, step) for one in stored}
    batches = [stored[start : start + BATCH] for start in range(0, len(stored), BATCH)]
    missing = [batch for batch in batches if not all(ids[one.prompt_id] for one in batch)]
    if not missing:
        return ids
    with _stage(5 if step else 2, f"sampling {_when(step)}") as bar:
        policy, sampling = _policy(folder, step), _sampling(folder, folder.size.samples)
        for batch in missing:
            bar.update(sum(bool(ids[one.prompt_id]) for one in stored), len(stored), "questions")
            seed = int(digest(folder.seed, step, batches.index(batch))[:12], 16)
            groups = generate_completions(policy, [one.question.prompt for one in batch], sampling, seed, step)
            with db.write() as session:  # a batch is stored as a whole or not at all
                for one, group in zip(batch, groups, strict=True):
                    pairs = [(one.prompt_id, completion) for completion in group]
                    ids[one.prompt_id] = completions.add_many(session, pairs)
        bar.update(len(stored), len(stored), "questions")
    return ids


def _completion_ids(db: Database, prompt_id: int, step: int) -> list[int]:
    with db.read() as session:
        rows = completions.page(session, prompt_id=prompt_id, policy=POLICY, limit=1000)
        return [row.id for row in rows if row.value.step == step]


def _policy(folder: DemoFolder, step: int) -> Policy:
    model = checkpoint.folder(folder.training, step) / "model"
    policy = Policy.load(str(model) if step else "embedded")
    policy.name = POLICY
    return policy


def _sampling(folder: DemoFolder, group_size: int) -> SamplingConfig:
    size = folder.size
    return SamplingConfig(
        prompts_per_step=size.prompts_per_step,
        group_size=group_size,
        max_new_tokens=size.max_new_tokens,
        temperature=size.temperature,
    )


def score(
    folder: DemoFolder, db: Database, stored: Sequence[StoredQuestion], ids: dict[int, list[int]], step: int
) -> int:
    """Score all completions under all rubrics of their question through the queue; return the job's id."""
    criteria = {rubric_id: count for one in stored for rubric_id, count in one.criteria.items()}
    items = [
        (completion_id, rubric_id)
        for one in stored
        for rubric_id in one.criteria
        for completion_id in ids[one.prompt_id]
    ]
    total = sum(criteria[rubric_id] for _, rubric_id in items)
    with db.write() as session:
        judge = judges.add(session, JUDGE)
        name = f"demo after {step} steps"
        job_id = jobs.submit(session, judge_id=judge.id, items=items, key=name, name=name).id
    with db.read() as session:
        if jobs.get(session, job_id).finished_at is not None:
            return job_id
    telemetry.configure("WARNING", human=True)  # Celery prints a banner; the demo has its own lines
    settings = Settings(database_url=folder.database_url)
    with _stage(6 if step else 3, f"scoring {_when(step)}") as bar, embedded_worker(settings, db):
        for now in follow(db, job_id, echo):
            bar.update(now.verdicts, total, f"{now.failed_verdicts} failed" if now.failed_verdicts else "")
    return job_id


def _when(step: int) -> str:
    return "after training" if step else "before training"


def _stage(number: int, description: str) -> AbstractContextManager[ProgressBar]:
    return progress_bar(f"stage {number} of {STAGES}, {description}")


def train_policy(folder: DemoFolder, questions: Sequence[Question]) -> list[Metrics]:
    """Train with GRPO on the training questions and their written rubrics; return the metrics of every step."""
    size = folder.size
    if checkpoint.folder(folder.training, size.steps).is_dir():
        return metrics.read(folder.training)
    config = TrainConfig(
        steps=size.steps,
        seed=folder.seed,
        out=folder.training,
        checkpoint_every=max(1, size.steps // 2),
        keep_checkpoints=1,
        criterion_metrics=True,
        sampling=_sampling(folder, size.group_size),
        optim=OptimConfig(lr=size.lr, warmup_steps=2),
    )
    tasks = [Task(question.prompt, question.rubric) for question in questions if not question.held_out]
    resume = bool(checkpoint.steps(folder.training))
    done = len(metrics.read(folder.training)) if resume else 0
    with _stage(4, "training") as bar, JudgeRewards(JUDGE) as rewards:
        bar.update(done, size.steps, "")

        def on_step(step: Metrics) -> None:
            bar.update(step["step"], size.steps, f"reward {step['reward']:.2f}, deviation {step['reward_std']:.2f}")

        return train(_policy(folder, 0), tasks, rewards, config, on_step=on_step, resume=resume).steps


def drop_optimizer(folder: DemoFolder) -> None:
    """Delete the optimizer's state (1.6 GB), which only further training needs."""
    for path in folder.training.glob("checkpoints/*/optimizer.safetensors"):
        path.unlink()
