"""`ProviderModel`: a model behind any wire API: sends a request, then reads, decodes and translates the stream.

It owns the open streams, and what was found out about the server. Connections and request retries are
`provider_client`'s; whether to retry a broken stream is up to the agent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from treadle.http.http_connection import PoolStats
from treadle.http.sse import BodyReader, SseEvent, SseTooLarge
from treadle.llm.failure import cut
from treadle.llm.model import Completed, ModelError, ModelEvent, ModelRequest
from treadle.llm.provider import Endpoint, KeySource, ProviderConfig, ProviderConfigError, endpoint
from treadle.llm.provider_client import Exchange, Pause, ProviderClient
from treadle.llm.rate_limiter import LimiterStats
from treadle.llm.wire_api import Asking, UnknownWireApi, WireApi, find_wire_api

_HEADERS: Final = {"accept": "text/event-stream", "content-type": "application/json"}
MAX_MODELS: Final = 1024  # whose quirks are known; what is forgotten is learned again
# After all that matters the usage may follow, or the word that it is over, which some servers never send.
LAST_WORDS_S: Final = 2.0
MAX_QUIRKS: Final = 32  # more than any server has; a wire API that always finds another is stopped


class ProviderModel:
    """A `Model` at a provider. `login_key` returns the key of the user's login, if any; it is
    called for each request.
    """

    def __init__(
        self,
        config: ProviderConfig,
        *,
        wire: WireApi | None = None,
        login_key: KeySource | None = None,
        environ: Mapping[str, str] | None = None,
        pause: Pause = asyncio.sleep,
    ) -> None:
        try:
            self._wire = find_wire_api(config.wire_api) if wire is None else wire
        except UnknownWireApi as error:
            raise ProviderConfigError(config.id, ("wire_api", str(error))) from None
        self.config = config
        self._quirks: dict[str, frozenset[str]] = {}  # by model: behind one address may be many
        self._login_key = login_key
        self._environ = environ
        self._connection = ProviderClient(config, self._wire.failure, pause=pause)
        self._streams: set[ProviderStream] = set()
        self._endings: set[asyncio.Task[None]] = set()

    def stream(self, request: ModelRequest) -> ProviderStream:
        return ProviderStream(self, request)

    async def warm_up(self) -> None:
        """Load the HTTP client before the first request needs it."""
        await self._connection.warm_up()

    def stats(self) -> PoolStats:
        """How many connections are in use, and how many wait for the next request."""
        return self._connection.stats()

    def queue_stats(self) -> LimiterStats:
        """How many requests run and how many wait for that, and what limits them now."""
        return self._connection.queue_stats()

    @property
    def is_busy(self) -> bool:
        """Whether a request runs or waits."""
        queue = self.queue_stats()
        return bool(queue.running or queue.waiting or self.stats().busy)

    async def close(self) -> None:
        for stream in tuple(self._streams):
            await stream.aclose()
        endings = tuple(self._endings)
        for ending in endings:
            ending.cancel()
        await asyncio.gather(*endings, return_exceptions=True)
        await self._connection.close()

    async def _open(
        self, stream: ProviderStream, request: ModelRequest, quirks: frozenset[str]
    ) -> tuple[Endpoint, Exchange, frozenset[str]]:
        """Ask. Gives also the quirks that it was asked with in the end: those given, those known, and what refusals
        taught."""
        wire = self._wire
        headers = {**(request.headers or {}), **_HEADERS, **wire.headers}
        where = endpoint(
            self.config, wire.path, headers, wire.key_header, login_key=self._login_key, environ=self._environ
        )
        quirks |= self._quirks.get(request.model, frozenset())
        while True:
            body = wire.encode(request, Asking(self.config, quirks))
            try:
                exchange = await self._connection.send(
                    where,
                    body,
                    fair_key=request.fair_key,
                    on_wait=request.on_wait,
                    retried=request.retried,
                )
            except ModelError as error:
                other = self._other_way(error, quirks)
                if other is None:
                    raise
                quirks = other
            else:
                self._streams.add(stream)
                return where, exchange, quirks

    def _other_way(self, error: ModelError, quirks: frozenset[str]) -> frozenset[str] | None:
        """What to leave out as well, if the refusal is about something that can be."""
        if error.answer is None or len(quirks) >= MAX_QUIRKS:
            return None
        other = self._wire.other_way(error.answer, quirks)
        return other if other is not None and other > quirks else None

    def _learn(self, model: str, quirks: frozenset[str]) -> None:
        """Remember what a model's server does not support: from now on it is asked without that at once."""
        known = self._quirks.get(model, frozenset())
        if not quirks <= known:
            if len(self._quirks) >= MAX_MODELS:
                self._quirks.clear()
            self._quirks[model] = known | quirks

    def _forget(self, stream: ProviderStream) -> None:
        self._streams.discard(stream)

    def _finish(self, exchange: Exchange) -> None:
        """In the background: whoever has the last event should not wait for the end of the body."""
        if exchange.give_back():
            return
        ending = asyncio.create_task(exchange.finish(), name="end of a model response")
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)


