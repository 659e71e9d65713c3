"""A run as it was asked for: its params for the host, and who answers the host's questions about it."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from ._schema import Output, Unfit
from ._wire import Host, Reply
from .errors import Problem, UsageError
from .events import Event, read_event, read_retry
from .settings import Answer, Deny, PermissionAsk
from .tools import Tool, ToolCall, gather

log = logging.getLogger("agentline")



@dataclasses.dataclass
class Order:
    """What is sent, and what stays here."""

    params: dict[str, Any]
    run: str
    tools: dict[str, Tool]
    permission: Callable[..., Any] | None
    check: Callable[..., Any] | None
    output: Output[Any] | None


def order(run: str, prompt: str | None, output: Any, options: Mapping[str, Any]) -> Order:
    """Reads what a program gave for a run. What is wrong with it is an error before anything is sent."""
    given = dict(options)
    params: dict[str, Any] = {"run": str(given.pop("run", None) or run)}
    if prompt is not None:
        params["prompt"] = prompt
    tools = gather(given.pop("tools", None) or ())
    if tools:
        params["tools"] = [one.spec() for one in tools.values()]
    permission, check = given.pop("permission", None), given.pop("check", None)
    params["ask_permission"] = permission is not None
    params["check"] = check is not None
    for name, callback in (("permission", permission), ("check", check)):
        if callback is not None and not callable(callback):
            raise wrong(name, f"`{name}` must be a function, got {type(callback).__name__}")
    if (seconds := given.pop("answer_timeout", None)) is not None:
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if not isinstance(seconds, (int, float)):
            raise wrong("answer_timeout", f"`answer_timeout` must be a number of seconds, got {seconds!r}", "write a number such as `60`")
        params["answer_timeout_ms"] = int(seconds * 1000)
    wanted = None
    if output is not None:
        try:
            wanted = Output.of(output)
        except Unfit as why:
            message = f"`output`: {why}"
            raise UsageError(message, (Problem("output", str(why), "give a dataclass, a TypedDict or a schema"),)) from why
        params["output_schema"] = wanted.schema
    extra = given.pop("extra", None) or {}
    if not isinstance(extra, Mapping):
        raise wrong("extra", f"`extra` must be a dict of keys, got {type(extra).__name__}")
    params.update({key: told(value) for key, value in extra.items()})
    params.update({key: told(value) for key, value in given.items() if value is not None})
    return Order(params, params["run"], tools, permission, check, wanted)


def wrong(key: str, message: str, hint: str | None = None) -> UsageError:
    """An option that cannot be what it is."""
    return UsageError(message, (Problem(key, message, hint),))


def told(value: Any) -> Any:
    """A value of a key as the host reads it."""
    if isinstance(value, timedelta):
        return f"{max(0, round(value.total_seconds() * 1000))}ms"
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.astimezone()
        return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


class Ear:
    """Hears what the host says about a run: passes events on, and has its questions answered by the program's functions.

    A function that is `async` runs on the loop of an asynchronous client, else on one of its own; any other runs on a
    thread of its own, so that it may take its time.
    """

    def __init__(
        self,
        host: Host,
        order: Order,
        take: Callable[[Event], None] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._host, self._order, self._take, self._loop = host, order, take, loop
        self._lock = threading.Lock()
        self._calls: dict[int, Callable[[], object]] = {}
        #: The run that is stopped when the check fails: of a conversation the prompt that goes on.
        self.going = order.run
        #: What the program's own check raised; the run is over with it.
        self.failure: BaseException | None = None
        host.listen(order.run, self)

    def told(self, method: str, params: Mapping[str, Any]) -> None:
        """A notification."""
        if method == "tool/cancel":
            with self._lock:
                stop = self._calls.pop(int(params.get("call", 0)), None)
            if stop is not None:
                stop()
        elif self._take is not None and method in ("run/event", "run/retry"):
            self._take(read_event(params) if method == "run/event" else read_retry(params))

    def end(self) -> None:
        """The run is over: nobody wants what its tools still work at."""
        with self._lock:
            calls, self._calls = list(self._calls.values()), {}
        for stop in calls:
            stop()

    def asked(self, method: str, params: Mapping[str, Any], reply: Reply) -> None:
        """A question of the host."""
        if method == "tool/call":
            self._call_tool(params, reply)
        elif method == "permission/ask" and self._order.permission is not None:
            self._ask_permission(self._order.permission, params, reply)
        elif method == "check" and self._order.check is not None:
            self._ask_check(self._order.check, params, reply)
        else:
            reply.error(f"nobody answers `{method}` for this run")

    def _call_tool(self, params: Mapping[str, Any], reply: Reply) -> None:
        name, number = str(params.get("tool")), int(params.get("call", 0))
        tool = self._order.tools.get(name)
        if tool is None:
            reply.result({"output": f"unknown tool `{name}`", "is_error": True})
            return
        call = ToolCall(run=self._order.run, number=number, tool=name)

        def give(value: Any, error: BaseException | None) -> None:
            with self._lock:
                self._calls.pop(number, None)
            if error is None:
                reply.result({"output": value, "is_error": False})
            elif isinstance(error, Unfit):
                reply.result({"output": str(error), "is_error": True})
            else:
                log.debug("the tool `%s` failed", name, exc_info=error)
                reply.result({"output": f"{type(error).__name__}: {error}", "is_error": True})

        with self._lock:
            self._calls[number] = call.cancelled.set
        stop = self._run(lambda: tool.function(**tool.arguments(params.get("input"), call)), tool.function, give)

        def give_up() -> None:
            call.cancelled.set()
            stop()

        with self._lock:
            if number in self._calls:
                self._calls[number] = give_up

    def _ask_permission(self, callback: Callable[..., Any], params: Mapping[str, Any], reply: Reply) -> None:
        ask = read_ask(params)

        def give(value: Any, error: BaseException | None) -> None:
            if error is not None:
                log.error("the permission callback failed; the tool is refused", exc_info=error)
                reply.result({"decision": "deny", "reason": f"the permission callback failed: {type(error).__name__}: {error}"})
            elif value is True:
                reply.result({"decision": "allow"})
            else:
                reason = {"reason": value.reason} if isinstance(value, Deny) else {}
                reply.result({"decision": "deny", **reason})

        self._run(lambda: callback(ask), callback, give)

    def _ask_check(self, callback: Callable[..., Any], params: Mapping[str, Any], reply: Reply) -> None:
        answer = Answer(
            text=str(params.get("text") or ""),
            output=params.get("output"),
            working_dir=str(params.get("working_dir") or ""),
            run=self._order.run,
        )

        def give(value: Any, error: BaseException | None) -> None:
            if error is not None:
                # Nobody can say any more whether it is complete: the run is stopped, and its caller gets the exception.
                self.failure = error
                self._host.notify("cancel", {"run": self.going})
                reply.error(f"{type(error).__name__}: {error}")
            elif value is None or value is True:
                reply.result({"done": True})
            else:
                reply.result({"done": False, "message": value if isinstance(value, str) and value else None})

        self._run(lambda: callback(answer), callback, give)

    def _run(
        self,
        work: Callable[[], Any],
        function: Callable[..., Any],
        give: Callable[[Any, BaseException | None], None],
    ) -> Callable[[], object]:
        """Runs a function of the program and gives what it came to, once. What it returns asks it to stop."""
        loop = self._loop
        if loop is not None and not loop.is_closed() and is_async(function):

            async def on_loop() -> None:
                try:
                    value = await work()
                except BaseException as error:
                    give(None, error)
                    if not isinstance(error, Exception):
                        raise
                else:
                    give(value, None)

            return asyncio.run_coroutine_threadsafe(on_loop(), loop).cancel

        def on_thread() -> None:
            try:
                value = work()
                if inspect.isawaitable(value):
                    value = asyncio.run(_wait(value))
            except BaseException as error:
                give(None, error)
            else:
                give(value, None)

        threading.Thread(target=on_thread, name="agentline-call", daemon=True).start()
        return lambda: None


async def _wait(value: Any) -> Any:
    return await value


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call of it must be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))


def read_ask(params: Mapping[str, Any]) -> PermissionAsk:
    """The question of a `permission/ask`."""
    data = params.get("ask")
    data = data if isinstance(data, Mapping) else {}
    known = {one.name for one in dataclasses.fields(PermissionAsk)} - {"raw", "run"}
    named = {name: value for name, value in data.items() if name in known and value is not None}
    for name in ("paths", "diffs"):
        named[name] = tuple(named.get(name, ()))
    named.setdefault("tool", "")
    return PermissionAsk(**named, run=str(params.get("run", "")), raw=data)
