"""One request to an OpenAI-compatible endpoint, streamed and timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prefixroute.errors import ConfigError
from prefixroute.extras import extra_module
from prefixroute.replay.stream import StreamedAnswer
from prefixroute.validation import shown

RESETS = ("/reset_prefix_cache", "/flush_cache")
"""How vLLM (in development mode) and SGLang are told to empty their prefix cache."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What came of one request. Times are seconds on the clock given; ``None`` = it did not happen or was not told.

    Attributes:
        first: when the first token came.
        last: when the last came.
        output_tokens: tokens of the answer.
        prompt_tokens: tokens of the prompt, as the engine counts.
        cached_tokens: prompt tokens that the engine had cached, as it says.
        error: what went wrong; empty = nothing.
    """

    first: float | None = None
    last: float | None = None
    output_tokens: int = 0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    error: str = ""


class Client:
    """Sends completions over one connection pool without a limit: an open loop must not wait for a connection.

    Args:
        clock: returns seconds.
        timeout_s: for a whole answer.
        api_key: sent as a bearer token.
    """

    def __init__(self, clock: Callable[[], float], timeout_s: float, api_key: str | None = None) -> None:
        self._aiohttp = extra_module("aiohttp", "replay")
        self._clock = clock
        headers = {"content-type": "application/json"}
        if api_key is not None:
            headers["authorization"] = f"Bearer {api_key}"
        self._session = self._aiohttp.ClientSession(
            connector=self._aiohttp.TCPConnector(limit=0),
            timeout=self._aiohttp.ClientTimeout(total=timeout_s),
            headers=headers,
            cookie_jar=self._aiohttp.DummyCookieJar(),
            read_bufsize=1 << 20,
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def complete(
        self, url: str, body: bytes, headers: Mapping[str, str], first_token: Callable[[], None]
    ) -> Exchange:
        """Send a streamed completion and read its answer.

        Args:
            url: base URL of the endpoint, without ``/v1``.
            body: the JSON of the request.
            headers: more headers.
            first_token: called when the first token has come.

        Returns:
            Times and token counts of the answer, or why there is none.
        """
        stream = StreamedAnswer()
        try:
            async with self._session.post(f"{url}/v1/completions", data=body, headers=headers) as answer:
                if answer.status != 200:  # noqa: PLR2004  # OK
                    return Exchange(error=f"status {answer.status}")
                async for part in answer.content.iter_any():
                    waited = stream.first is None
                    stream.feed(part, self._clock())
                    if waited and stream.first is not None:
                        first_token()
        except (self._aiohttp.ClientError, TimeoutError, OSError) as error:
            return Exchange(first=stream.first, error=type(error).__name__)
        stream.end(self._clock())
        if stream.error:
            return Exchange(first=stream.first, error=stream.error)
        return Exchange(stream.first, stream.last, *stream.counts())

    async def model(self, url: str) -> str:
        """Return the first model that an endpoint serves; raise ConfigError if it is no URL or does not answer.

        Args:
            url: base URL of the endpoint.
        """
        try:
            async with self._session.get(f"{url}/v1/models") as answer:
                answer.raise_for_status()
                name = (await answer.json())["data"][0]["id"]
        except self._aiohttp.InvalidURL as error:
            raise ConfigError(f"an endpoint must be a URL such as http://10.0.0.1:8000, got {shown(url)}") from error
        except (self._aiohttp.ClientError, TimeoutError, OSError, ValueError, LookupError, TypeError) as error:
            reason = str(error) or type(error).__name__
            raise ConfigError(f"endpoint {url} does not list its models: {reason}") from error
        return str(name)

    async def reset(self, url: str) -> bool:
        """Let an endpoint empty its prefix cache; return whether it did.

        Args:
            url: base URL of the endpoint.

        Returns:
            False where it has no such call.
        """
        for path in RESETS:
            try:
                async with self._session.post(f"{url}{path}") as answer:
                    if answer.status < 300:  # noqa: PLR2004  # any success
                        return True
            except (self._aiohttp.ClientError, TimeoutError, OSError):
                return False
        return False
