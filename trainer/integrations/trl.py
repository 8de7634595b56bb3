"""Rewards of the service for TRL's GRPO trainers.

::

    reward = RubricReward(Client(), "strong", rubric="vaccine-storage")
    GRPOTrainer(model, reward_funcs=reward, args=GRPOConfig(output_dir="out"), train_dataset=dataset).train()

The completions of a call are one job. TRL calls its GRPOTrainer's reward functions once a step (in each process, for
the completions there), and those of AsyncGRPO once for each prompt.

To TRL a reward of None means "does not apply": a completion without any reward has advantage 0, and a step of such
completions loss 0, without an error. So a judge that is down must not give None unless that is wanted.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args

from rubricsvc.client import AsyncClient, Client
from rubricsvc.client.nouns import Judges, Prompts
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import ConflictError, InvalidError, UnavailableError, at_path, cut
from rubricsvc.schemas.jobs import Item, StoredJob
from trainer.integrations.chats import Chat, completion_of, prompt_of

log = logging.getLogger(__name__)

C = TypeVar("C", Client, AsyncClient)
OnFailure = Literal["raise", "skip"]
RubricRef = Rubric | int | str | None
_LISTED = 3  # reasons in a message


class _Asked(NamedTuple):
    """A completion to score; ``version_key`` names the rubric's version in later calls, None where it is a value."""

    prompt: Prompt | int
    rubric: RubricRef
    version_key: object
    completion: Completion


class _RubricReward(Generic[C]):
    """What both callables share; `RubricReward` describes the arguments."""

    def __init__(
        self,
        client: C,
        judge: int | str,
        *,
        rubric: RubricRef = None,
        on_failure: OnFailure = "raise",
        max_unscored: float = 0.25,
        timeout: float | None = 1800.0,
        min_coverage: float | None = None,
        allow_drafts: bool = False,
        policy: str = "trl",
        name: str = "rubric",
    ) -> None:
        if on_failure not in get_args(OnFailure):
            raise InvalidError(f"on_failure: expected raise or skip, got {on_failure!r}", path="on_failure")
        if not 0 <= max_unscored <= 1:
            raise InvalidError(f"max_unscored: expected a share from 0 to 1, got {max_unscored!r}", path="max_unscored")
        self.client: C = client
        self.judge = judge
        self.rubric = rubric
        self.on_failure = on_failure
        self.max_unscored = max_unscored
        self.policy = policy
        self.__name__ = name
        self._options: dict[str, Any] = {"timeout": timeout, "min_coverage": min_coverage, "allow_drafts": allow_drafts}
        self._prompt_ids: dict[int | str, int] = {}
        self._versions: dict[object, int] = {}  # of the rubrics that were named, since the first call
        self._judge_digest = ""
        self._ignored = set[str]()  # fields of messages; each is logged once

    async def _score(
        self, prompts: Sequence[Chat], completions: Sequence[Chat], columns: Mapping[str, Any]
    ) -> list[float | None]:
        """Return the reward of each completion, None where it has none and that is allowed."""
        step = getattr(columns.get("trainer_state"), "global_step", None)
        asked = await self._asked(prompts, completions, columns, step)
        await self._check_judge()
        seen: list[StoredJob] = []
        results: list[Item | UnavailableError]
        try:
            scored = await Client.score_many(
                self.client,
                [one.prompt for one in asked],
                [self._versions.get(one.version_key, one.rubric) for one in asked],
                [[one.completion] for one in asked],  # a job shows a comparative judge those of a prompt together
                self.judge,
                name=self.policy if step is None else f"{self.policy} step {step + 1}",
                verdicts=False,
                cancel_late=True,
                on_progress=seen.append,
                **self._options,
            )
            results = [item for (item,) in scored]
        except UnavailableError as error:
            if self.on_failure == "raise":
                raise
            results = [error] * len(asked)
        for one, item in zip(asked, results, strict=True):
            if isinstance(item, Item) and one.version_key is not None:
                self._versions.setdefault(one.version_key, item.rubric_id or 0)
        return self._rewards(results, f"job {seen[-1].id}" if seen else "the service", columns)

    async def _asked(
        self, prompts: Sequence[Chat], completions: Sequence[Chat], columns: Mapping[str, Any], step: int | None
    ) -> list[_Asked]:
        """Return what is asked about each completion."""
        if len(completions) != len(prompts):
            raise InvalidError(f"{len(completions)} completions for {len(prompts)} prompts", path="completions")
        if not prompts:
            raise InvalidError("no prompts", hint="score at least one completion", path="prompts")
        given = [_column(columns, name, len(prompts)) for name in ("rubric", "prompt_id")]
        asked, ignored = list[_Asked](), set[str]()
        for place, (prompt, completion, own, ref) in enumerate(zip(prompts, completions, *given, strict=True)):
            if ref is not None and ref not in self._prompt_ids:
                self._prompt_ids[ref] = (await Prompts.get(self.client.prompts, ref)).id
            owner = prompt_of(prompt, place, ignored) if ref is None else self._prompt_ids[ref]
            rubric = self.rubric if own is None else own
            if not isinstance(rubric, Rubric | int | str | None):
                message = f"column rubric: expected a rubric, an id or a name, got {type(rubric).__name__}"
                raise InvalidError(message, hint="name a stored rubric", path=f"rubric.{place}")
            named = ("prompt", getattr(owner, "digest", owner)) if rubric is None else ("rubric", rubric)
            value = completion_of(completion, place, ignored, policy=self.policy, step=step)
            asked.append(_Asked(owner, rubric, None if isinstance(rubric, Rubric) else named, value))
        if ignored - self._ignored:
            log.warning("ignored in messages: %s", ", ".join(sorted(ignored - self._ignored)))
            self._ignored |= ignored
        return asked

    async def _check_judge(self) -> None:
        """Raise a ConflictError if the judge is not the one of the first call."""
        try:
            with at_path("judge"):
                digest = (await Judges.get(self.client.judges, self.judge)).digest
        except UnavailableError:
            if self.on_failure == "raise":
                raise
            return
        self._judge_digest = self._judge_digest or digest
        if digest != self._judge_digest:
            was, now = self._judge_digest[:8], digest[:8]
            hint = "give the new judge another name, and train again"
            raise ConflictError(
                f"judge {self.judge!r} was replaced in mid-run: it was {was}, now it is {now}", hint=hint
            )

    def _rewards(
        self, results: Sequence[Item | UnavailableError], job: str, columns: Mapping[str, Any]
    ) -> list[float | None]:
        rewards = [one.reward if isinstance(one, Item) else None for one in results]
        reasons: list[str | None] = []
        for one in results:
            if isinstance(one, Item):
                reasons.append(one.null_reason if one.reward is None else None)
            else:
                reasons.append(str(one))
        unscored = Counter(filter(None, reasons))
        share = unscored.total() / max(1, len(results))
        log_metric, log_extra = columns.get("log_metric"), columns.get("log_extra")  # AsyncGRPO has none
        if log_metric is not None:
            log_metric(f"{self.__name__}/unscored_fraction", share)
        if log_extra is not None:
            log_extra(f"{self.__name__}/null_reason", [reason or "" for reason in reasons])
        if unscored:
            listed = "; ".join(f"{count} × {cut(reason, 200)}" for reason, count in unscored.most_common(_LISTED))
            message = f"{unscored.total()} of {len(results)} completions have no reward ({job}): {listed}"
            if self.on_failure == "raise":
                hint = "repair the judge and resume from the last checkpoint, or skip them: on_failure='skip'"
                raise UnavailableError(message, hint=hint)
            if share > self.max_unscored:
                limit = f"{message}; at most a share of max_unscored = {self.max_unscored:g} may be missing"
                raise UnavailableError(limit, hint="repair the judge and resume from the last checkpoint")
            log.warning("%s; they are skipped", message)
        return rewards


