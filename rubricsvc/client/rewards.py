"""Methods of ``client.rewards``."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from rubricsvc import queries, schemas
from rubricsvc.client.nouns import Completions, Prompts, several
from rubricsvc.client.transport import C, Method, Noun, reader
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import InvalidError

LARGE_BODY = 8 * 2**20
"""Characters of a request that is sent in parts; services refuse those above ``RUBRICSVC_MAX_BODY_MIB``."""


class Rewards(Noun[C]):
    """Methods of ``client.rewards``; `Client.score_many` waits for as long as it takes."""

    get = reader(schemas.Rewards, "rewards/{}", queries.RewardsQuery)

    @Method
    async def submit(
        self,
        judge: int | str,
        prompts: Sequence[Prompt | int | str],
        completions: Sequence[Sequence[Completion | str | int]],
        rubrics: Sequence[Rubric | int | str | None] = (),
        *,
        timeout: float = 0.0,
        name: str = "",
        key: str | None = None,
        budget: float | None = None,
        min_coverage: float | None = None,
        allow_drafts: bool = False,
    ) -> schemas.Rewards:
        """Submit completions of stored and new prompts as one job, and wait ``timeout`` seconds (at most 50) for it.

        ``prompts`` are values, or stored ones by id or external id; ``rubrics`` one for each prompt or one for all, as
        values or as in `Jobs.submit`, or None for the prompt's own. A completion is a text, a value or the id of a
        stored one. Other arguments are those of `Jobs.submit`. A large request is sent in parts.

        Raises:
            TypeError: the completions of a prompt are one text instead of several.
            NotFoundError, InvalidError: something is unknown or does not belong together, at the ``path``.
        """
        options: dict[str, Any] = {"name": name, "budget": budget, "min_coverage": min_coverage}
        try:
            body = schemas.NewRewards(
                judge=judge,
                prompts=tuple(prompts),
                completions=tuple(tuple(several(group)) for group in completions),
                rubrics=tuple(rubrics),
                timeout=timeout,
                allow_drafts=allow_drafts,
                **options,
            )
        except ValidationError as error:
            path, message = first_error(error)
            raise InvalidError(f"{path}: {message}", path=path) from error
        if len(body.model_dump_json()) > LARGE_BODY:
            body = await self._stored(body)
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return await self.send(schemas.Rewards, "POST", "rewards", body=body, headers=headers)

    async def _stored(self, body: schemas.NewRewards) -> schemas.NewRewards:
        """Store the prompts and completions of a large request, prompt by prompt; return it with their ids."""
        if len(body.prompts) != len(body.completions):
            return body  # which the service refuses
        prompt_ids: list[int] = []
        completion_ids: list[tuple[int, ...]] = []
        for prompt, group in zip(body.prompts, body.completions, strict=True):
            if isinstance(prompt, Prompt):
                prompt_ids.append((await Prompts.add(self.client.prompts, prompt)).id)
            else:
                prompt_ids.append((await Prompts.get(self.client.prompts, prompt)).id)
            new = [one for one in group if not isinstance(one, int)]
            stored = await Completions.add(self.client.completions, prompt_ids[-1], new) if new else None
            ids = iter(stored.ids if stored else ())
            completion_ids.append(tuple(one if isinstance(one, int) else next(ids) for one in group))
        return body.model_copy(update={"prompts": tuple(prompt_ids), "completions": tuple(completion_ids)})
