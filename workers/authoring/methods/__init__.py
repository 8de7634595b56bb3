"""Ways of writing a rubric. Each is a short module and a template in ``prompts/``.

To add one, write a coroutine that renders what its template needs and asks the author, name it here, and add its name
to `rubricsvc.core.generation.Method`::

    async def my_method(author: Author, task: AuthoringTask) -> Draft:
        return await author.write("my_template", {"prompt": shown("question", task.prompt.text)})
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rubricsvc.core.authoring import AuthoringTask
from rubricsvc.core.generation import Method
from workers.authoring.author import Author, Draft
from workers.authoring.methods.contrastive import contrastive
from workers.authoring.methods.grounded import grounded
from workers.authoring.methods.merge import merge
from workers.authoring.methods.one_shot import one_shot
from workers.authoring.methods.principles import principles
from workers.authoring.methods.reference_guided import reference_guided
from workers.authoring.methods.traces import traces

METHODS: dict[Method, Callable[[Author, AuthoringTask], Awaitable[Draft]]] = {
    "one-shot": one_shot,
    "reference-guided": reference_guided,
    "contrastive": contrastive,
    "principles": principles,
    "traces": traces,
    "merge": merge,
    "grounded": grounded,
}


async def write_rubric(author: Author, task: AuthoringTask) -> Draft:
    """Return the rubric that the method of the author's settings writes.

    Raises:
        GenerationError: There is none.
    """
    return await METHODS[author.generation.method](author, task)
