"""Python SDK of the HTTP service: `Client`, and `AsyncClient` with the same methods as coroutines.

::

    with Client() as client:
        for scored in client.score("Why is the sky blue?", rubric, ["Air scatters…", "The sea…"], judge="local-vllm"):
            print(scored.reward, scored.coverage)
        for job in client.iterate(client.jobs.page, status="completed"):
            print(job.id, job.name)

A method is written once, as a coroutine: `transport` sends and retries, `nouns` are the attributes of a client.
"""

from rubricsvc.client.clients import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
