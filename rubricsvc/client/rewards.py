"""Methods of ``client.rewards``."""

from __future__ import annotations

import uuid
from typing import Any

from rubricsvc import queries, schemas
from rubricsvc.client.nouns import Completions, Prompts
from rubricsvc.client.transport import C, Method, Noun, reader
from rubricsvc.core.prompt import Prompt
from rubricsvc.schemas import NewRewards
from rubricsvc.schemas.methods import request

LARGE_BODY = 8 * 2**20
"""Characters of a request that is sent in parts; services refuse those above ``RUBRICSVC_MAX_BODY_MIB``."""


class Rewards(Noun[C]):
    """Methods of ``client.rewards``; `Client.score_many` waits for as long as it takes."""

    get = reader(schemas.Rewards, "rewards/{}", queries.RewardsQuery)

    @Method
    async def submit(self, new: NewRewards | None = None, /, **fields: Any) -> schemas.Rewards:
        """Submit completions of stored and new prompts as one job, and wait ``timeout`` seconds (at most 50) for it.

        Takes a `NewRewards` or its fields. A large request is sent in parts.

        Raises:
            NotFoundError, InvalidError: Something is unknown or does not belong together, at the ``path``.
        """
        body: NewRewards = new or request(NewRewards, **fields)
        if body.key is None:
            body = body.model_copy(update={"key": uuid.uuid4().hex})
        if len(body.model_dump_json()) > LARGE_BODY and len(body.prompts) == len(body.completions):
            body = await self._stored(body)
        return await self.send(schemas.Rewards, "POST", "rewards", body=body)

    async def _stored(self, body: NewRewards) -> NewRewards:
        """Store the prompts and completions of a large request, prompt by prompt; return it with their ids."""
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
