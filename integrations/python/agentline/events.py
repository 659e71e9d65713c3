"""The events of a run, one class per type. An event of an unknown type is a plain `Event` with all its data in `raw`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .outcome import Outcome, Usage, read_usage


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
    """The first event of each attempt. If the agent did not start, only what is known without it is set."""

    #: The version of the format of events.
    schema: str = ""
    run_id: str = ""
    agent: str = ""
    agent_version: str | None = None
    model: str | None = None
    session_id: str | None = None
    surface: str | None = None
    cwd: str = ""


@dataclass(frozen=True, kw_only=True)
class Text(Event):
    """A part of the answer."""

    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Thinking(Event):
    """A part of the model's reasoning."""

    text: str = ""


@dataclass(frozen=True)
class ToolLocation:
    """A file that a tool call works on."""

    path: str
    line: int | None = None


@dataclass(frozen=True)
class Diff:
    """A change to a file: its content, or the part of it that changes. `old` is `None` for a new file."""

    path: str
    old: str | None
    new: str


@dataclass(frozen=True, kw_only=True)
class ToolUse(Event):
    """The model requested a tool call, which may still be denied."""

    id: str = ""
    name: str = ""
    native_name: str = ""
    input: Any = None
    #: The arguments as the agent sent them.
    raw_input: Any = None
    #: The id of the call that started the sub-agent which makes this one, if the agent says so.
    parent_tool_use_id: str | None = None
    #: The agent's title for the call.
    title: str | None = None
    locations: tuple[ToolLocation, ...] = ()
    #: The changes that the call proposes.
    diffs: tuple[Diff, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ToolOutput(Event):
    """A piece of the output of a running tool, where the agent sends it. The `ToolResult` has the complete output."""

    tool_use_id: str = ""
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class ToolResult(Event):
    """A tool call ended. Each `ToolUse` has exactly one result."""

    tool_use_id: str = ""
    status: str = ""
    content: str | None = None
    is_error: bool = False
    reason: str | None = None
    #: The title and the files, if they differ from those of the `ToolUse`.
    title: str | None = None
    locations: tuple[ToolLocation, ...] = ()
    #: The output as the agent sent it, where it is more than text.
    raw_output: Any = None
    #: The changes that the tool reports.
    diffs: tuple[Diff, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FileChanged(Event):
    """A file on disk changed. These events arrive at the end of the run."""

    path: str = ""
    change: str = ""
    source: str = ""
    tool_use_id: str | None = None
    verified: bool = False
    #: The change as a unified diff, with the setting `diffs` and if the old content is known.
    diff: str | None = None


@dataclass(frozen=True, kw_only=True)
class UsageUpdated(Event):
    """The token counts so far, and how full the context window is."""

    usage: Usage = field(default_factory=Usage)


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
    """An attempt failed. The run is tried again after `wait_ms`, with another model if `model` is set."""

    attempt: int = 0
    wait_ms: int = 0
    reason: str = ""
    model: str | None = None


@dataclass(frozen=True, kw_only=True)
class Finished(Event):
    """The last event of a stream."""

    outcome: Outcome[Any]


EVENT_TYPES: dict[str, type[Event]] = {
    "started": Started,
    "text": Text,
    "thinking": Thinking,
    "tool_use": ToolUse,
    "tool_output": ToolOutput,
    "tool_result": ToolResult,
    "file_change": FileChanged,
    "usage": UsageUpdated,
    "permission": Permission,
    "retry": Retry,
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
    if kind is UsageUpdated:
        named["usage"] = read_usage(data)
    if "locations" in named:
        named["locations"] = tuple(ToolLocation(at.get("path", ""), at.get("line")) for at in named["locations"])
    if "diffs" in named:
        named["diffs"] = tuple(Diff(d.get("path", ""), d.get("old"), d.get("new", "")) for d in named["diffs"])
    return kind(**named, joined=params.get("joined") or 1, raw=data)
