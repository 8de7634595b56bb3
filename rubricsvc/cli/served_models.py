"""The models that a server serves."""

from __future__ import annotations

from rubricsvc.core.judge import Endpoint
from rubricsvc.errors import InvalidError, UnavailableError
from rubricsvc.settings import secret


def served_models(endpoint: Endpoint, *, timeout_s: float = 5.0) -> list[str]:
    """Return the models that an OpenAI-compatible server lists.

    Raises:
        UnavailableError: The server does not answer, refuses, or answers something else.
    """
    import httpx2

    url = (endpoint.base_url or "https://api.openai.com/v1").rstrip("/")
    key = secret(endpoint.key_variable)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    hint = "start the model server, see its log, or correct the URL (it usually ends in /v1)"
    try:
        response = httpx2.get(f"{url}/models", headers=headers, timeout=timeout_s)
        response.raise_for_status()
        return [str(model["id"]) for model in response.json()["data"]]
    except httpx2.HTTPStatusError as error:
        status = error.response.status_code
        if status in {401, 403}:
            hint = f"put the key into {endpoint.key_variable or 'a variable, and name it with --api-key-env'}"
        raise UnavailableError(f"{url}: HTTP {status}", hint=hint) from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise UnavailableError(f"{url}: no answer: {error}", hint=hint) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UnavailableError(f"{url}/models: not a list of models", hint=hint) from error


def only_served_model(endpoint: Endpoint) -> str:
    """Return the only model that the server serves.

    Raises:
        InvalidError: It serves none or several; the hint names them.
    """
    names = served_models(endpoint)
    if len(names) == 1:
        return names[0]
    hint = f"name one with --model: {', '.join(names[:8]) or 'none'}"
    raise InvalidError(f"{endpoint.base_url} serves {len(names)} models", hint=hint)
