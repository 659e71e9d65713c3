"""The asynchronous client. Cancelling a task stops its run."""

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
from typing import Any, Generic, Literal, TypeVar, Unpack, overload

from . import _lookups
from ._active_run import CANCEL_WAIT_S, ActiveRun, require_success
from ._lookups import AgentInfo, Capabilities, LoadedSession, Lookup, PoolStatus, SavedSession, SearchResult
from ._run_request import RunListener, RunRequest, build_request, to_wire
from ._wire import Host
from .client import attach_listener, close_orphaned_session, start_host
from .errors import AgentlineError, ClientClosed
from .events import Event, Finished
from .outcome import Outcome
from .settings import Path, PoolSettings, RunOptions, RunSettings

T = TypeVar("T")

#: Receives each event. May be `async`.
AsyncEventCallback = Callable[[Event], Awaitable[None] | None]


class AsyncStream(ActiveRun[T], AsyncIterator[Event]):
    """The events of a run; the last one is `Finished`. Leaving the `async with` block early stops the run."""

    def __init__(self, client: AsyncAgentline, request: RunRequest, method: str = "run", listener: RunListener | None = None) -> None:
        self._client, self._run_request, self._method, self._session_listener = client, request, method, listener
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._done = self._started = False

    async def _start(self) -> None:
        """Requests the run from the host on the first call."""
        if self._started or self._done:
            return
        self._started = True
        loop, events, run = asyncio.get_running_loop(), self._events, self._run_request.run

        def put(event: Event | None) -> None:
            # A closed event loop no longer accepts events.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(events.put_nowait, event)

        try:
            host = await self._client._ready()
            super().__init__(host, self._run_request, self._method, attach_listener(host, self._run_request, self._session_listener, put, loop))
        except BaseException:
            self._done = True
            raise

        listener = self._listener

        def end(_: Future[Any]) -> None:
            host.remove_listener(run)
            listener.end()
            put(None)

        self._future.add_done_callback(end)

    def cancel(self) -> None:
        """Stops the run and every process that it started. The outcome then has the verdict `cancelled`."""
        if hasattr(self, "_future"):
            super().cancel()
        else:
            self._done = True

    def __aiter__(self) -> AsyncStream[T]:
        return self

    async def __anext__(self) -> Event:
        await self._start()
        if self._done:
            raise StopAsyncIteration
        event = await self._events.get()
        if event is not None:
            return event
        self._done = True
        return Finished(type="outcome", outcome=self._read_result(self._future.result()))

    async def outcome(self) -> Outcome[T | None]:
        """Waits for the end of the run and returns its outcome, whatever the verdict is. Discards unread events."""
        async for _ in self:
            pass
        if not hasattr(self, "_future"):
            raise ClientClosed()
        if self._outcome is None:
            return self._read_result(await asyncio.wrap_future(self._future))
        return self._outcome

    async def result(self) -> Outcome[T]:
        """Waits for the end of the run and returns its outcome. Raises `RunFailed` if the run did not succeed."""
        return require_success(await self.outcome())

    async def aclose(self) -> None:
        """Stops the run if it is in progress, and waits until all its processes have ended."""
        if not self._done:
            self.cancel()
            self._done = True
        if self._started and hasattr(self, "_future") and not self._future.done():
            ended = asyncio.ensure_future(wait_ignoring_errors(self._future))
            await asyncio.wait([ended], timeout=CANCEL_WAIT_S)

    async def __aenter__(self) -> AsyncStream[T]:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncConversation(Generic[T]):
    """A conversation: several prompts in one session of an agent. `async with` opens it."""

    def __init__(self, client: AsyncAgentline, output: Any, options: Mapping[str, Any]) -> None:
        self._client, self._output, self._options = client, output, options
        self._listener: RunListener | None = None
        self._run_request: RunRequest | None = None
        self._name = ""
        #: The agent's id for the session, for use with `resume`.
        self.session_id = ""

    async def open(self) -> AsyncConversation[T]:
        """Opens the conversation."""
        host = await self._client._ready()
        self._run_request = build_request(self._client._next_name(), None, self._output, self._options)
        self._listener = RunListener(host, self._run_request, loop=asyncio.get_running_loop())
        future = host.request("session/open", self._run_request.params)
        try:
            opened = await asyncio.wrap_future(future)
        except BaseException:
            host.remove_listener(self._run_request.run)
            future.add_done_callback(lambda opened: close_orphaned_session(host, opened))
            raise
        self._name, self.session_id = str(opened["session"]), str(opened["session_id"])
        return self

    @overload
    async def prompt(
        self,
        prompt: str,
        *,
        on_event: AsyncEventCallback | None = None,
        raise_on_failure: Literal[True] = True,
        messages: bool = False,
        run: str | None = None,
    ) -> Outcome[T]: ...
    @overload
    async def prompt(
        self,
        prompt: str,
        *,
        on_event: AsyncEventCallback | None = None,
        raise_on_failure: bool,
        messages: bool = False,
        run: str | None = None,
    ) -> Outcome[T | None]: ...
    async def prompt(
        self,
        prompt: str,
        *,
        on_event: AsyncEventCallback | None = None,
        raise_on_failure: bool = True,
        messages: bool = False,
        run: str | None = None,
    ) -> Outcome[Any]:
        """Sends a prompt and waits for the outcome."""
        async with self.stream(prompt, messages=messages, run=run, events=on_event is not None) as stream:
            return await finish(stream, on_event, raise_on_failure)

    def stream(
        self, prompt: str, *, messages: bool = False, run: str | None = None, events: bool | Sequence[str] = True
    ) -> AsyncStream[T]:
        """Sends a prompt and returns the stream of its events."""
        opened = self._run_request
        if opened is None or not self._name:
            raise ClientClosed()
        name = run or self._client._next_name()
        params = {"session": self._name, "prompt": prompt, "run": name, "messages": messages, "events": events}
        return AsyncStream(self._client, RunRequest(params, name, {}, None, None, opened.output), "session/prompt", self._listener)

    async def aclose(self) -> None:
        """Ends the conversation and stops its agent."""
        name, self._name = self._name, ""
        host = self._client._host
        if name and host is not None:
            with contextlib.suppress(AgentlineError):
                await asyncio.wrap_future(host.request("session/close", {"session": name}))
            if self._run_request is not None:
                host.remove_listener(self._run_request.run)

    async def __aenter__(self) -> AsyncConversation[T]:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncAgentline:
    """A client of agentline for asyncio programs. It takes the arguments of `Agentline`. `async with` or the first call
    starts the host."""

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
        self._start_host = partial(start_host, binary, env, cwd, defaults, pool, max_concurrent, max_retries)
        self._host: Host | None = None
        self._closed = False
        self._starting = asyncio.Lock()
        self._names = itertools.count(1)
        #: The host's answer to `initialize`; empty before the host is started.
        self.server: Mapping[str, Any] = {}

    def _next_name(self) -> str:
        return f"run-{next(self._names)}"

    async def _ready(self) -> Host:
        async with self._starting:
            if self._closed:
                raise ClientClosed()
            if self._host is None:
                # Starting a process takes milliseconds. An `await` here could be cancelled and would leak the process.
                host, response = self._start_host()
                self._host = host
                self._finalizer = weakref.finalize(self, host.close)
                self.server = await asyncio.wrap_future(response)
            return self._host

    @overload
    async def run(
        self,
        prompt: str = "",
        *,
        output: type[T],
        on_event: AsyncEventCallback | None = None,
        raise_on_failure: Literal[True] = True,
        **options: Unpack[RunOptions],
    ) -> Outcome[T]: ...
    @overload
    async def run(
        self,
        prompt: str = "",
        *,
        output: type[T],
        on_event: AsyncEventCallback | None = None,
        raise_on_failure: bool,
        **options: Unpack[RunOptions],
    ) -> Outcome[T | None]: ...
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
        """Sends a prompt to an agent and waits for the outcome, like `Agentline.run`. Cancelling the task stops the run."""
        options.setdefault("events", on_event is not None)
        async with self.stream(prompt, output=output, **options) as stream:
            return await finish(stream, on_event, raise_on_failure)

    @overload
    def stream(self, prompt: str = "", *, output: type[T], **options: Unpack[RunOptions]) -> AsyncStream[T]: ...
    @overload
    def stream(self, prompt: str = "", *, output: Any = None, **options: Unpack[RunOptions]) -> AsyncStream[Any]: ...
    def stream(self, prompt: str = "", *, output: Any = None, **options: Unpack[RunOptions]) -> AsyncStream[Any]:
        """Sends a prompt to an agent and returns the stream of its events; the last one is `Finished`."""
        return AsyncStream(self, build_request(self._next_name(), prompt, output, options))

    @overload
    def session(self, *, output: type[T], **options: Unpack[RunOptions]) -> AsyncConversation[T]: ...
    @overload
    def session(self, *, output: Any = None, **options: Unpack[RunOptions]) -> AsyncConversation[Any]: ...
    def session(self, *, output: Any = None, **options: Unpack[RunOptions]) -> AsyncConversation[Any]:
        """Returns a conversation, which `async with` opens. The options apply to all its prompts."""
        return AsyncConversation(self, output, options)

    async def cancel(self, run: str) -> bool:
        """Stops the run with this name and every process that it started. Returns whether there was such a run."""
        return await self._ask(_lookups.cancel(run))

    async def agents(self) -> tuple[AgentInfo, ...]:
        """Returns the supported agents."""
        return await self._ask(_lookups.agents())

    async def detect(self, agent: str | None = None) -> str | None:
        """Returns the path of an agent's program, or `None` if it is not installed."""
        return await self._ask(_lookups.detect(agent))

    async def capabilities(self, agent: str | None = None) -> Capabilities:
        """Returns the features of an agent, as the agent itself reports them where it can."""
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
        """Returns the sessions that agents saved, newest first."""
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
        """Returns the saved sessions that contain all of these words."""
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
        """Returns a saved session with its messages; without an id, the latest session of the project."""
        return await self._ask(_lookups.load(session, agent, project, view, order, context))

    async def pool_status(self) -> PoolStatus:
        """Returns the warm agents and the number of active and waiting runs."""
        return await self._ask(_lookups.pool_status())

    async def configure_pool(self, **settings: Unpack[PoolSettings]) -> None:
        """Changes the pool settings for runs that start later."""
        await self._ask(_lookups.configure_pool(settings))

    async def prewarm(self, runs: int = 1, **settings: Unpack[RunSettings]) -> int:
        """Starts agents for runs with these settings in advance. Returns how many are ready."""
        return await self._ask(_lookups.prewarm(runs, {key: to_wire(value) for key, value in settings.items()}))

    async def _ask(self, lookup: Lookup[T]) -> T:
        host = await self._ready()
        return lookup.read(await asyncio.wrap_future(host.request(lookup.method, lookup.params)))

    async def aclose(self) -> None:
        """Stops the host and every process that it started, and waits for them. Safe to call again."""
        self._closed = True
        if self._host is not None:
            await asyncio.to_thread(self._finalizer)

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


async def wait_ignoring_errors(future: Future[Any]) -> None:
    """Waits for a response and ignores errors."""
    with contextlib.suppress(AgentlineError):
        await asyncio.wrap_future(future)


async def finish(stream: AsyncStream[T], on_event: AsyncEventCallback | None, raise_on_failure: bool) -> Outcome[T | None]:
    """Passes the events of a run to `on_event`, and returns the outcome."""
    async for event in stream:
        if on_event is not None:
            pending = on_event(event)
            if pending is not None:
                await pending
    return await stream.result() if raise_on_failure else await stream.outcome()
