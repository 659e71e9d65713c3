"""What happens in a run, one class a kind. A kind that is not known is an `Event` itself, with everything in `raw`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened, with its place in the run."""

    type: str
    seq: int = 0
    at_ms: int = 0
    #: How many pieces were joined into this one because the program read slowly.
    joined: int = 1
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    """The agent is up and has begun."""

    agent: str = ""
    agent_version: str | None = None
    model: str | None = None
    session_id: str | None = None
    surface: str | None = None


@dataclass(frozen=True, kw_only=True)
class Text(Event):
    """A piece of the answer, as it is written."""

    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Thinking(Event):
    """A piece of reasoning."""

    text: str = ""


@dataclass(frozen=True, kw_only=True)
class ToolUse(Event):
    """The model wants a tool. It may still be refused."""

    id: str = ""
    name: str = ""
    native_name: str = ""
    input: Any = None


@dataclass(frozen=True, kw_only=True)
class ToolResult(Event):
    """A tool call ended; each `ToolUse` has exactly one."""

    tool_use_id: str = ""
    status: str = ""
    content: str | None = None
    is_error: bool = False
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class FileChanged(Event):
    """A file changed, as the disk shows it; these come when the run is over."""

    path: str = ""
    change: str = ""
    source: str = ""
    verified: bool = False


@dataclass(frozen=True, kw_only=True)
class Permission(Event):
    """A question of permission and what was decided."""

    tool: str = ""
    decision: str = ""
    by: str = ""
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Warned(Event):
    """Something that the caller should know."""

    code: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Unreadable(Event):
    """A line that could not be read; the run went on."""

    sample: str = ""
    length: int = 0


@dataclass(frozen=True, kw_only=True)
class Retry(Event):
    """The model's service refused for load or quota; the run is tried again after `wait_ms`."""

    attempt: int = 0
    wait_ms: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Finished(Event):
    """The end of a stream, always last."""

    outcome: Outcome[Any]


KINDS: dict[str, type[Event]] = {
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
    """The event of a `run/event` notification."""
    data = params.get("event")
    data = data if isinstance(data, Mapping) else {}
    kind = KINDS.get(str(data.get("type")), Event)
    known = kind.__dataclass_fields__.keys() - {"raw", "joined"}
    named = {name: value for name, value in data.items() if name in known and value is not None}
    named.setdefault("type", "")
    return kind(**named, joined=params.get("joined") or 1, raw=data)


def read_retry(params: Mapping[str, Any]) -> Retry:
    """The event of a `run/retry` notification."""
    return Retry(
        type="retry",
        attempt=int(params.get("attempt", 0)),
        wait_ms=int(params.get("wait_ms", 0)),
        reason=str(params.get("reason", "")),
        raw=params,
    )
