"""The synchronous client: one `agentline host` behind it, for any number of threads."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, TimeoutError as NotYet
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, TypeVar, Unpack, overload

from . import _lookups
from ._find import find_binary
from ._going import CANCEL_WAIT_S, Going, good
from ._lookups import AgentInfo, Capabilities, LoadedSession, Lookup, PoolStatus, SavedSession, SearchResult
from ._order import Ear, Order, order, told
from ._wire import Host
from .errors import AgentlineError
from .events import Event, Finished
from .outcome import Outcome
from .settings import EventCallback, Path, PoolSettings, RunOptions, RunSettings

T = TypeVar("T")

#: The version of the protocol that is spoken.
PROTOCOL = 1
#: A lock cannot be interrupted by Ctrl-C on Windows, so the wait wakes up for it.
WAKE_S = 0.2 if os.name == "nt" else None


class Stream(Going[T], Iterator[Event]):
    """The events of a run, the last one `Finished`. Whoever leaves its `with` block early stops the run."""

    def __init__(self, host: Host, order: Order, method: str = "run", ear: Ear | None = None) -> None:
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        super().__init__(host, order, method, attach(host, order, ear, self._events.put))
        # The answer comes after the last event, from the same thread.
        events, run, ear = self._events, order.run, self._ear

        def end(_: Future[Any]) -> None:
            host.forget(run)
            ear.end()
            events.put(None)

        self._future.add_done_callback(end)

    def __iter__(self) -> Stream[T]:
        return self

    def __next__(self) -> Event:
        if self._over:
            raise StopIteration
        event = take(self._events)
        if event is not None:
            return event
        self._over = True
        return Finished(type="outcome", outcome=self._settle(self._future.result()))

    def outcome(self) -> Outcome[T]:
        """What the run came to, whatever that is; waits for its end. Events that were not taken are passed over."""
        for _ in self:
            pass
        return self._outcome if self._outcome is not None else self._settle(self._future.result())

    def result(self) -> Outcome[T]:
        """The outcome of a run that has an answer; `RunFailed` for any other."""
        return good(self.outcome())

    def close(self) -> None:
        """Stops the run if it still goes on, and waits until nothing of it is left."""
        if not self._over:
            self._over = True
            self.cancel()
            with contextlib.suppress(AgentlineError, NotYet):
                self._future.result(CANCEL_WAIT_S)

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def attach(host: Host, order: Order, ear: Ear | None, put: Any, loop: Any = None) -> Ear:
    """Who hears of a run: its own ear, or for a prompt in a conversation one for the events beside that one."""
    own = Ear(host, order, put, loop)
    if ear is None:
        return own
    ear.going, ear.failure = order.run, None
    return ear


def take(events: queue.SimpleQueue[Event | None]) -> Event | None:
    """The next one; Ctrl-C ends the wait."""
    while True:
        try:
            return events.get(timeout=WAKE_S)
        except queue.Empty:
            continue


class Conversation(Generic[T]):
    """Several prompts in one session of an agent. The options of `Agentline.session` hold for all of them."""

    def __init__(self, client: Agentline, order: Order) -> None:
        self._client, self._order = client, order
        self._ear = Ear(client._host, order)
        future = client._host.request("session/open", order.params)
        try:
            opened = wait(future)
        except BaseException:
            client._host.forget(order.run)
            # Nobody will use it: it is closed as soon as it is open.
            future.add_done_callback(lambda opened: close_late(client._host, opened))
            raise
        self._name = str(opened["session"])
        #: The agent's own id, with which it can be resumed.
        self.session_id = str(opened["session_id"])
        self._closed = False

    def prompt(
        self,
        prompt: str,
        *,
        on_event: EventCallback | None = None,
        raise_on_failure: bool = True,
        messages: bool = False,
        run: str | None = None,
    ) -> Outcome[T]:
        """Says something and waits for the outcome."""
        with self.stream(prompt, messages=messages, run=run, events=on_event is not None) as stream:
            return finish(stream, on_event, raise_on_failure)

    def stream(
        self, prompt: str, *, messages: bool = False, run: str | None = None, events: bool | Sequence[str] = True
    ) -> Stream[T]:
        """Says something and gives the events."""
        name = run or self._client._next_name()
        params = {"session": self._name, "prompt": prompt, "run": name, "messages": messages, "events": events}
        asked = Order(params, name, {}, None, None, self._order.output)
        return Stream(self._client._host, asked, "session/prompt", self._ear)

    def close(self) -> None:
        """Ends the conversation and its agent."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(AgentlineError):
                wait(self._client._host.request("session/close", {"session": self._name}))
            self._client._host.forget(self._order.run)

    def __enter__(self) -> Conversation[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Agentline:
    """A client of agentline. Thread-safe; ends its host, and all that it started, when closed or with the program.

    Args:
        binary: The program; without it AGENTLINE_BIN, else `agentline` on PATH.
        defaults: Keys that hold for every run unless it says otherwise.
        pool: How agents are kept warm.
        max_concurrent: How many runs go on at once, at most.
        max_retries: How often a run is tried again that was refused for load or quota.
        env: The environment of the host, whole; without it that of this program.
        cwd: The folder of the host, from which relative paths start.
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
        self._host, hello = start(binary, env, cwd, defaults, pool, max_concurrent, max_retries)
        self._close_late = weakref.finalize(self, self._host.close)
        self._names = itertools.count(1)
        try:
            self.server: Mapping[str, Any] = wait(hello)
        except BaseException:
            self.close()
            raise

    def _next_name(self) -> str:
        return f"run-{next(self._names)}"

    def _begin(self, prompt: str, output: Any, options: Mapping[str, Any]) -> Stream[Any]:
        return Stream(self._host, order(self._next_name(), prompt, output, options))

    @overload
    def run(
        self,
        prompt: str = "",
        *,
        output: type[T],
        on_event: EventCallback | None = None,
        raise_on_failure: bool = True,
        **options: Unpack[RunOptions],
    ) -> Outcome[T]: ...
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
        """Has an agent answer a prompt, and waits for it.

        Args:
            prompt: What it is asked to do.
            output: What the answer must be: a dataclass, a TypedDict, another type, or a JSON Schema.
            on_event: Called with each event, here, on the caller's thread.
            raise_on_failure: Whether a run without an answer is raised as `RunFailed`.
            options: Every key of a run, tools, callbacks.
        """
        options.setdefault("events", on_event is not None)
        with self._begin(prompt, output, options) as stream:
            return finish(stream, on_event, raise_on_failure)

    @overload
    def stream(self, prompt: str = "", *, output: type[T], **options: Unpack[RunOptions]) -> Stream[T]: ...
    @overload
    def stream(self, prompt: str = "", *, output: Any = None, **options: Unpack[RunOptions]) -> Stream[Any]: ...
    def stream(self, prompt: str = "", *, output: Any = None, **options: Unpack[RunOptions]) -> Stream[Any]:
        """Has an agent answer a prompt, and gives the events as they come, the last one `Finished`."""
        return self._begin(prompt, output, options)

    @overload
    def session(self, *, output: type[T], **options: Unpack[RunOptions]) -> Conversation[T]: ...
    @overload
    def session(self, *, output: Any = None, **options: Unpack[RunOptions]) -> Conversation[Any]: ...
    def session(self, *, output: Any = None, **options: Unpack[RunOptions]) -> Conversation[Any]:
        """Opens a conversation; the options hold for all of its prompts."""
        return Conversation(self, order(self._next_name(), None, output, options))

    def cancel(self, run: str) -> bool:
        """Stops the run of this name with all that it started. Says whether there was one."""
        return self._ask(_lookups.cancel(run))

    def agents(self) -> tuple[AgentInfo, ...]:
        """The agents that a run may name."""
        return self._ask(_lookups.agents())

    def detect(self, agent: str | None = None) -> str | None:
        """Where the program of an agent is; `None` when it is nowhere."""
        return self._ask(_lookups.detect(agent))

    def capabilities(self, agent: str | None = None) -> Capabilities:
        """What an agent can do; live where it tells."""
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
        """What agents saved, newest first."""
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
        """Saved sessions in which all of these words were said."""
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
        """One saved session with its messages; without an id the latest of the project."""
        return self._ask(_lookups.load(session, agent, project, view, order, context))

    def pool_status(self) -> PoolStatus:
        """The warm agents, and the runs that go on and wait."""
        return self._ask(_lookups.pool_status())

    def configure_pool(self, **settings: Unpack[PoolSettings]) -> None:
        """Other settings, for runs that begin later."""
        self._ask(_lookups.configure_pool(settings))

    def prewarm(self, runs: int = 1, **settings: Unpack[RunSettings]) -> int:
        """Makes agents ready for runs with these keys. Says how many are."""
        return self._ask(_lookups.prewarm(runs, {key: told(value) for key, value in settings.items()}))

    def _ask(self, lookup: Lookup[T]) -> T:
        return lookup.read(wait(self._host.request(lookup.method, lookup.params)))

    @property
    def pid(self) -> int:
        """The process of the host."""
        return self._host.pid

    @property
    def is_alive(self) -> bool:
        """Whether the client can still be used."""
        return self._host.is_alive

    def close(self) -> None:
        """Ends the host and all that it started, and waits for it. May be called again."""
        self._close_late()

    def __enter__(self) -> Agentline:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def connect(binary: Path | None = None, **options: Any) -> Agentline:
    """A client, with the arguments of `Agentline`."""
    return Agentline(binary, **options)


def start(
    binary: Path | None,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    defaults: Mapping[str, Any] | None,
    pool: Mapping[str, Any] | None,
    max_concurrent: int | None,
    max_retries: int | None,
) -> tuple[Host, Future[Any]]:
    """Starts a host and greets it."""
    from . import __version__

    variables = dict(os.environ if env is None else env)
    # The program is this one's to find, whatever the agents shall see.
    host = Host([find_binary(binary, {**os.environ, **variables}), "host"], env=variables, cwd=None if cwd is None else os.fspath(cwd))
    hello = {
        "protocol": PROTOCOL,
        "client": {"name": "agentline-python", "version": __version__},
        "defaults": {key: told(value) for key, value in (defaults or {}).items()},
        "pool": pool or {},
        "max_concurrent": max_concurrent,
        "max_retries": max_retries,
    }
    try:
        return host, host.greet(hello)
    except BaseException:
        host.close()
        raise


def wait(future: Future[Any]) -> Any:
    """The answer; Ctrl-C ends the wait."""
    while True:
        try:
            return future.result(WAKE_S)
        except NotYet:
            if future.done():
                raise
            time.sleep(0)


def finish(stream: Stream[T], on_event: EventCallback | None, raise_on_failure: bool) -> Outcome[T]:
    """Follows a run to its end."""
    for event in stream:
        if on_event is not None:
            on_event(event)
    return stream.result() if raise_on_failure else stream.outcome()


def close_late(host: Host, opened: Future[Any]) -> None:
    """Closes a conversation that nobody waited for."""
    if opened.exception() is None:
        host.notify("session/close", {"session": opened.result()["session"]})
