"""The events of a run, one class per type. An event of an unknown type is a plain `Event` with all its data in `raw`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class Event:
    """The base class of all events. `seq` and `at_ms` give its position in the run."""

    type: str
    seq: int = 0
    at_ms: int = 0
    #: How many events were merged into this one because the program read slowly.
    joined: int = 1
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    """The agent has started."""

    agent: str = ""
    agent_version: str | None = None
    model: str | None = None
    session_id: str | None = None
    surface: str | None = None


@dataclass(frozen=True, kw_only=True)
class Text(Event):
    """A part of the answer."""

    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Thinking(Event):
    """A part of the model's reasoning."""

    text: str = ""


@dataclass(frozen=True, kw_only=True)
class ToolUse(Event):
    """The model requested a tool call, which may still be denied."""

    id: str = ""
    name: str = ""
    native_name: str = ""
    input: Any = None


@dataclass(frozen=True, kw_only=True)
class ToolResult(Event):
    """A tool call ended. Each `ToolUse` has exactly one result."""

    tool_use_id: str = ""
    status: str = ""
    content: str | None = None
    is_error: bool = False
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class FileChanged(Event):
    """A file on disk changed. These events arrive at the end of the run."""

    path: str = ""
    change: str = ""
    source: str = ""
    verified: bool = False


@dataclass(frozen=True, kw_only=True)
class Permission(Event):
    """A permission request and its decision."""

    tool: str = ""
    decision: str = ""
    by: str = ""
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Warned(Event):
    """A warning for the caller."""

    code: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Unreadable(Event):
    """A line of the agent's output that could not be parsed. The run continues."""

    sample: str = ""
    length: int = 0


@dataclass(frozen=True, kw_only=True)
class Retry(Event):
    """The model's service rejected the run for load or quota. The run is retried after `wait_ms`."""

    attempt: int = 0
    wait_ms: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Finished(Event):
    """The last event of a stream."""

    outcome: Outcome[Any]


EVENT_TYPES: dict[str, type[Event]] = {
    "started": Started,
    "text": Text,
    "thinking": Thinking,
    "tool_use": ToolUse,
    "tool_result": ToolResult,
    "file_change": FileChanged,
    "permission": Permission,
    "warning": Warned,
    "unreadable": Unreadable,
}


def read_event(params: Mapping[str, Any]) -> Event:
    """Reads a `run/event` notification."""
    data = params.get("event")
    data = data if isinstance(data, Mapping) else {}
    kind = EVENT_TYPES.get(str(data.get("type")), Event)
    known = kind.__dataclass_fields__.keys() - {"raw", "joined"}
    named = {name: value for name, value in data.items() if name in known and value is not None}
    named.setdefault("type", "")
    return kind(**named, joined=params.get("joined") or 1, raw=data)


def read_retry(params: Mapping[str, Any]) -> Retry:
    """Reads a `run/retry` notification."""
    return Retry(
        type="retry",
        attempt=int(params.get("attempt", 0)),
        wait_ms=int(params.get("wait_ms", 0)),
        reason=str(params.get("reason", "")),
        raw=params,
    )
