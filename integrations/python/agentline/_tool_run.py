"""One call to a tool of the program: its policy, its function and its hook, one after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ._schema import ConversionError
from ._wire import Reply
from .settings import Deny
from .tools import StopRun, Tool, ToolCall, ToolReturn

log = logging.getLogger("agentline")

Finish = Callable[[Any, "BaseException | None"], None]
#: Runs a function of the program, passes its result to `Finish` once, and returns a function that cancels it.
RunFunction = Callable[[Callable[[], Any], Callable[..., Any], Finish], Callable[[], object]]


class ToolRun:
    """A call in progress. `over` is called once with the exception that ends the run, or `None`."""

    def __init__(
        self,
        tool: Tool,
        given: Any,
        call: ToolCall,
        run: RunFunction,
        reply: Reply,
        over: Callable[[StopRun | None], None],
    ) -> None:
        self._tool, self._given, self._call = tool, given, call
        self._run, self._reply, self._over = run, reply, over
        #: The arguments of the function, and those of them that the model gave.
        self._arguments: dict[str, Any] = {}
        self._shown: dict[str, Any] = {}
        self._stops: list[Callable[[], object]] = []
        self._output = ToolReturn(None)

    def start(self) -> None:
        """Starts the call."""
        tool = self._tool
        if (policy := tool.policy) is None:
            self._step(lambda: tool.function(**self._read()), tool.function, self._returned)
        else:

            def decide() -> Any:
                self._read()
                return policy(dict(self._shown), self._call)

            self._step(decide, policy, self._decided)

    def cancel(self) -> None:
        """Cancels the call."""
        self._call.cancelled.set()
        for stop in list(self._stops):
            stop()

    def _step(self, work: Callable[[], Any], function: Callable[..., Any], finish: Finish) -> None:
        if self._call.cancelled.is_set():
            return
        stop = self._run(work, function, finish)
        self._stops.append(stop)
        if self._call.cancelled.is_set():
            stop()

    def _read(self) -> dict[str, Any]:
        self._arguments = self._tool.arguments(self._given, self._call)
        self._shown = {name: value for name, value in self._arguments.items() if name != self._tool.call_parameter}
        return self._arguments

    def _decided(self, value: Any, error: BaseException | None) -> None:
        if error is None and (value is True or value is None):
            self._step(lambda: self._tool.function(**self._arguments), self._tool.function, self._returned)
        elif isinstance(error, ConversionError):
            self._finish({"output": str(error), "is_error": True})
        elif error is not None:
            log.error("the policy of the tool `%s` failed; the call is denied", self._tool.name, exc_info=error)
            self._finish({"output": f"the policy of the tool failed: {type(error).__name__}: {error}", "is_error": True})
        else:
            reason = value.reason if isinstance(value, Deny) else "the policy of the tool denies this call"
            self._finish({"output": reason, "is_error": True})

    def _returned(self, value: Any, error: BaseException | None) -> None:
        if isinstance(error, StopRun):
            self._finish({"output": str(error), "stop": True}, error)
            return
        if error is None:
            self._output = ToolReturn(value)
        elif isinstance(error, ConversionError):
            self._output = ToolReturn(str(error), is_error=True)
        else:
            log.debug("the tool `%s` failed", self._tool.name, exc_info=error)
            self._output = ToolReturn(f"{type(error).__name__}: {error}", is_error=True)
        if (after := self._tool.after) is None:
            self._noted(None, None)
        else:
            self._step(lambda: after(self._call, dict(self._shown), self._output), after, self._noted)

    def _noted(self, value: Any, error: BaseException | None) -> None:
        if error is not None:
            log.error("the hook of the tool `%s` failed", self._tool.name, exc_info=error)
        note = value if isinstance(value, str) and value else None
        self._finish({"output": self._output.value, "is_error": self._output.is_error, "note": note})

    def _finish(self, answer: dict[str, Any], stop: StopRun | None = None) -> None:
        self._over(stop)
        self._reply.result(answer)
