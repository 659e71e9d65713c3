"""The settings and options of a run. docs/configuration.md describes the settings."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, Union

from .events import Event
from .tools import Tool

Path = Union[str, os.PathLike[str]]
Time = Union[float, str, timedelta]
#: The permission modes, with the names that other tools have for them.
PermissionMode = Literal[
    "default",
    "accept-edits",
    "bypass",
    "plan",
    "auto",
    "deny",
    "prompt",
    "acceptEdits",
    "bypassPermissions",
    "suggest",
    "auto_edit",
    "full_auto",
    "yolo",
]
Surface = Literal["auto", "json", "stream-json", "acp", "app-server", "serve"]


class RunSettings(TypedDict, total=False):
    """The configuration keys of a run. Also the type of a client's `defaults`."""

    agent: str
    surface: Surface
    model: str
    model_validation: Literal["warn", "strict"]
    prompt_file: Path
    attachments: Sequence[Path | Mapping[str, str]]
    system_prompt: str
    system_mode: Literal["append", "replace"]
    name: str
    working_dir: Path
    include_directories: Sequence[Path]
    permission_mode: PermissionMode
    allow: Sequence[str]
    deny: Sequence[str]
    ask: Sequence[str]
    trust: Literal["run", "full", "no"]
    sandbox: bool | str
    sandbox_profile: str
    mcp_servers: Mapping[str, Any] | Sequence[str]
    mcp_settings_path: Path
    output_schema: Path | Mapping[str, Any]
    repair_turns: int
    extract_json: bool
    until: str
    max_rounds: int
    resume: str
    session_id: str
    timeout: Time
    idle_timeout: Time
    tool_timeout: Time
    startup_timeout: Time
    deadline: datetime | str | float
    retry_patience: Time
    retries: int
    fallback_models: Sequence[str]
    retry_after_changes: bool
    quiet_period_ms: int
    max_turns: int
    max_tool_calls: int
    max_tokens: int
    max_output_tokens: int
    max_cost: float
    env: Mapping[str, str]
    pass_env: Sequence[str]
    file_references: bool
    extensions: Sequence[str]
    api_key: str
    google_cloud_project: str
    effort: str
    use_vertex_ai: bool
    diffs: bool
    record: Path
    cache: bool | Mapping[str, Any]
    cache_impure: bool
    cache_max_age: Time
    cache_path: Path
    cache_max_mb: int
    max_line_bytes: int
    agents: Mapping[str, Any]
    prices: Mapping[str, Any]
    prices_file: Path
    supervisor: Path
    isolation: Literal["auto", "namespace", "none"]
    agent_bin: Path
    agent_args: Sequence[str]
    mode_id: str
    emit_thoughts: bool
    allow_file_reads: bool
    allow_file_writes: bool
    authenticate: str


#: Aliases of these keys that the host accepts.
ALIASES = frozenset(
    "model_id cwd approval_mode yolo allowed_tools disable_tools ask_tools timeout_ms idle_timeout_ms tool_timeout_ms "
    "startup_timeout_s startup_timeout_ms retry_patience_ms max_budget_usd emit_thought_chunks apiKey googleCloudProject "
    "useVertexAI prompt".split()
)


@dataclass(frozen=True)
class PermissionAsk:
    """A tool call that needs a decision, for the permission callback."""

    tool: str
    native_tool: str = ""
    title: str = ""
    kind: str = ""
    input: Any = None
    command: str | None = None
    paths: tuple[str, ...] = ()
    diffs: tuple[Mapping[str, Any], ...] = ()
    server: str | None = None
    tool_use_id: str = ""
    run: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Deny:
    """A denial with a reason, which the agent receives and the outcome contains. `False` denies without a reason."""

    reason: str


@dataclass(frozen=True)
class Answer:
    """The agent's answer, for the callback that decides whether the task is complete."""

    text: str
    output: Any
    working_dir: str
    run: str = ""


PermissionAnswer = Union[bool, Deny]
PermissionCallback = Callable[[PermissionAsk], Union[PermissionAnswer, Awaitable[PermissionAnswer]]]
#: `True` or `None`: the task is complete. `False` or a text that says what is missing: the agent is prompted again.
CheckAnswer = Union[bool, str, None]
CheckCallback = Callable[[Answer], Union[CheckAnswer, Awaitable[CheckAnswer]]]


class RunOptions(RunSettings, total=False):
    """The options of a run: its settings, tools and callbacks."""

    #: A name for the run, for `cancel`.
    run: str
    #: Functions that the agent may call, and the name of their MCP server.
    tools: Iterable[Tool | Callable[..., Any]]
    tool_server: str
    #: Decides tool calls that no rule decides.
    permission: PermissionCallback
    #: Decides after each answer whether the task is complete.
    check: CheckCallback
    #: The timeout of `permission` and `check`, in seconds. `permission` then denies, and `check` fails the run.
    answer_timeout: float
    #: The types of the events to receive. The default is all events.
    events: bool | Sequence[str]
    #: Whether the outcome contains the messages of the run, in Claude's format.
    messages: bool
    #: Whether to use a warm agent where possible. The default is `True`.
    warm: bool
    #: How many times a run that was rejected for load or quota is retried. `retries` covers every failure that a retry
    #: can help.
    max_retries: int
    #: Settings that this package does not know.
    extra: Mapping[str, Any]


#: Every name that a run accepts as a keyword.
OPTION_NAMES = RunOptions.__optional_keys__ | ALIASES

EventCallback = Callable[[Event], None]


def is_option(name: str, known: Iterable[str] = OPTION_NAMES) -> bool:
    """Returns whether a name is known, in snake case or camel case."""
    return bool({name, snake_case(name)}.intersection(known))


def nearest(name: str, known: Iterable[str] = OPTION_NAMES) -> str | None:
    """Returns the known name that a name probably misspells."""
    return next(iter(difflib.get_close_matches(snake_case(name), sorted(known), n=1, cutoff=0.75)), None)


def snake_case(key: str) -> str:
    """Converts a key to snake case: `apiKey` and `api-key` become `api_key`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).replace("-", "_").lower()


class PoolSettings(TypedDict, total=False):
    """How agents are kept warm."""

    max_processes: int
    lanes: int
    max_queue: int
    max_sessions: int
    max_memory_mb: int
    max_age_s: int
    idle_s: int