class ProviderStream:
    """A `ModelStream`."""

    def __init__(self, model: ProviderModel, request: ModelRequest) -> None:
        self._model = model
        self._request: ModelRequest | None = request  # until it is answered
        self._quirks: frozenset[str] = frozenset()  # with which it was sent
        self._give_up_at: float | None = None  # on a server that does not say that it is done
        self._exchange: Exchange | None = None
        self._endpoint: Endpoint | None = None
        self._reader = BodyReader()
        self._translator = model._wire.translator(request)
        self._ready: deque[ModelEvent] = deque()
        self._failure: ModelError | None = None
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        while not self._ready:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._closed:
                raise StopAsyncIteration
            await self._fill()
        event = self._ready.popleft()
        if self._closed and not self._ready:
            self._model._forget(self)
        return event

    async def aclose(self) -> None:
        """Stop here: the connection is closed unless the response was complete."""
        self._ready.clear()
        self._failure = None
        self._model._forget(self)
        await self._release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _fill(self) -> None:
        """Read once. What comes before a failure is delivered before it."""
        try:
            self._take(await self._read())
        except ModelError as error:
            if await self._asks_otherwise(error):
                return
            if self._endpoint is not None:
                error.message = self._endpoint.redact(error.message)
                error.args = (error.message,)
            if self._exchange is not None:
                error.answer = None  # what stands inside of a response is not redacted
            self._failure = error
            await self._release()
        except BaseException:
            await self._release()
            raise
        if self._translator.completed:
            # What the response has cost is for whoever waits for a limit of tokens.
            last = self._ready[-1] if self._ready else None
            if isinstance(last, Completed) and last.usage is not None and self._exchange is not None:
                self._exchange.used(last.usage)
            await self._release()

    async def _read(self) -> bytes:
        """The next bytes; none at the end."""
        if self._exchange is None:
            if self._request is None:
                raise cut("it was closed")
            self._endpoint, self._exchange, self._quirks = await self._model._open(self, self._request, self._quirks)
        self._parse(b"")  # raises what stopped it behind the events of the last chunk
        try:
            if self._give_up_at is None:
                return await self._exchange.read()
            async with asyncio.timeout_at(self._give_up_at):
                return await self._exchange.read()
        except TimeoutError:
            return b""
        except ModelError as error:
            # A body without its end can be whole to the translator, which knows what else could have come.
            try:
                self._ready += self._translator.end()
            except ModelError:
                raise error from None
            return b""

    def _take(self, chunk: bytes) -> None:
        events = self._parse(chunk) if chunk else self._reader.end()
        for event in events:
            self._ready += self._translator.receive(event)
            if self._translator.completed:
                break
        if self._ready and self._request is not None:
            self._model._learn(self._request.model, self._quirks)
            self._request = None
        if self._translator.completed:
            return
        if not chunk:
            self._ready += self._translator.end()
        elif events:
            may_end = self._model._wire.may_end(self._translator)
            self._give_up_at = asyncio.get_running_loop().time() + LAST_WORDS_S if may_end else None

    async def _asks_otherwise(self, error: ModelError) -> bool:
        """Ask again, as after a refusal by status, when a response holds a refusal and nothing else: some servers
        refuse inside of a response."""
        request, exchange = self._request, self._exchange
        if request is None or exchange is None or self._ready:
            return False
        other = self._model._other_way(error, self._quirks)
        if other is None:
            return False
        self._quirks, self._exchange = other, None
        self._reader, self._translator = BodyReader(), self._model._wire.translator(request)
        await exchange.aclose()
        return True

    def _parse(self, chunk: bytes) -> list[SseEvent]:
        try:
            return self._reader.receive(chunk)
        except SseTooLarge as error:
            failure = cut(str(error))
            failure.retryable = False  # it would be as large again
            raise failure from None

    async def _release(self) -> None:
        self._closed = True
        self._request = None
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if not self._ready:  # with events left it is still one that `close` has to end
            self._model._forget(self)
        if self._translator.completed:
            self._model._finish(exchange)
        else:
            await exchange.aclose()
