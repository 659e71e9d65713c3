"""The events of an adapter, the dispatcher that delivers them, and the session that they belong to."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import Any, Generic, Protocol, TypeVar

from ._adapter_config import ACPSessionState
from ._transcript import TranscriptEntry
from .events import Event, Thinking, ToolResult, ToolUse
from .outcome import Outcome, Usage
from .tools import Tool, ToolCall

log = logging.getLogger("agentline")

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
    #: The conversation: prompt, thoughts, tool calls and answers.
    transcript: tuple[TranscriptEntry, ...] = field(default=(), repr=False)

    @property
    def session_state(self) -> ACPSessionState | None:
        """The agent's session, for `evaluate(resume=…)`."""
        outcome = self.outcome
        return ACPSessionState(outcome.session_id, outcome.cwd) if outcome.session_id else None


@dataclass(frozen=True, kw_only=True)
class AdapterEvent:
    """The base class of all adapter events. `session_id` and `run_context` are those of the evaluation."""

    prompt_ns: str
    prompt_key: str
    prompt_name: str
    adapter: str
    session_id: Any = None
    run_context: Any = None
    created_at: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    event_id: uuid.UUID = field(default_factory=uuid.uuid4)


@dataclass(frozen=True, kw_only=True)
class PromptRendered(AdapterEvent):
    """Dispatched before a prompt is sent."""

    rendered_prompt: str
    tools: tuple[str, ...] = ()


@dataclass(frozen=True)
class ToolSchema:
    """A function that the agent may call."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RenderedTools(AdapterEvent):
    """Dispatched after `PromptRendered`, with the functions of the prompt. `render_event_id` is the id of that event."""

    tools: tuple[ToolSchema, ...]
    render_event_id: uuid.UUID


@dataclass(frozen=True, kw_only=True)
class ThoughtEmitted(AdapterEvent):
    """A piece of the model's reasoning. Dispatched only with `emit_thought_chunks`."""

    text: str


@dataclass(frozen=True)
class ToolCallResult:
    """The result of a tool call."""

    success: bool
    message: str
    value: Any = None


@dataclass(frozen=True, kw_only=True)
class ToolInvoked(AdapterEvent):
    """Dispatched when a tool call ends, for the agent's own tools and for the program's functions.

    If the agent does not report the arguments of a call, the event and all later ones are dispatched at the end of the
    run, when the arguments are known from the agent's session.
    """

    name: str
    native_name: str
    call_id: str
    params: Any
    result: ToolCallResult
    success: bool
    status: str
    output: str | None = None
    rendered_output: str = ""


@dataclass(frozen=True, kw_only=True)
class PromptExecuted(AdapterEvent):
    """Dispatched when a prompt has been answered. `usage` is `None` if the agent reported no tokens."""

    result: PromptResponse[Any]
    usage: Usage | None


@dataclass(frozen=True)
class HandlerFailure:
    """A handler that raised an exception."""

    handler: Callable[[Any], None]
    error: Exception


