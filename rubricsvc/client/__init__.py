"""Python SDK of the HTTP service.

::

    with Client() as client:
        for scored in client.score("Why is the sky blue?", rubric, ["Air scatters…", "The sea…"], judge="local-vllm"):
            print(scored.reward, scored.coverage)
        for job in client.iterate(client.jobs.page, status="completed"):
            print(job.id, job.name)

`transport` sends and retries, `nouns` are the attributes of a client.
"""

from rubricsvc.client.clients import Client

__all__ = ["Client"]
