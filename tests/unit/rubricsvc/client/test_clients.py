"""What a client rejects at construction: requests that cannot succeed would be repeated."""

import asyncio
import gc
import math

import pytest

from rubricsvc.client import AsyncClient, Client
from rubricsvc.errors import InvalidError
from rubricsvc.settings import get_settings
from tests.scripted_server import ScriptedReply, scripted_server

URLS = ["localhost:9191", "http://", "http:///v1", "h", "", "ftp://h", "http://h:0", "http://h:99999", "http://[::1", 5]


def test_client_rejects_what_is_no_url() -> None:
    for url in [*URLS, "http://a b", "http://h\n", "user:secret@h", None]:
        for connect in (Client, AsyncClient):
            with pytest.raises(InvalidError) as caught:
                connect(url)
            assert (caught.value.path, "http://" in caught.value.hint) == ("base_url", True)
            assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    "url", ["HTTP://h", "https://user:secret@h:8321/prefix/", "http://[::1]:80", "http://é.example"]
)
def test_client_accepts_urls_with_a_host(url: str) -> None:
    Client(url).close()


@pytest.mark.parametrize("name", ["timeout", "outage_seconds"])
def test_client_rejects_what_is_no_number_of_seconds(name: str) -> None:
    for value in [math.nan, math.inf, -1, "5", True]:
        with pytest.raises(InvalidError) as caught:
            Client(**{name: value})
        assert caught.value.path == name


def test_client_accepts_an_outage_of_0_seconds_and_no_timeout_of_0() -> None:
    Client(outage_seconds=0).close()
    with pytest.raises(InvalidError) as caught:
        Client(timeout=0)
    assert caught.value.path == "timeout"


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # the caller has not closed it
def test_async_client_works_in_one_event_loop_after_another() -> None:
    with scripted_server(ScriptedReply(body=b'{"data": [], "next": null}')) as server:

        async def use(client: AsyncClient) -> None:
            for path in ("models", "models"):  # of the second, the connection is kept alive
                await client.prompts.request("GET", path)

        client = AsyncClient(server.url.removesuffix("/v1"), outage_seconds=0)
        for _ in range(3):
            asyncio.run(use(client))
        del client
        gc.collect()


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "soon"])
def test_client_rejects_the_setting_of_no_number(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    get_settings.cache_clear()
    monkeypatch.setenv("RUBRICSVC_OUTAGE_SECONDS", value)
    try:
        with pytest.raises(InvalidError, match="RUBRICSVC_OUTAGE_SECONDS"):
            Client()
    finally:
        get_settings.cache_clear()
