"""Python SDK of the HTTP service: `Client`, and `AsyncClient` with the same methods as coroutines.

::

    with Client() as client:
        for scored in client.score("Why is the sky blue?", rubric, ["Air scatters…", "The sea…"], judge="local-vllm"):
            print(scored.value, scored.coverage)
        for job in client.iterate(client.jobs.page, status="completed"):
            print(job.id, job.name)

`transport` builds requests, retries and parses responses; `nouns` are the attributes of a client (``client.jobs``);
`clients` sends.
"""

from rubricsvc.client.clients import AsyncClient, Client, ScoredCompletion

__all__ = ["AsyncClient", "Client", "ScoredCompletion"]
