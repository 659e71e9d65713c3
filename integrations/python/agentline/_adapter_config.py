"""The configuration of an adapter: which agent is started and how, and how prompts are sent to it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Literal, Union

from .settings import Path

#: One MCP server, as in ACP: `name` and either `command`, `args` and `env`, or `url` and `headers`.
McpServerConfig = dict[str, Any]

ACP_ADAPTER_NAME: Final = "acp"
GEMINI_ACP_ADAPTER_NAME: Final = "gemini_acp"
OPENCODE_ACP_ADAPTER_NAME: Final = "opencode_acp"
CLAUDE_ACP_ADAPTER_NAME: Final = "claude_acp"
CODEX_ACP_ADAPTER_NAME: Final = "codex_acp"


@dataclass(frozen=True)
class ACPClientConfig:
    """How the agent is started. `cwd` is the workspace and must be absolute; the default is the root of the prompt's
    file system, else a temporary directory.

    The agent is `agent` if it is set: an agent of agentline or of its configuration. Otherwise it is the program
    `agent_bin`, which speaks ACP when it is started with `agent_args`.
    """

    agent_bin: Path = "opencode"
    agent_args: tuple[str, ...] = ("acp",)
    cwd: Path | None = None
    env: Mapping[str, str] | None = None
    startup_timeout_s: float = 30.0
    permission_mode: Literal["auto", "deny", "prompt"] = "auto"
    allow_file_reads: bool = False
    allow_file_writes: bool = False
    mcp_servers: Union[Sequence[McpServerConfig], Mapping[str, Any]] = ()
    agent: str = ""

    #: The agent that a class of this configuration stands for.
    own_agent: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if self.cwd is not None and not os.path.isabs(self.cwd):
            raise ValueError(f"cwd must be absolute, got: {os.fspath(self.cwd)!r}")


@dataclass(frozen=True)
class GeminiACPClientConfig(ACPClientConfig):
    """How Gemini CLI is started."""

    agent_bin: Path = "gemini"
    agent_args: tuple[str, ...] = ("--experimental-acp",)
    own_agent: ClassVar[str] = GEMINI_ACP_ADAPTER_NAME


@dataclass(frozen=True)
class OpenCodeACPClientConfig(ACPClientConfig):
    """How OpenCode is started."""

    own_agent: ClassVar[str] = "opencode"


@dataclass(frozen=True)
class ClaudeACPClientConfig(ACPClientConfig):
    """How the ACP adapter of Claude Code is started."""

    agent_bin: Path = "claude"
    agent_args: tuple[str, ...] = ()
    own_agent: ClassVar[str] = "claude"


@dataclass(frozen=True)
class CodexACPClientConfig(ACPClientConfig):
    """How the ACP adapter of Codex is started."""

    agent_bin: Path = "codex"
    agent_args: tuple[str, ...] = ()
    own_agent: ClassVar[str] = "codex"


@dataclass(frozen=True)
class ACPAdapterConfig:
    """How prompts are sent.

    With `model_validation="strict"`, a model that the agent does not list is an error; an agent that lists no models
    accepts any. With `emit_thought_chunks`, thoughts are events and precede the text of the response.
    """

    mode_id: str | None = None
    model_id: str | None = None
    quiet_period_ms: int = 500
    emit_thought_chunks: bool = False
    model_validation: Literal["warn", "strict"] = "warn"
    repair_turns: int = 2
    max_rounds: int = 10
    timeout_s: float | None = None
    #: The name of the MCP server with the tools of the prompt.
    tool_server: str | None = None


@dataclass(frozen=True)
class GeminiACPAdapterConfig(ACPAdapterConfig):
    """How prompts are sent to Gemini CLI. `approval_mode` replaces the `permission_mode` of the client.

    Gemini CLI cannot combine `sandbox` with ACP, so agentline refuses it.
    """

    approval_mode: str | None = None
    sandbox: bool = False
    #: The value of SEATBELT_PROFILE on macOS.
    sandbox_profile: str | None = None


@dataclass(frozen=True)
class OpenCodeACPAdapterConfig(ACPAdapterConfig):
    """How prompts are sent to OpenCode, which answers nothing if it does not know the model."""

    model_validation: Literal["warn", "strict"] = "strict"


@dataclass(frozen=True)
class ClaudeACPAdapterConfig(ACPAdapterConfig):
    """How prompts are sent to Claude Code."""


@dataclass(frozen=True)
class CodexACPAdapterConfig(ACPAdapterConfig):
    """How prompts are sent to Codex."""


@dataclass(frozen=True)
class ACPSessionState:
    """The agent's session of an evaluation, for `evaluate(resume=…)`."""

    session_id: str
    cwd: str
    workspace_fingerprint: str | None = None


def agent_settings(config: ACPClientConfig, args: tuple[str, ...]) -> dict[str, Any]:
    """Returns the settings of a run that select the agent. `args` are the final arguments of the program."""
    defaults = {field.name: field.default for field in fields(config)}
    program = None if config.agent_bin == defaults["agent_bin"] else config.agent_bin
    own_args = None if tuple(args) == defaults["agent_args"] else list(args)
    agent = config.agent or config.own_agent
    if agent:
        return {"agent": agent, "agent_bin": program, "agent_args": own_args}
    if program is None and own_args is None:
        return {"agent": "opencode"}
    # An unknown program, which must speak ACP.
    command = {"command": os.fspath(config.agent_bin), "args": list(args)}
    return {"agent": ACP_ADAPTER_NAME, "agents": {ACP_ADAPTER_NAME: command}}


def server_settings(servers: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """Returns `mcp_servers` by name, from a mapping or from the list that ACP's `session/new` takes."""
    if isinstance(servers, Mapping):
        return dict(servers)
    named: dict[str, Any] = {}
    for number, server in enumerate(servers, 1):
        row = dict(server) if isinstance(server, Mapping) else {key: value for key, value in vars(server).items() if value is not None}
        name = str(row.pop("name", None) or f"server-{number}")
        if row.get("type") == "stdio":
            del row["type"]
        for key in ("env", "headers"):
            if isinstance(row.get(key), (list, tuple)):
                row[key] = dict(_pair(one) for one in row[key])
        named[name] = row
    return named


def _pair(entry: Any) -> tuple[str, str]:
    """Reads `{"name": …, "value": …}`, as a mapping or as an object."""
    row = entry if isinstance(entry, Mapping) else vars(entry)
    return str(row["name"]), str(row["value"])


def build_env(env: Mapping[str, str] | None, base: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """Returns the environment of an agent: `base` (the environment of this program) with `env`. `None` inherits it."""
    return {**(os.environ if base is None else base), **env} if env else None


def env_settings(env: Mapping[str, str] | None, base: Mapping[str, str], own: Mapping[str, str] | None) -> dict[str, Any]:
    """Returns the settings of a run that give the agent this environment. `base` is the environment of the host, and
    `own` has the variables of the configuration."""
    if env is None:
        return {"pass_env": ["*"]}
    changed = {name: value for name, value in env.items() if base.get(name) != value or name in (own or {})}
    passed = ["*"] if base.keys() <= env.keys() else sorted(name for name in env if name not in changed)
    return {"pass_env": passed, "env": changed or None}
