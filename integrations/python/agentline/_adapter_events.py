"""What an adapter tells while it works, and who hears it."""

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
    """The answer to a prompt; `output` is a value of the template's type."""

    prompt_name: str
    text: str | None
    output: OutputT | None
    usage: Usage
    outcome: Outcome[Any] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class AdapterEvent:
    """Something that an adapter did."""

    prompt_ns: str
    prompt_key: str
    prompt_name: str
    adapter: str
    created_at: datetime = field(default_factory=lambda: datetime.now(timezone.utc))


@dataclass(frozen=True, kw_only=True)
class PromptRendered(AdapterEvent):
    """A prompt is about to be sent."""

    rendered_prompt: str
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ToolInvoked(AdapterEvent):
    """A tool call of the agent ended, be it one of its own or one of the program's functions."""

    name: str
    native_name: str
    call_id: str
    params: Any
    success: bool
    status: str
    output: str | None = None


@dataclass(frozen=True, kw_only=True)
class PromptExecuted(AdapterEvent):
    """A prompt was answered."""

    result: PromptResponse[Any]
    usage: Usage


class InProcessDispatcher:
    """Hands events to those who want them, in the order in which they asked, on the thread of the evaluation."""

    def __init__(self) -> None:
        self._handlers: list[tuple[type[Any], Callable[[Any], None]]] = []

    def subscribe(self, kind: type[EventT], handler: Callable[[EventT], None]) -> None:
        """Has events of this class, and of those below it, handed to a function."""
        self._handlers.append((kind, handler))

    def dispatch(self, event: AdapterEvent) -> None:
        """Hands an event on. What a handler raises ends the evaluation."""
        for kind, handler in list(self._handlers):
            if isinstance(event, kind):
                handler(event)


class ToolWatch:
    """Makes `ToolInvoked` of a call and its result."""

    def __init__(self, about: Mapping[str, Any], bus: InProcessDispatcher) -> None:
        self._about, self._bus = about, bus
        self._open: dict[str, ToolUse] = {}
        #: What our own functions were given, by name; they are called from other threads.
        self._given: dict[str, list[Any]] = {}
        self._lock = threading.Lock()

    def watch(self, tool: Tool) -> Tool:
        """The same tool, whose arguments are known here: some agents do not tell them."""
        values = {one.name: getattr(tool, one.name) for one in fields(tool)}
        return _Watched(**values, heard=self._heard)

    def _heard(self, name: str, given: Any) -> None:
        with self._lock:
            self._given.setdefault(name, []).append(given)

    def _params(self, used: ToolUse) -> Any:
        with self._lock:
            given = self._given.pop(used.name.rsplit("__", 1)[-1], [])
        # Of several calls at once nobody can say which one this is.
        return given[0] if used.input is None and len(given) == 1 else used.input

    def take(self, event: Event) -> None:
        """Takes an event of the run."""
        if isinstance(event, ToolUse):
            # The first title stands.
            self._open.setdefault(event.id, event)
        elif isinstance(event, ToolResult) and (used := self._open.pop(event.tool_use_id, None)) is not None:
            self._bus.dispatch(
                ToolInvoked(
                    **self._about,
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
class _Watched(Tool):
    heard: Callable[[str, Any], None] = lambda name, given: None

    def arguments(self, given: Any, call: ToolCall) -> dict[str, Any]:
        self.heard(self.name, given)
        return super().arguments(given, call)