class RubricReward(_RubricReward[Client]):
    """Reward function for TRL's GRPOTrainer: ``reward_funcs=RubricReward(client, "strong", rubric="sky")``.

    Prompts are stored by their messages. A dataset column ``prompt_id`` (id or external id) names stored ones instead:
    a prompt with a reference answer or documents is found by its id only.

    Args:
        client: client of the service.
        judge: id or name of a stored judge.
        rubric: rubric of all prompts: a value, or the id, name, name@version or digest of a stored one. A dataset
            column ``rubric`` comes before it; without either it is the only rubric of the stored prompt. A name means
            the version that is the newest approved one at its first use.
        on_failure: "raise" stops the training if a completion has no reward, "skip" passes it to TRL as None.
        max_unscored: the largest share of a call's completions that may be None where they are skipped.
        timeout: seconds that a call may take; then its job is cancelled, and what is not scored has no reward.
        min_coverage: used instead of the rubrics' own.
        allow_drafts: use rubrics that are not approved.
        policy: name of the policy in the stored completions and the names of jobs.
        name: name in TRL's log: ``rewards/NAME/mean``, ``NAME/unscored_fraction``.

    Raises:
        InvalidError: ``on_failure`` or ``max_unscored`` is invalid.

    Raises (from a call):
        UnavailableError: completions have no reward, or the service does not answer.
        NotFoundError: there is no such judge, rubric or prompt.
        ConflictError: the judge was replaced since the first call.
        InvalidError: a prompt has no rubric or belongs to another one, there are no prompts, the number of completions
            is not that of the prompts, or a completion has no message of the assistant.
    """

    def __call__(self, prompts: Sequence[Chat], completions: Sequence[Chat], **columns: Any) -> list[float | None]:
        """Score the completions of one call in one job."""
        rewards: list[float | None] = self.client.run(self._score(prompts, completions, columns))
        return rewards


class AsyncRubricReward(_RubricReward[AsyncClient]):
    """`RubricReward` as a coroutine, for AsyncGRPO. TRL sends it to another process, which it can be pickled for."""

    async def __call__(
        self, prompts: Sequence[Chat], completions: Sequence[Chat], **columns: Any
    ) -> list[float | None]:
        """Score the completions of one call in one job."""
        return await self._score(prompts, completions, columns)


def _column(columns: Mapping[str, Any], name: str, length: int) -> Sequence[Any]:
    given = columns.get(name)
    if given is None:
        return [None] * length
    values: Sequence[Any] = given.tolist() if hasattr(given, "tolist") else given  # NumPy's values are not Python's
    if len(values) != length:
        raise InvalidError(f"column {name}: {len(values)} values for {length} prompts", path=name)
    return values
