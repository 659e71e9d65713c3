"""A run request: its parameters for the host, and the listener that handles the host's messages about the run."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from ._schema import Output, ConversionError
from ._tool_run import ToolRun
from ._wire import Host, Reply
from .errors import Problem, UsageError
from .events import Event, read_event
from .settings import Answer, Deny, PermissionAsk, is_option, nearest
from .tools import StopRun, Tool, ToolCall, collect_tools

log = logging.getLogger("agentline")


@dataclasses.dataclass
class RunRequest:
    """The parameters that are sent to the host, and the functions that stay in this program."""

    params: dict[str, Any]
    run: str
    tools: dict[str, Tool]
    permission: Callable[..., Any] | None
    check: Callable[..., Any] | None
    output: Output[Any] | None


def build_request(run: str, prompt: str | None, output: Any, options: Mapping[str, Any]) -> RunRequest:
    """Builds a request from the options of a run. Raises `UsageError` for invalid options before anything is sent."""
    given = dict(options)
    refuse_unknown(given)
    params: dict[str, Any] = {"run": str(given.pop("run", None) or run)}
    if prompt is not None:
        params["prompt"] = prompt
    tools = collect_tools(given.pop("tools", None) or ())
    if tools:
        params["tools"] = [one.spec() for one in tools.values()]
    permission, check = given.pop("permission", None), given.pop("check", None)
    params["ask_permission"] = permission is not None
    params["check"] = check is not None
    for name, callback in (("permission", permission), ("check", check)):
        if callback is not None and not callable(callback):
            raise option_error(name, f"`{name}` must be a function, got {type(callback).__name__}")
    if (seconds := given.pop("answer_timeout", None)) is not None:
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if not isinstance(seconds, (int, float)):
            raise option_error("answer_timeout", f"`answer_timeout` must be a number of seconds, got {seconds!r}", "write a number such as `60`")
        params["answer_timeout_ms"] = int(seconds * 1000)
    output_spec = None
    if output is not None:
        try:
            output_spec = Output.of(output)
        except ConversionError as exc:
            message = f"`output`: {exc}"
            raise UsageError(message, (Problem("output", str(exc), "pass a dataclass, a TypedDict or a JSON Schema"),)) from exc
        params["output_schema"] = output_spec.schema
    extra = given.pop("extra", None) or {}
    if not isinstance(extra, Mapping):
        raise option_error("extra", f"`extra` must be a dict of keys, got {type(extra).__name__}")
    params.update({key: to_wire(value) for key, value in extra.items()})
    params.update({key: to_wire(value) for key, value in given.items() if value is not None})
    return RunRequest(params, params["run"], tools, permission, check, output_spec)


def refuse_unknown(options: Mapping[str, Any]) -> None:
    """Raises `UsageError` for options that do not exist."""
    problems = []
    for name in options:
        if not is_option(name):
            similar = nearest(name)
            hint = f"did you mean `{similar}`?" if similar else "`extra` takes settings that this package does not know"
            problems.append(Problem(name, "is not a known option", hint))
    if problems:
        raise UsageError("\n".join(str(one) for one in problems), tuple(problems))


def option_error(key: str, message: str, hint: str | None = None) -> UsageError:
    """Returns the error for an invalid option."""
    return UsageError(message, (Problem(key, message, hint),))


def to_wire(value: Any) -> Any:
    """Converts the value of a configuration key to the form that the host accepts."""
    if isinstance(value, timedelta):
        return f"{max(0, round(value.total_seconds() * 1000))}ms"
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.astimezone()
        return aware.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


class RunListener:
    """Handles the messages about a run: passes events on, and answers requests with the program's functions.

    An `async` function runs on the event loop of the asynchronous client; a synchronous client runs it on a new loop.
    All other functions run on a separate thread and may block.
    """

    def __init__(
        self,
        host: Host,
        request: RunRequest,
        take: Callable[[Event], None] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._host, self._run_request, self._take, self._loop = host, request, take, loop
        self._lock = threading.Lock()
        self._calls: dict[int, Callable[[], object]] = {}
        #: The run to cancel if the check raises; in a conversation, the run of the current prompt.
        self.active_run = request.run
        #: The exception of the program's own check or tool, which ended the run.
        self.failure: BaseException | None = None
        host.add_listener(request.run, self)

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Handles a notification."""
        if method == "tool/cancel":
            with self._lock:
                stop = self._calls.pop(int(params.get("call", 0)), None)
            if stop is not None:
                stop()
        elif self._take is not None and method == "run/event":
            self._take(read_event(params))

    def end(self) -> None:
        """Cancels the tool calls that are still running after the end of the run."""
        with self._lock:
            calls, self._calls = list(self._calls.values()), {}
        for stop in calls:
            stop()

    def on_request(self, method: str, params: Mapping[str, Any], reply: Reply) -> None:
        """Handles a request from the host."""
        if method == "tool/call":
            self._call_tool(params, reply)
        elif method == "permission/ask" and self._run_request.permission is not None:
            self._ask_permission(self._run_request.permission, params, reply)
        elif method == "check" and self._run_request.check is not None:
            self._ask_check(self._run_request.check, params, reply)
        else:
            reply.error(f"this run has no handler for `{method}`")

    def _call_tool(self, params: Mapping[str, Any], reply: Reply) -> None:
        name, number = str(params.get("tool")), int(params.get("call", 0))
        tool = self._run_request.tools.get(name)
        if tool is None:
            reply.result({"output": f"unknown tool `{name}`", "is_error": True})
            return
        call = ToolCall(run=self._run_request.run, number=number, tool=name)

        def over(stop: StopRun | None) -> None:
            with self._lock:
                self._calls.pop(number, None)
            self.failure = self.failure or stop

        tool_run = ToolRun(tool, params.get("input"), call, self._run, reply, over)
        with self._lock:
            self._calls[number] = tool_run.cancel
        tool_run.start()

    def _ask_permission(self, callback: Callable[..., Any], params: Mapping[str, Any], reply: Reply) -> None:
        ask = read_ask(params)

        def finish(value: Any, error: BaseException | None) -> None:
            if error is not None:
                log.error("the permission callback failed; the tool call is denied", exc_info=error)
                reply.result({"decision": "deny", "reason": f"the permission callback failed: {type(error).__name__}: {error}"})
            elif value is True:
                reply.result({"decision": "allow"})
            else:
                reason = {"reason": value.reason} if isinstance(value, Deny) else {}
                reply.result({"decision": "deny", **reason})

        self._run(lambda: callback(ask), callback, finish)

    def _ask_check(self, callback: Callable[..., Any], params: Mapping[str, Any], reply: Reply) -> None:
        answer = Answer(
            text=str(params.get("text") or ""),
            output=params.get("output"),
            working_dir=str(params.get("working_dir") or ""),
            run=self._run_request.run,
        )

        def finish(value: Any, error: BaseException | None) -> None:
            if error is not None:
                # The check cannot decide any more: cancel the run and raise the exception in the caller.
                self.failure = error
                self._host.notify("cancel", {"run": self.active_run})
                reply.error(f"{type(error).__name__}: {error}")
            elif value is None or value is True:
                reply.result({"done": True})
            else:
                reply.result({"done": False, "message": value if isinstance(value, str) and value else None})

        self._run(lambda: callback(answer), callback, finish)

    def _run(
        self,
        work: Callable[[], Any],
        function: Callable[..., Any],
        finish: Callable[[Any, BaseException | None], None],
    ) -> Callable[[], object]:
        """Runs a function of the program and passes its result to `finish` once. Returns a function that cancels it."""
        loop = self._loop
        if loop is not None and not loop.is_closed() and is_async(function):

            async def on_loop() -> None:
                try:
                    value = await work()
                except BaseException as error:
                    finish(None, error)
                    if not isinstance(error, Exception):
                        raise
                else:
                    finish(value, None)

            return asyncio.run_coroutine_threadsafe(on_loop(), loop).cancel

        def on_thread() -> None:
            try:
                value = work()
                if inspect.isawaitable(value):
                    value = asyncio.run(_wait(value))
            except BaseException as error:
                finish(None, error)
            else:
                finish(value, None)

        threading.Thread(target=on_thread, name="agentline-call", daemon=True).start()
        return lambda: None


async def _wait(value: Any) -> Any:
    return await value


def is_async(function: Callable[..., Any]) -> bool:
    """Returns whether the result of a call must be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))


def read_ask(params: Mapping[str, Any]) -> PermissionAsk:
    """Reads the parameters of a `permission/ask` request."""
    data = params.get("ask")
    data = data if isinstance(data, Mapping) else {}
    known = {one.name for one in dataclasses.fields(PermissionAsk)} - {"raw", "run"}
    named = {name: value for name, value in data.items() if name in known and value is not None}
    for name in ("paths", "diffs"):
        named[name] = tuple(named.get(name, ()))
    named.setdefault("tool", "")
    return PermissionAsk(**named, run=str(params.get("run", "")), raw=data)
