"""The outcome of a run. Fields that this package does not know are available in `raw`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

from ._schema import Output

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Verdict = Literal[
    "done",
    "done_with_denials",
    "failed",
    "not_installed",
    "not_authenticated",
    "empty",
    "limit_reached",
    "timed_out",
    "rate_limited",
    "invalid_output",
    "untrusted",
    "cancelled",
]
#: The verdicts of runs that succeeded.
SUCCESSFUL_VERDICTS = frozenset({"done", "done_with_denials"})


@dataclass(frozen=True)
class RunError:
    """Why a run failed: `kind` and `phase` for programs, `message` and `hint` for people."""

    kind: str
    phase: str
    message: str
    hint: str | None = None
    stderr_tail: str = ""
    retryable: bool = False
    retry_after_ms: int | None = None
    #: The agent's own name for its error.
    agent_type: str | None = None
    #: The last lines of the agent's stdout that are not part of its protocol.
    stdout_tail: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class FileChange:
    """A file that changed. `verified` says whether the change was found on disk."""

    path: str
    change: str
    source: str
    tool: str | None = None
    tool_use_id: str | None = None
    verified: bool = False
    added: int | None = None
    removed: int | None = None
    #: The change as a unified diff, with the setting `diffs` and if the old content is known.
    diff: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Denial:
    """A tool call that was denied, or a tool that was not offered."""

    tool: str
    native_tool: str = ""
    tool_use_id: str = ""
    reason: str = ""
    rule: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Notice:
    """A warning for the caller."""

    code: str
    message: str
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class ContextWindow:
    """How full the model's context window is, in tokens."""

    used: int
    size: int | None = None


@dataclass(frozen=True)
class Usage:
    """Token counts. `None` means that the agent did not report the value."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    thought_tokens: int | None = None
    total_tokens: int | None = None
    requests: int | None = None
    by_model: Mapping[str, Any] = field(default_factory=dict)
    #: `None` if the agent does not report it.
    context: ContextWindow | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Outcome(Generic[T_co]):
    """The outcome of a run. `value` is the answer, converted to the type given by `output=`. It is `None` if the run did
    not succeed or had no `output=`."""

    verdict: Verdict
    text: str
    value: T_co = cast(Any, None)
    run_id: str = ""
    agent: str = ""
    agent_version: str | None = None
    surface: str | None = None
    model: str | None = None
    session_id: str | None = None
    cwd: str = ""
    name: str | None = None
    error: RunError | None = None
    output: Any = None
    files: tuple[FileChange, ...] = ()
    denied: tuple[Denial, ...] = ()
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    turns: int = 0
    tool_calls: int = 0
    stop_reason: str | None = None
    duration_ms: int = 0
    first_event_ms: int | None = None
    warnings: tuple[Notice, ...] = ()
    unreadable_lines: int = 0
    agent_exit_code: int | None = None
    stderr_tail: str = ""
    tape: str | None = None
    attempts: int = 1
    #: How the cache was used, if it was enabled: `hit`, `key`, `stored_at`, `reason`.
    cache: Mapping[str, Any] | None = None
    messages: tuple[Mapping[str, Any], ...] | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether the run succeeded. Tool calls may have been denied (`denied`)."""
        return self.verdict in SUCCESSFUL_VERDICTS

    @property
    def workspace(self) -> Path:
        """The working directory of the agent."""
        return Path(self.cwd)

    @staticmethod
    def of(data: Mapping[str, Any], output: Output[T] | None = None) -> Outcome[T]:
        """Reads an outcome from the JSON of the host."""
        named = {name: data[name] for name in COPIED_FIELDS if data.get(name) is not None}
        messages = data.get("messages")
        usage = data.get("usage") or {}
        value = data.get("output")
        named.update(
            verdict=cast(Verdict, str(data.get("verdict", "failed"))),
            text=str(data.get("text") or ""),
            output=value,
            error=_read_row(RunError, data["error"]) if data.get("error") else None,
            files=_read_rows(FileChange, data.get("files")),
            denied=_read_rows(Denial, data.get("denied")),
            warnings=_read_rows(Notice, data.get("warnings")),
            usage=read_usage(usage),
            messages=tuple(messages) if messages is not None else None,
            raw=data,
        )
        if output is not None and named["verdict"] in SUCCESSFUL_VERDICTS and value is not None:
            named["value"] = output.read(value)
        return Outcome(**named)


#: Fields that are copied unchanged.
COPIED_FIELDS = (
    "run_id agent agent_version surface model session_id cwd name cost_usd turns tool_calls stop_reason duration_ms "
    "first_event_ms unreadable_lines agent_exit_code stderr_tail tape attempts cache"
).split()

#: The fields that have no default.
REQUIRED: dict[type[Any], tuple[str, ...]] = {
    RunError: ("kind", "phase", "message"),
    FileChange: ("path", "change", "source"),
    Denial: ("tool",),
    Notice: ("code", "message"),
}

R = TypeVar("R", RunError, FileChange, Denial, Notice, Usage)


def _read_row(row: type[R], data: Mapping[str, Any]) -> R:
    """Reads a row of an outcome. A missing required field becomes an empty string, so that reading never fails."""
    known = row.__dataclass_fields__
    named = {name: value for name, value in data.items() if name in known and name != "raw" and value is not None}
    for name in REQUIRED.get(row, ()):
        if name not in named:
            named[name] = ""
    return row(**named, raw=data)


def read_usage(data: Mapping[str, Any]) -> Usage:
    """Reads token counts."""
    usage = _read_row(Usage, {name: value for name, value in data.items() if name != "context"})
    context = data.get("context")
    window = ContextWindow(context.get("used", 0), context.get("size")) if isinstance(context, Mapping) else None
    return replace(usage, context=window, raw=data)


def _read_rows(row: type[R], data: Any) -> tuple[R, ...]:
    return tuple(_read_row(row, one) for one in data or () if isinstance(one, Mapping))
