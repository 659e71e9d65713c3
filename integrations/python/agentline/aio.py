"""The asynchronous client: the same host, awaited. A cancelled task stops its run."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar, Unpack, overload

from . import _lookups
from ._going import CANCEL_WAIT_S, Going, good
from ._lookups import AgentInfo, Capabilities, LoadedSession, Lookup, PoolStatus, SavedSession, SearchResult
from ._order import Ear, Order, order, told
from ._wire import Host
from .client import attach, close_late, start
from .errors import AgentlineError, ClientClosed
from .events import Event, Finished
from .outcome import Outcome
from .settings import Path, PoolSettings, RunOptions, RunSettings

T = TypeVar("T")

#: Called with each event; may be `async`.
AsyncEventCallback = Callable[[Event], Awaitable[None] | None]


class AsyncStream(Going[T], AsyncIterator[Event]):
    """The events of a run, the last one `Finished`. Whoever leaves its `async with` block early stops the run."""

    def __init__(self, client: AsyncAgentline, order: Order, method: str = "run", ear: Ear | None = None) -> None:
        self._client, self._order, self._method, self._beside = client, order, method, ear
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._over = self._begun = False

    async def _begin(self) -> None:
        """Asks for the run, once."""
        if self._begun or self._over:
            return
        self._begun = True
        loop, events, run = asyncio.get_running_loop(), self._events, self._order.run

        def put(event: Event | None) -> None:
            # A loop that is closed has nobody left who wants to know.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(events.put_nowait, event)

        try:
            host = await self._client._ready()
            super().__init__(host, self._order, self._method, attach(host, self._order, self._beside, put, loop))
        except BaseException:
            self._over = True
            raise

        ear = self._ear

        def end(_: Future[Any]) -> None:
            host.forget(run)
            ear.end()
            put(None)

        self._future.add_done_callback(end)

    def cancel(self) -> None:
        """Stops the run and all that it started. Its outcome still comes, with the verdict `cancelled`."""
        if hasattr(self, "_future"):
            super().cancel()
        else:
            self._over = True

    def __aiter__(self) -> AsyncStream[T]:
        return self

    async def __anext__(self) -> Event:
        await self._begin()
        if self._over:
            raise StopAsyncIteration
        event = await self._events.get()
        if event is not None:
            return event
        self._over = True
        return Finished(type="outcome", outcome=self._settle(self._future.result()))

    async def outcome(self) -> Outcome[T]:
        """What the run came to, whatever that is; waits for its end. Events that were not taken are passed over."""
        async for _ in self:
            pass
        if not hasattr(self, "_future"):
            raise ClientClosed()
        if self._outcome is None:
            return self._settle(await asyncio.wrap_future(self._future))
        return self._outcome

    async def result(self) -> Outcome[T]:
        """The outcome of a run that has an answer; `RunFailed` for any other."""
        return good(await self.outcome())

    async def aclose(self) -> None:
        """Stops the run if it still goes on, and waits until nothing of it is left."""
        if not self._over:
            self.cancel()
            self._over = True
        if self._begun and hasattr(self, "_future") and not self._future.done():
            ended = asyncio.ensure_future(quietly(self._future))
            await asyncio.wait([ended], timeout=CANCEL_WAIT_S)

    async def __aenter__(self) -> AsyncStream[T]:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncConversation(Generic[T]):
    """Several prompts in one session of an agent; opened by `async with`."""

    def __init__(self, client: AsyncAgentline, output: Any, options: Mapping[str, Any]) -> None:
        self._client, self._output, self._options = client, output, options
        self._ear: Ear | None = None
        self._order: Order | None = None
        self._name = ""
        #: The agent's own id, with which it can be resumed.
        self.session_id = ""

    async def open(self) -> AsyncConversation[T]:
        """Opens it."""
        host = await self._client._ready()
        self._order = order(self._client._next_name(), None, self._output, self._options)
        self._ear = Ear(host, self._order, loop=asyncio.get_running_loop())
        future = host.request("session/open", self._order.params)
        try:
            opened = await asyncio.wrap_future(future)
        except BaseException:
            host.forget(self._order.run)
            future.add_done_callback(lambda opened: close_late(host, opened))
            raise
        self._name, self.session_id = str(opened["session"]), str(opened["session_id"])
        return self

    async def prompt(
        self,
        prompt: str,
        *,
        on_event: AsyncEventCallback | None = None,
        raise_on_failure: bool = True,
        messages: bool = False,
        run: str | None = None,
    ) -> Outcome[T]:
        """Says something and waits for the outcome."""
        async with self.stream(prompt, messages=messages, run=run, events=on_event is not None) as stream:
            return await finish(stream, on_event, raise_on_failure)

    def stream(
        self, prompt: str, *, messages: bool = False, run: str | None = None, events: bool | Sequence[str] = True
    ) -> AsyncStream[T]:
        """Says something and gives the events."""
        opened = self._order
        if opened is None or not self._name:
            raise ClientClosed()
        name = run or self._client._next_name()
        params = {"session": self._name, "prompt": prompt, "run": name, "messages": messages, "events": events}
        return AsyncStream(self._client, Order(params, name, {}, None, None, opened.output), "session/prompt", self._ear)

    async def aclose(self) -> None:
        """Ends the conversation and its agent."""
        name, self._name = self._name, ""
        host = self._client._host
        if name and host is not None:
            with contextlib.suppress(AgentlineError):
                await asyncio.wrap_future(host.request("session/close", {"session": name}))
            if self._order is not None:
                host.forget(self._order.run)

    async def __aenter__(self) -> AsyncConversation[T]:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncAgentline:
    """A client of agentline for programs with an event loop. The arguments are those of `Agentline`; the host is started by
    `async with`, or with the first call."""

    def __init__(
        self,
        binary: Path | None = None,
        *,
        defaults: RunSettings | Mapping[str, Any] | None = None,
        pool: PoolSettings | None = None,
        max_concurrent: int | None = None,
        max_retries: int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._start = partial(start, binary, env, cwd, defaults, pool, max_concurrent, max_retries)
        self._host: Host | None = None
        self._closed = False
        self._starting = asyncio.Lock()
        self._names = itertools.count(1)
        #: What the host said about itself, once it is started.
        self.server: Mapping[str, Any] = {}

    def _next_name(self) -> str:
        return f"run-{next(self._names)}"

    async def _ready(self) -> Host:
        async with self._starting:
            if self._closed:
                raise ClientClosed()
            if self._host is None:
                # Starting a process takes milliseconds; a wait for it could be cancelled, and nobody would end it.
                host, hello = self._start()
                self._host = host
                self._close_late = weakref.finalize(self, host.close)
                self.server = await asyncio.wrap_future(hello)
            return self._host

    @overload
    async def run(
        self,
        prompt: str = "",
        *,
        output: type[T],
        on_event: AsyncEventCallback | None = None,
        raise_on_failure: bool = True,
        **options: Unpack[RunOptions],
    ) -> Outcome[T]: ...
    @overload
    async def run(
        self,
        prompt: str = "",
        *,
        output: Any = None,
        on_event: AsyncEventCallback | None = None,
        raise_on_failure: bool = True,
        **options: Unpack[RunOptions],
    ) -> Outcome[Any]: ...
    async def run(
        self,
        prompt: str = "",
        *,
        output: Any = None,
        on_event: AsyncEventCallback | None = None,
        raise_on_failure: bool = True,
        **options: Unpack[RunOptions],
    ) -> Outcome[Any]:
        """Has an agent answer a prompt, and waits for it. As `Agentline.run`; a task that is cancelled meanwhile stops it."""
        options.setdefault("events", on_event is not None)
        async with self.stream(prompt, output=output, **options) as stream:
            return await finish(stream, on_event, raise_on_failure)

    @overload
    def stream(self, prompt: str = "", *, output: type[T], **options: Unpack[RunOptions]) -> AsyncStream[T]: ...
    @overload
    def stream(self, prompt: str = "", *, output: Any = None, **options: Unpack[RunOptions]) -> AsyncStream[Any]: ...
    def stream(self, prompt: str = "", *, output: Any = None, **options: Unpack[RunOptions]) -> AsyncStream[Any]:
        """Has an agent answer a prompt, and gives the events as they come, the last one `Finished`."""
        return AsyncStream(self, order(self._next_name(), prompt, output, options))

    @overload
    def session(self, *, output: type[T], **options: Unpack[RunOptions]) -> AsyncConversation[T]: ...
    @overload
    def session(self, *, output: Any = None, **options: Unpack[RunOptions]) -> AsyncConversation[Any]: ...
    def session(self, *, output: Any = None, **options: Unpack[RunOptions]) -> AsyncConversation[Any]:
        """A conversation, opened by `async with`; the options hold for all of its prompts."""
        return AsyncConversation(self, output, options)

    async def cancel(self, run: str) -> bool:
        """Stops the run of this name with all that it started. Says whether there was one."""
        return await self._ask(_lookups.cancel(run))

    async def agents(self) -> tuple[AgentInfo, ...]:
        """The agents that a run may name."""
        return await self._ask(_lookups.agents())

    async def detect(self, agent: str | None = None) -> str | None:
        """Where the program of an agent is; `None` when it is nowhere."""
        return await self._ask(_lookups.detect(agent))

    async def capabilities(self, agent: str | None = None) -> Capabilities:
        """What an agent can do; live where it tells."""
        return await self._ask(_lookups.capabilities(agent))

    async def sessions(
        self,
        *,
        agent: str | None = None,
        project: Path | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> tuple[SavedSession, ...]:
        """What agents saved, newest first."""
        return await self._ask(_lookups.sessions(agent, project, since, until, limit))

    async def search_sessions(
        self,
        words: str | Sequence[str],
        *,
        agent: str | None = None,
        project: Path | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        regex: bool = False,
        case_sensitive: bool = False,
        context_lines: int = 0,
    ) -> tuple[SearchResult, ...]:
        """Saved sessions in which all of these words were said."""
        return await self._ask(
            _lookups.search(words, agent, project, since, until, limit, regex, case_sensitive, context_lines)
        )

    async def load_session(
        self,
        session: str | None = None,
        *,
        agent: str | None = None,
        project: Path | None = None,
        view: str = "unified",
        order: str | None = None,
        context: bool = False,
    ) -> LoadedSession:
        """One saved session with its messages; without an id the latest of the project."""
        return await self._ask(_lookups.load(session, agent, project, view, order, context))

    async def pool_status(self) -> PoolStatus:
        """The warm agents, and the runs that go on and wait."""
        return await self._ask(_lookups.pool_status())

    async def configure_pool(self, **settings: Unpack[PoolSettings]) -> None:
        """Other settings, for runs that begin later."""
        await self._ask(_lookups.configure_pool(settings))

    async def prewarm(self, runs: int = 1, **settings: Unpack[RunSettings]) -> int:
        """Makes agents ready for runs with these keys. Says how many are."""
        return await self._ask(_lookups.prewarm(runs, {key: told(value) for key, value in settings.items()}))

    async def _ask(self, lookup: Lookup[T]) -> T:
        host = await self._ready()
        return lookup.read(await asyncio.wrap_future(host.request(lookup.method, lookup.params)))

    async def aclose(self) -> None:
        """Ends the host and all that it started, and waits for it. May be called again."""
        self._closed = True
        if self._host is not None:
            await asyncio.to_thread(self._close_late)

    async def __aenter__(self) -> AsyncAgentline:
        try:
            await self._ready()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def quietly(future: Future[Any]) -> None:
    """Waits for an answer, whatever it is."""
    with contextlib.suppress(AgentlineError):
        await asyncio.wrap_future(future)


async def finish(stream: AsyncStream[T], on_event: AsyncEventCallback | None, raise_on_failure: bool) -> Outcome[T]:
    """Follows a run to its end."""
    async for event in stream:
        if on_event is not None:
            waits = on_event(event)
            if waits is not None:
                await waits
    return await (stream.result() if raise_on_failure else stream.outcome())