@dataclass(frozen=True)
class DispatchResult:
    """The result of a dispatch: the handlers that were called, and those that failed."""

    event: Any
    handlers_invoked: tuple[Callable[[Any], None], ...] = ()
    errors: tuple[HandlerFailure, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no handler failed."""
        return not self.errors

    def raise_if_errors(self) -> None:
        """Raises an `ExceptionGroup` with the exceptions of the handlers."""
        if self.errors:
            name = type(self.event).__name__
            raise ExceptionGroup(f"handlers of {name} failed", [failure.error for failure in self.errors])


class InProcessDispatcher:
    """Calls the handlers in the order of their subscription, on the thread that evaluates the prompt."""

    def __init__(self) -> None:
        self._handlers: list[tuple[type[Any], Callable[[Any], None]]] = []

    def subscribe(self, kind: type[EventT], handler: Callable[[EventT], None]) -> None:
        """Calls `handler` for each event of this class or of a subclass."""
        self._handlers.append((kind, handler))

    def unsubscribe(self, kind: type[EventT], handler: Callable[[EventT], None]) -> bool:
        """Removes a handler. Returns whether it was subscribed."""
        is_subscribed = (kind, handler) in self._handlers
        if is_subscribed:
            self._handlers.remove((kind, handler))
        return is_subscribed

    def dispatch(self, event: Any) -> DispatchResult:
        """Delivers an event. A handler that raises an exception is logged and does not affect the evaluation."""
        invoked, errors = [], []
        for kind, handler in list(self._handlers):
            if not isinstance(event, kind):
                continue
            invoked.append(handler)
            try:
                handler(event)
            except Exception as exc:
                log.exception("a handler of %s failed", type(event).__name__)
                errors.append(HandlerFailure(handler, exc))
        return DispatchResult(event, tuple(invoked), tuple(errors))


class Session:
    """A series of evaluations whose events go to one dispatcher."""

    def __init__(self, dispatcher: Any = None, *, session_id: uuid.UUID | None = None, tags: Mapping[str, str] | None = None) -> None:
        self.dispatcher: Any = InProcessDispatcher() if dispatcher is None else dispatcher
        self.session_id = session_id or uuid.uuid4()
        self.tags = dict(tags or {})


class EventSink(Protocol):
    """Creates the events of one evaluation."""

    def rendered(self, text: str, tools: Iterable[Tool]) -> None:
        """The prompt was rendered."""

    def thought(self, text: str) -> None:
        """The model reasoned."""

    def tool_invoked(self, call: ToolUse, result: ToolResult, params: Any) -> None:
        """A tool call ended."""

    def executed(self, response: PromptResponse[Any], usage: Usage | None) -> None:
        """The prompt was answered."""


class NativeEvents:
    """Creates the events of this module."""

    def __init__(self, fields: Mapping[str, Any], dispatchers: Iterable[Any]) -> None:
        self._fields, self._dispatchers = dict(fields), list(dispatchers)

    def rendered(self, text: str, tools: Iterable[Tool]) -> None:
        schemas = tuple(ToolSchema(one.name, one.description, one.input_schema) for one in tools)
        event = PromptRendered(**self._fields, rendered_prompt=text, tools=tuple(one.name for one in schemas))
        self._dispatch(event)
        self._dispatch(RenderedTools(**self._fields, tools=schemas, render_event_id=event.event_id))

    def thought(self, text: str) -> None:
        self._dispatch(ThoughtEmitted(**self._fields, text=text))

    def tool_invoked(self, call: ToolUse, result: ToolResult, params: Any) -> None:
        output = result.content
        message = output or f"{call.name} {result.status}"
        self._dispatch(
            ToolInvoked(
                **self._fields,
                name=call.name,
                native_name=call.native_name,
                call_id=call.id,
                params=params,
                result=ToolCallResult(not result.is_error, message, output),
                success=not result.is_error,
                status=result.status,
                output=output,
                rendered_output=output or "",
            )
        )

    def executed(self, response: PromptResponse[Any], usage: Usage | None) -> None:
        self._dispatch(PromptExecuted(**self._fields, result=response, usage=usage))

    def _dispatch(self, event: AdapterEvent) -> None:
        for dispatcher in self._dispatchers:
            dispatch_safely(dispatcher, event)


def dispatch_safely(dispatcher: Any, event: Any) -> None:
    """Dispatches an event. A dispatcher that fails is logged, so that it cannot lose an answer."""
    try:
        result = dispatcher.dispatch(event)
    except Exception:
        log.exception("the dispatcher failed to deliver %s", type(event).__name__)
        return
    if result is not None and not getattr(result, "ok", True):
        log.error("handlers of %s failed", type(event).__name__)


class ToolCallTracker:
    """Combines a tool call and its result into one event, with the arguments."""

    def __init__(self, sink: EventSink, emit_thoughts: bool) -> None:
        self._sink, self._emit_thoughts = sink, emit_thoughts
        self._open: dict[str, ToolUse] = {}
        #: Ended calls that wait for the end of the run: the first one whose arguments the agent has not reported, and all
        #: later ones.
        self._waiting: list[tuple[ToolUse, ToolResult, Any]] = []
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
        if isinstance(event, Thinking) and self._emit_thoughts:
            self._sink.thought(event.text)
        elif isinstance(event, ToolUse):
            # Later events of the same call do not replace the first one, unless it had no arguments.
            known = self._open.setdefault(event.id, event)
            if known.input is None and event.input is not None:
                self._open[event.id] = event
        elif isinstance(event, ToolResult) and (used := self._open.pop(event.tool_use_id, None)) is not None:
            params = self._params(used)
            if params is None or self._waiting:
                self._waiting.append((used, event, params))
            else:
                self._sink.tool_invoked(used, event, params)

    def end(self, inputs: Mapping[str, Any]) -> None:
        """Dispatches the remaining calls, with their arguments by the id of the call."""
        for used, result, params in self._waiting:
            self._sink.tool_invoked(used, result, inputs.get(used.id) if params is None else params)
        self._waiting.clear()


def tool_inputs(messages: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the arguments of the tool calls in the messages of a run, by the id of the call."""
    blocks = (block for message in messages for block in _blocks(message) if block.get("type") == "tool_use")
    return {str(block.get("id")): block.get("input") for block in blocks}


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the content blocks of a message in Claude's format."""
    inner = message.get("message", message)
    content = inner.get("content") if isinstance(inner, Mapping) else None
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []


@dataclass(frozen=True)
class _TrackedTool(Tool):
    on_call: Callable[[str, Any], None] = lambda name, arguments: None

    def arguments(self, given: Any, call: ToolCall) -> dict[str, Any]:
        self.on_call(self.name, given)
        return super().arguments(given, call)
