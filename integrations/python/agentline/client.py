"""The synchronous client. It starts one `agentline host`, which any number of threads can share."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, TimeoutError as FutureTimeout
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, Unpack, overload

from . import _lookups
from ._binary import find_binary
from ._active_run import CANCEL_WAIT_S, ActiveRun, require_success
from ._lookups import AgentInfo, Capabilities, LoadedSession, Lookup, PoolStatus, SavedSession, SearchResult
from ._run_request import RunListener, RunRequest, build_request, to_wire
from ._wire import Host
from .errors import AgentlineError
from .events import Event, Finished
from .outcome import Outcome
from .settings import EventCallback, Path, PoolSettings, RunOptions, RunSettings

T = TypeVar("T")

#: The protocol version that this package supports.
PROTOCOL = 1
#: On Windows, Ctrl-C does not interrupt a lock, so waits use this timeout and check again.
POLL_INTERVAL_S = 0.2 if os.name == "nt" else None


class Stream(ActiveRun[T], Iterator[Event]):
    """The events of a run; the last one is `Finished`. Leaving the `with` block early stops the run."""

    def __init__(self, host: Host, request: RunRequest, method: str = "run", listener: RunListener | None = None) -> None:
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        super().__init__(host, request, method, attach_listener(host, request, listener, self._events.put))
        # The reader thread delivers the response after the last event.
        events, run, listener = self._events, request.run, self._listener

        def end(_: Future[Any]) -> None:
            host.remove_listener(run)
            listener.end()
            events.put(None)

        self._future.add_done_callback(end)

    def __iter__(self) -> Stream[T]:
        return self

    def __next__(self) -> Event:
        if self._done:
            raise StopIteration
        event = next_event(self._events)
        if event is not None:
            return event
        self._done = True
        return Finished(type="outcome", outcome=self._read_result(self._future.result()))

    def outcome(self) -> Outcome[T | None]:
        """Waits for the end of the run and returns its outcome, whatever the verdict is. Discards unread events."""
        for _ in self:
            pass
        return self._outcome if self._outcome is not None else self._read_result(self._future.result())

    def result(self) -> Outcome[T]:
        """Waits for the end of the run and returns its outcome. Raises `RunFailed` if the run did not succeed."""
        return require_success(self.outcome())

    def close(self) -> None:
        """Stops the run if it is in progress, and waits until all its processes have ended."""
        if not self._done:
            self._done = True
            self.cancel()
            with contextlib.suppress(AgentlineError, FutureTimeout):
                self._future.result(CANCEL_WAIT_S)

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def attach_listener(host: Host, request: RunRequest, listener: RunListener | None, put: Any, loop: Any = None) -> RunListener:
    """Creates the listener for the events of a run. Returns the listener that handles its requests: in a conversation,
    that is the listener of the conversation."""
    own = RunListener(host, request, put, loop)
    if listener is None:
        return own
    listener.active_run, listener.failure = request.run, None
    return listener


def next_event(events: queue.SimpleQueue[Event | None]) -> Event | None:
    """Waits for the next event. Ctrl-C interrupts the wait."""
    while True:
        try:
            return events.get(timeout=POLL_INTERVAL_S)
        except queue.Empty:
            continue


class Conversation(Generic[T]):
    """A conversation: several prompts in one session of an agent. The options of `Agentline.session` apply to all of them."""

    def __init__(self, client: Agentline, request: RunRequest) -> None:
        self._client, self._run_request = client, request
        self._listener = RunListener(client._host, request)
        future = client._host.request("session/open", request.params)
        try:
            opened = wait(future)
        except BaseException:
            client._host.remove_listener(request.run)
            # The caller has no handle, so the session is closed as soon as it is open.
            future.add_done_callback(lambda opened: close_orphaned_session(client._host, opened))
            raise
        self._name = str(opened["session"])
        #: The agent's id for the session, for use with `resume`.
        self.session_id = str(opened["session_id"])
        self._closed = False

    @overload
    def prompt(
        self,
        prompt: str,
        *,
        on_event: EventCallback | None = None,
        raise_on_failure: Literal[True] = True,
        messages: bool = False,
        run: str | None = None,
    ) -> Outcome[T]: ...
    @overload
    def prompt(
        self,
        prompt: str,
        *,
        on_event: EventCallback | None = None,
        raise_on_failure: bool,
        messages: bool = False,
        run: str | None = None,
    ) -> Outcome[T | None]: ...
    def prompt(
        self,
        prompt: str,
        *,
        on_event: EventCallback | None = None,
        raise_on_failure: bool = True,
        messages: bool = False,
        run: str | None = None,
    ) -> Outcome[Any]:
        """Sends a prompt and waits for the outcome."""
        with self.stream(prompt, messages=messages, run=run, events=on_event is not None) as stream:
            return finish(stream, on_event, raise_on_failure)

    def stream(
        self, prompt: str, *, messages: bool = False, run: str | None = None, events: bool | Sequence[str] = True
    ) -> Stream[T]:
        """Sends a prompt and returns the stream of its events."""
        name = run or self._client._next_name()
        params = {"session": self._name, "prompt": prompt, "run": name, "messages": messages, "events": events}
        request = RunRequest(params, name, {}, None, None, self._run_request.output)
        return Stream(self._client._host, request, "session/prompt", self._listener)

    def close(self) -> None:
        """Ends the conversation and stops its agent."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(AgentlineError):
                wait(self._client._host.request("session/close", {"session": self._name}))
            self._client._host.remove_listener(self._run_request.run)

    def __enter__(self) -> Conversation[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Agentline:
    """A client of agentline. Thread-safe. Its host, and every process of the host, ends with `close()` or with the program.

    Args:
        binary: The program. The default is AGENTLINE_BIN, then `agentline` on PATH.
        defaults: Settings for every run; the options of a run override them.
        pool: How agents are kept warm.
        max_concurrent: The maximum number of concurrent runs.
        max_retries: How many times a run that was rejected for load or quota is retried.
        env: The complete environment of the host. The default is the environment of this program.
        cwd: The working directory of the host. Relative paths are resolved against it.
    """

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
        self._host, response = start_host(binary, env, cwd, defaults, pool, max_concurrent, max_retries)
        self._finalizer = weakref.finalize(self, self._host.close)
        self._names = itertools.count(1)
        try:
            self.server: Mapping[str, Any] = wait(response)
        except BaseException:
            self.close()
            raise

    def _next_name(self) -> str:
        return f"run-{next(self._names)}"

    def _start(self, prompt: str, output: Any, options: Mapping[str, Any]) -> Stream[Any]:
        return Stream(self._host, build_request(self._next_name(), prompt, output, options))

    @overload
    def run(
        self,
        prompt: str = "",
        *,
        output: type[T],
        on_event: EventCallback | None = None,
        raise_on_failure: Literal[True] = True,
        **options: Unpack[RunOptions],
    ) -> Outcome[T]: ...
    @overload
    def run(
        self,
        prompt: str = "",
        *,
        output: type[T],
        on_event: EventCallback | None = None,
        raise_on_failure: bool,
        **options: Unpack[RunOptions],
    ) -> Outcome[T | None]: ...
    @overload
    def run(
        self,
        prompt: str = "",
        *,
        output: Any = None,
        on_event: EventCallback | None = None,
        raise_on_failure: bool = True,
        **options: Unpack[RunOptions],
    ) -> Outcome[Any]: ...
    def run(
        self,
        prompt: str = "",
        *,
        output: Any = None,
        on_event: EventCallback | None = None,
        raise_on_failure: bool = True,
        **options: Unpack[RunOptions],
    ) -> Outcome[Any]:
        """Sends a prompt to an agent and waits for the outcome.

        Args:
            prompt: The task for the agent.
            output: The type of the answer: a dataclass, a TypedDict, a Pydantic model, another type, or a JSON Schema.
            on_event: Receives each event, on the caller's thread.
            raise_on_failure: Whether to raise `RunFailed` if the run does not succeed.
            options: Settings of the run, tools and callbacks.
        """
        options.setdefault("events", on_event is not None)
        with self._start(prompt, output, options) as stream:
            return finish(stream, on_event, raise_on_failure)

    @overload
    def stream(self, prompt: str = "", *, output: type[T], **options: Unpack[RunOptions]) -> Stream[T]: ...
    @overload
    def stream(self, prompt: str = "", *, output: Any = None, **options: Unpack[RunOptions]) -> Stream[Any]: ...
    def stream(self, prompt: str = "", *, output: Any = None, **options: Unpack[RunOptions]) -> Stream[Any]:
        """Sends a prompt to an agent and returns the stream of its events; the last one is `Finished`."""
        return self._start(prompt, output, options)

    @overload
    def session(self, *, output: type[T], **options: Unpack[RunOptions]) -> Conversation[T]: ...
    @overload
    def session(self, *, output: Any = None, **options: Unpack[RunOptions]) -> Conversation[Any]: ...
    def session(self, *, output: Any = None, **options: Unpack[RunOptions]) -> Conversation[Any]:
        """Opens a conversation. The options apply to all its prompts."""
        return Conversation(self, build_request(self._next_name(), None, output, options))

    def cancel(self, run: str) -> bool:
        """Stops the run with this name and every process that it started. Returns whether there was such a run."""
        return self._ask(_lookups.cancel(run))

    def agents(self) -> tuple[AgentInfo, ...]:
        """Returns the supported agents."""
        return self._ask(_lookups.agents())

    def detect(self, agent: str | None = None) -> str | None:
        """Returns the path of an agent's program, or `None` if it is not installed."""
        return self._ask(_lookups.detect(agent))

    def capabilities(self, agent: str | None = None) -> Capabilities:
        """Returns the features of an agent, as the agent itself reports them where it can."""
        return self._ask(_lookups.capabilities(agent))

    def sessions(
        self,
        *,
        agent: str | None = None,
        project: Path | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> tuple[SavedSession, ...]:
        """Returns the sessions that agents saved, newest first."""
        return self._ask(_lookups.sessions(agent, project, since, until, limit))

    def search_sessions(
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
        return self._ask(
            _lookups.search(words, agent, project, since, until, limit, regex, case_sensitive, context_lines)
        )

    def load_session(
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
        return self._ask(_lookups.load(session, agent, project, view, order, context))

    def pool_status(self) -> PoolStatus:
        """Returns the warm agents and the number of active and waiting runs."""
        return self._ask(_lookups.pool_status())

    def configure_pool(self, **settings: Unpack[PoolSettings]) -> None:
        """Changes the pool settings for runs that start later."""
        self._ask(_lookups.configure_pool(settings))

    def prewarm(self, runs: int = 1, **settings: Unpack[RunSettings]) -> int:
        """Starts agents for runs with these settings in advance. Returns how many are ready."""
        return self._ask(_lookups.prewarm(runs, {key: to_wire(value) for key, value in settings.items()}))

    def _ask(self, lookup: Lookup[T]) -> T:
        return lookup.read(wait(self._host.request(lookup.method, lookup.params)))

    @property
    def pid(self) -> int:
        """The process id of the host."""
        return self._host.pid

    @property
    def is_alive(self) -> bool:
        """Whether the client can still be used."""
        return self._host.is_alive

    def close(self) -> None:
        """Stops the host and every process that it started, and waits for them. Safe to call again."""
        self._finalizer()

    def __enter__(self) -> Agentline:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def connect(binary: Path | None = None, **options: Any) -> Agentline:
    """Returns a client. Takes the arguments of `Agentline`."""
    return Agentline(binary, **options)


def start_host(
    binary: Path | None,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    defaults: Mapping[str, Any] | None,
    pool: Mapping[str, Any] | None,
    max_concurrent: int | None,
    max_retries: int | None,
) -> tuple[Host, Future[Any]]:
    """Starts a host and sends `initialize`. Returns the host and the future of its response."""
    from . import __version__

    variables = dict(os.environ if env is None else env)
    # The program is also searched for in the environment of this process, even if `env` replaces it for the agents.
    host = Host([find_binary(binary, {**os.environ, **variables}), "host"], env=variables, cwd=None if cwd is None else os.fspath(cwd))
    params = {
        "protocol": PROTOCOL,
        "client": {"name": "agentline-python", "version": __version__},
        "defaults": {key: to_wire(value) for key, value in (defaults or {}).items()},
        "pool": pool or {},
        "max_concurrent": max_concurrent,
        "max_retries": max_retries,
    }
    try:
        return host, host.initialize(params)
    except BaseException:
        host.close()
        raise


def wait(future: Future[Any]) -> Any:
    """Waits for a response. Ctrl-C interrupts the wait."""
    while True:
        try:
            return future.result(POLL_INTERVAL_S)
        except FutureTimeout:
            if future.done():
                raise
            time.sleep(0)


def finish(stream: Stream[T], on_event: EventCallback | None, raise_on_failure: bool) -> Outcome[T | None]:
    """Passes the events of a run to `on_event`, and returns the outcome."""
    for event in stream:
        if on_event is not None:
            on_event(event)
    return stream.result() if raise_on_failure else stream.outcome()


def close_orphaned_session(host: Host, opened: Future[Any]) -> None:
    """Closes a session whose caller stopped waiting before it was open."""
    if opened.exception() is None:
        host.notify("session/close", {"session": opened.result()["session"]})
