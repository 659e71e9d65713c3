"""The events of an adapter, and the dispatcher that delivers them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import Any, Generic, TypeVar

from .events import Event, ToolResult, ToolUse
from .outcome import Outcome, Usage
from .tools import Tool, ToolCall

OutputT = TypeVar("OutputT")
EventT = TypeVar("EventT")


@dataclass(frozen=True)
class PromptResponse(Generic[OutputT]):
    """The response to a prompt. `output` is a value of the template's output type."""

    prompt_name: str
    text: str | None
    output: OutputT | None
    usage: Usage
    outcome: Outcome[Any] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class AdapterEvent:
    """The base class of all adapter events."""

    prompt_ns: str
    prompt_key: str
    prompt_name: str
    adapter: str
    created_at: datetime = field(default_factory=lambda: datetime.now(timezone.utc))


@dataclass(frozen=True, kw_only=True)
class PromptRendered(AdapterEvent):
    """Dispatched before a prompt is sent."""

    rendered_prompt: str
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ToolInvoked(AdapterEvent):
    """Dispatched when a tool call ends, for the agent's own tools and for the program's functions."""

    name: str
    native_name: str
    call_id: str
    params: Any
    success: bool
    status: str
    output: str | None = None


@dataclass(frozen=True, kw_only=True)
class PromptExecuted(AdapterEvent):
    """Dispatched when a prompt has been answered."""

    result: PromptResponse[Any]
    usage: Usage


class InProcessDispatcher:
    """Calls the handlers in the order of their subscription, on the thread that evaluates the prompt."""

    def __init__(self) -> None:
        self._handlers: list[tuple[type[Any], Callable[[Any], None]]] = []

    def subscribe(self, kind: type[EventT], handler: Callable[[EventT], None]) -> None:
        """Calls `handler` for each event of this class or of a subclass."""
        self._handlers.append((kind, handler))

    def dispatch(self, event: AdapterEvent) -> None:
        """Delivers an event. An exception of a handler ends the evaluation."""
        for kind, handler in list(self._handlers):
            if isinstance(event, kind):
                handler(event)


class ToolCallTracker:
    """Combines a tool call and its result into a `ToolInvoked` event."""

    def __init__(self, event_fields: Mapping[str, Any], bus: InProcessDispatcher) -> None:
        self._event_fields, self._bus = event_fields, bus
        self._open: dict[str, ToolUse] = {}
        #: The arguments of calls of the program's functions, by function name. Other threads add to it.
        self._arguments: dict[str, list[Any]] = {}
        self._lock = threading.Lock()

    def track(self, tool: Tool) -> Tool:
        """Returns the same tool with its arguments recorded, because some agents do not report them."""
        values = {one.name: getattr(tool, one.name) for one in fields(tool)}
        return _TrackedTool(**values, on_call=self._record)

    def _record(self, name: str, arguments: Any) -> None:
        with self._lock:
            self._arguments.setdefault(name, []).append(arguments)

    def _params(self, used: ToolUse) -> Any:
        with self._lock:
            recorded = self._arguments.pop(used.name.rsplit("__", 1)[-1], [])
        # With several concurrent calls of one function, the matching arguments cannot be identified.
        return recorded[0] if used.input is None and len(recorded) == 1 else used.input

    def on_event(self, event: Event) -> None:
        """Processes an event of the run."""
        if isinstance(event, ToolUse):
            # Later events of the same call do not replace the first one.
            self._open.setdefault(event.id, event)
        elif isinstance(event, ToolResult) and (used := self._open.pop(event.tool_use_id, None)) is not None:
            self._bus.dispatch(
                ToolInvoked(
                    **self._event_fields,
                    name=used.name,
                    native_name=used.native_name,
                    call_id=used.id,
                    params=self._params(used),
                    success=not event.is_error,
                    status=event.status,
                    output=event.content,
                )
            )


@dataclass(frozen=True)
class _TrackedTool(Tool):
    on_call: Callable[[str, Any], None] = lambda name, arguments: None

    def arguments(self, given: Any, call: ToolCall) -> dict[str, Any]:
        self.on_call(self.name, given)
        return super().arguments(given, call)
