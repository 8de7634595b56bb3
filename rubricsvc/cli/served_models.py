"""The models that a server serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubricsvc.errors import InvalidError, UnavailableError

if TYPE_CHECKING:
    from rubricsvc.core.judge import Endpoint


def served_models(endpoint: Endpoint, *, timeout_s: float = 5.0) -> list[str]:
    """Return the models that an OpenAI-compatible server lists.

    Raises:
        InvalidError: The API key cannot be sent.
        UnavailableError: The server does not answer, refuses, or answers something else.
    """
    import httpx2

    from rubricsvc.settings import secret

    url = (endpoint.base_url or "https://api.openai.com/v1").rstrip("/")
    variable = endpoint.key_variable
    key = secret(variable)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        response = httpx2.get(f"{url}/models", headers=headers, timeout=timeout_s)
        response.raise_for_status()
        return [str(model["id"]) for model in response.json()["data"]]
    except httpx2.HTTPStatusError as error:
        status = error.response.status_code
        hint = "see the server's log; most servers want the URL to end in /v1"
        if status in {401, 403}:
            hint = f"put the key into {variable}" if variable else "name the key's variable with --api-key-env"
        raise UnavailableError(f"{url}: HTTP {status}", hint=hint) from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        hint = "start the model server, or correct the URL (it usually ends in /v1)"
        raise UnavailableError(f"{url}: no answer: {error}", hint=hint) from error
    except (ValueError, KeyError, TypeError) as error:
        hint = "check the URL: most servers want it to end in /v1"
        raise UnavailableError(f"{url}/models: not a list of models", hint=hint) from error


def only_served_model(endpoint: Endpoint) -> str:
    """Return the only model that the server serves.

    Raises:
        InvalidError: It serves none or several; the hint names them.
        UnavailableError: As `served_models`.
    """
    names = served_models(endpoint)
    if len(names) != 1:
        raise InvalidError(
            f"{endpoint.base_url} serves {len(names)} models",
            hint=f"name one with --model: {', '.join(names[:8]) or 'none'}",
        )
    return names[0]
