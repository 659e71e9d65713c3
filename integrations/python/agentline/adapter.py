"""An adapter for typed prompts over ACP: dataclasses in, a typed answer out, with tools, budgets, deadlines and events.

    @dataclass(frozen=True)
    class CodeReview:
        summary: str
        issues: list[str]
        score: int

    template = PromptTemplate[CodeReview](
        ns="demo",
        key="review",
        sections=(MarkdownSection(title="Task", key="task", template="Review the code changes in ${folder}."),),
    )
    with GeminiACPAdapter(client_config=GeminiACPClientConfig(cwd="/absolute/path/to/workspace")) as adapter:
        response = adapter.evaluate(Prompt(template).bind(Params(folder="src")))
        review: CodeReview | None = response.output

`evaluate` also takes prompts, sessions, deadlines and budgets of WINK (`weakincentives`).
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path as FilePath
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from ._adapter_config import (
    ACP_ADAPTER_NAME,
    CLAUDE_ACP_ADAPTER_NAME,
    CODEX_ACP_ADAPTER_NAME,
    GEMINI_ACP_ADAPTER_NAME,
    OPENCODE_ACP_ADAPTER_NAME,
    ACPAdapterConfig,
    ACPClientConfig,
    ACPSessionState,
    ClaudeACPAdapterConfig,
    ClaudeACPClientConfig,
    CodexACPAdapterConfig,
    CodexACPClientConfig,
    GeminiACPAdapterConfig,
    GeminiACPClientConfig,
    McpServerConfig,
    OpenCodeACPAdapterConfig,
    OpenCodeACPClientConfig,
    agent_settings,
    build_env,
    env_settings,
    server_settings,
)
from ._adapter_errors import PromptEvaluationError
from ._adapter_events import (
    AdapterEvent,
    DispatchResult,
    InProcessDispatcher,
    PromptExecuted,
    PromptRendered,
    PromptResponse,
    RenderedTools,
    Session,
    ThoughtEmitted,
    ToolCallResult,
    ToolInvoked,
    ToolSchema,
)
from ._budget import Budget, BudgetTracker, Deadline
from ._evaluation import Evaluation
from ._evaluation_run import EvaluationRun, ModelInfo, list_models
from ._prompts import Filesystem, HostFilesystem, MarkdownSection, Prompt, PromptTemplate
from ._transcript import ACPClient, TranscriptEntry
from .client import Agentline
from .errors import AgentlineError
from .settings import CheckCallback, Path, PermissionCallback

log = logging.getLogger("agentline")

OutputT = TypeVar("OutputT")


class ACPAdapter:
    """Evaluates prompts with an agent that speaks ACP. All evaluations share one host and its warm agents.

    Subclasses may override `_adapter_name`, `_agent_spawn_args`, `_prepare_execution_env`, `_validate_model`,
    `_configure_session`, `_handle_mode_error` and `_detect_empty_response`.
    """

    #: The classes of the configurations.
    adapter_config_class: ClassVar[type[ACPAdapterConfig]] = ACPAdapterConfig
    client_config_class: ClassVar[type[ACPClientConfig]] = ACPClientConfig
    #: The name of the adapter in events.
    name: ClassVar[str] = ACP_ADAPTER_NAME

    def __init__(
        self,
        *,
        adapter_config: ACPAdapterConfig | None = None,
        client_config: ACPClientConfig | None = None,
        client: Agentline | None = None,
        binary: Path | None = None,
        host_env: Mapping[str, str] | None = None,
    ) -> None:
        self._adapter_config = adapter_config or self.adapter_config_class()
        self._client_config = client_config or self.client_config_class()
        self._owns_client = client is None
        self._client = client
        self._binary, self._host_env = binary, host_env
        self._lock = threading.Lock()
        self._models: list[ModelInfo] = []

    @property
    def adapter_config(self) -> ACPAdapterConfig:
        """How prompts are sent."""
        return self._adapter_config

    @property
    def client_config(self) -> ACPClientConfig:
        """How the agent is started."""
        return self._client_config

    @property
    def adapter_name(self) -> str:
        """The name of the adapter in events."""
        return self._adapter_name()

    @property
    def tool_server(self) -> str:
        """The name of the MCP server with the tools of a prompt."""
        return self._adapter_config.tool_server or "agentline"

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Any = None,
        deadline: Deadline | datetime | None = None,
        budget: Budget | None = None,
        budget_tracker: BudgetTracker | None = None,
        heartbeat: Any = None,
        run_context: Any = None,
        events: InProcessDispatcher | None = None,
        permission: PermissionCallback | None = None,
        check: CheckCallback | None = None,
        attachments: Sequence[Path | Mapping[str, str]] | None = None,
        resume: ACPSessionState | str | None = None,
    ) -> PromptResponse[OutputT]:
        """Sends a prompt to the agent and waits for the answer. Every failure is a `PromptEvaluationError`.

        Args:
            prompt: The prompt, with its tools and the type of its answer.
            session: Its `dispatcher` receives the events, and its `session_id` is in them.
            deadline: When the evaluation must finish. The earlier of this and the budget's deadline applies.
            budget: The limits of this evaluation.
            budget_tracker: Limits that several evaluations share.
            heartbeat: Its `beat()` is called with each event of the agent.
            run_context: Passed on in each event.
            events: Another dispatcher that receives the events.
            permission: Decides tool calls that no rule decides. Overrides `permission_mode`.
            check: Decides after each answer whether the task is complete. If not, the agent is prompted again, at most
                `max_rounds` times; the last answer then counts.
            attachments: Files that are sent with the prompt.
            resume: The session of an earlier evaluation (`PromptResponse.session_state`), which is continued.
        """
        name = prompt.name or f"{prompt.ns}:{prompt.key}"
        tracker = budget_tracker or (BudgetTracker(budget) if budget else None)
        ends = [Deadline.of(one) for one in (deadline, tracker.budget.deadline if tracker else None)]
        end = min((one for one in ends if one is not None), key=lambda one: one.expires_at, default=None)
        if end is not None and end.is_expired:
            raise PromptEvaluationError("Deadline expired before ACP invocation", prompt_name=name, phase="request")
        extra = () if events is None else (events,)
        # A deadline of WINK is passed on as it is, because WINK's tools know more of its methods.
        own = end if deadline is None or isinstance(deadline, datetime) else deadline
        evaluation = Evaluation(self, name, session, extra, own, tracker, heartbeat, run_context)
        options: dict[str, Any] = {"permission": permission, "check": check, "attachments": attachments, "deadline": end}
        options["resume"] = resume.session_id if isinstance(resume, ACPSessionState) else resume
        if permission is not None:
            options["permission_mode"] = "default"
        run = EvaluationRun(self, evaluation, options)
        try:
            return run.evaluate(prompt)
        except PromptEvaluationError as exc:
            exc.prompt_name = exc.prompt_name or name
            exc.transcript = run.transcript()
            raise
        except Exception as exc:
            if run.is_control_flow(exc):
                raise
            phase, hint = getattr(exc, "phase", None) or "request", getattr(exc, "hint", None)
            message = exc.message if isinstance(exc, AgentlineError) else f"{type(exc).__name__}: {exc}"
            error = PromptEvaluationError(f"ACP execution failed: {message}", prompt_name=name, phase=phase, hint=hint)
            error.transcript = run.transcript()
            raise error from exc

    def close(self) -> None:
        """Stops the host, unless the client was passed to the constructor."""
        with self._lock:
            if self._owns_client and self._client is not None:
                self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # The override points.

    def _adapter_name(self) -> str:
        """Returns the name of the adapter in events."""
        return self.name

    def _agent_spawn_args(self) -> tuple[str, ...]:
        """Returns the arguments of the agent's program. A subclass may add some, or replace them all. agentline itself
        passes what the configuration says, in the form that the version of the program understands."""
        return self._configured_args()

    def _prepare_execution_env(self, *, rendered: Any, effective_cwd: str) -> tuple[dict[str, str] | None, Callable[[], None]]:
        """Returns the complete environment of the agent (`None` inherits it) and a function that is called after the
        evaluation."""
        return build_env(self._client_config.env, self._host_env), lambda: None

    def _validate_model(self, model_id: str, available_models: Sequence[Any]) -> None:
        """Raises an error if the model cannot be used. If a subclass overrides it, it is called before each run with the
        models that the agent lists; agentline then starts the agent once more to ask for them. In any case
        `model_validation` applies too."""

    async def _configure_session(self, conn: Any, session_id: str) -> None:
        """Sets the model or the mode of the session: `await conn.set_session_mode(session_id=…, mode_id=…)`. Called
        before the run, so `session_id` is empty. `model_id` and `mode_id` of the configuration need no call."""

    def _handle_mode_error(self, error: Exception) -> None:
        """Called if the agent refuses the mode. The run continues unless this raises an error."""
        log.warning("the agent refused the mode: %s", error)

    def _detect_empty_response(self, client: ACPClient, prompt_resp: Any) -> None:
        """Raises an error if an answer without text is not acceptable. `prompt_resp` is the outcome of the run."""

    # What an evaluation uses.

    def _configured_args(self) -> tuple[str, ...]:
        """Returns the arguments that stand for the configuration."""
        return self._client_config.agent_args

    def _final_args(self) -> tuple[str, ...]:
        """Returns `agent_args` with what a subclass adds, or the arguments with which it replaces them."""
        args, configured = self._agent_spawn_args(), self._configured_args()
        is_extended = args[: len(configured)] == configured
        return (*self._client_config.agent_args, *args[len(configured) :]) if is_extended else args

    def _resolve_cwd(self, prompt: Any) -> tuple[str, str | None, Any]:
        """Returns the workspace, the temporary directory to remove afterwards, and the prompt with a file system."""
        cwd = None if self._client_config.cwd is None else os.fspath(self._client_config.cwd)
        filesystem, temporary = prompt.filesystem(), None
        if filesystem is not None:
            root = getattr(filesystem, "root", None)
            return cwd or (root if isinstance(root, str) else str(FilePath.cwd().resolve())), None, prompt
        if cwd is None:
            cwd = temporary = tempfile.mkdtemp(prefix="agentline-acp-")
        if isinstance(prompt, Prompt):
            if not prompt.resources.is_entered:
                prompt = prompt.bind(resources={Filesystem: HostFilesystem(cwd)})
        elif getattr(prompt, "_resource_context", None) is None:
            from ._wink import bind_filesystem

            prompt = bind_filesystem(prompt, cwd)
        return cwd, temporary, prompt

    def _connected(self) -> Agentline:
        with self._lock:
            # Replace a client whose host has exited: programs keep adapters for days.
            if self._client is None or (self._owns_client and not self._client.is_alive):
                self._client = Agentline(self._binary, env=self._host_env)
            return self._client

    def _settings(self) -> dict[str, Any]:
        """Returns the settings of a run that come from the configuration."""
        config, client = self._adapter_config, self._client_config
        return {
            **agent_settings(client, self._final_args()),
            "surface": "acp",
            "startup_timeout": client.startup_timeout_s,
            "permission_mode": getattr(config, "approval_mode", None) or client.permission_mode,
            "sandbox": getattr(config, "sandbox", None) or None,
            "sandbox_profile": getattr(config, "sandbox_profile", None),
            "allow_file_reads": client.allow_file_reads,
            "allow_file_writes": client.allow_file_writes,
            "mcp_servers": server_settings(client.mcp_servers) or None,
            "model": config.model_id,
            "model_validation": config.model_validation,
            "mode_id": config.mode_id,
            "quiet_period_ms": config.quiet_period_ms,
            "emit_thoughts": config.emit_thought_chunks,
            "repair_turns": config.repair_turns,
            "max_rounds": config.max_rounds,
            "timeout": config.timeout_s,
            "tool_server": config.tool_server,
        }

    def _overrides(self, method: str) -> bool:
        """Returns whether a subclass overrides an override point."""
        return getattr(type(self), method) is not getattr(ACPAdapter, method)

    def _listed_models(self, client: Agentline, agent: str) -> Sequence[ModelInfo]:
        """Returns the models that the agent lists. It is asked once."""
        with self._lock:
            self._models = self._models or list_models(client, agent)
            return self._models


class _KnownAgentAdapter(ACPAdapter):
    """An adapter for an agent that always has something to say, so an answer without text is an error."""

    #: The name of the agent in errors.
    title: ClassVar[str]

    def _detect_empty_response(self, client: ACPClient, prompt_resp: Any) -> None:
        if not client.message_chunks:
            message = f"{self.title} returned an empty response. Check the model and the sign-in."
            raise PromptEvaluationError(message, prompt_name="", phase="response")


class GeminiACPAdapter(_KnownAgentAdapter):
    """Evaluates prompts with Gemini CLI. An answer without text is an error."""

    title = "Gemini"
    name = GEMINI_ACP_ADAPTER_NAME
    adapter_config_class = GeminiACPAdapterConfig
    client_config_class = GeminiACPClientConfig

    def _configured_args(self) -> tuple[str, ...]:
        config = self._adapter_config
        args = list(self._client_config.agent_args)
        args += ["--model", config.model_id] if config.model_id else []
        if isinstance(config, GeminiACPAdapterConfig):
            args += ["--approval-mode", config.approval_mode] if config.approval_mode else []
            args += ["--sandbox"] if config.sandbox else []
        return tuple(args)

    def _prepare_execution_env(self, *, rendered: Any, effective_cwd: str) -> tuple[dict[str, str] | None, Callable[[], None]]:
        profile = getattr(self._adapter_config, "sandbox_profile", None)
        own = {**(self._client_config.env or {}), **({"SEATBELT_PROFILE": profile} if profile else {})}
        return build_env(own, self._host_env), lambda: None


class OpenCodeACPAdapter(_KnownAgentAdapter):
    """Evaluates prompts with OpenCode. An answer without text is an error, and so is an unknown model, unless
    `model_validation` is `warn`."""

    title = "OpenCode"
    name = OPENCODE_ACP_ADAPTER_NAME
    adapter_config_class = OpenCodeACPAdapterConfig
    client_config_class = OpenCodeACPClientConfig

    def _validate_model(self, model_id: str, available_models: Sequence[Any]) -> None:
        known = [getattr(one, "model_id", None) for one in available_models]
        if known and model_id not in known and self._adapter_config.model_validation == "strict":
            message = f"Model '{model_id}' not found in available models: {known}"
            raise PromptEvaluationError(message, prompt_name="", phase="request")


class ClaudeACPAdapter(_KnownAgentAdapter):
    """Evaluates prompts with Claude Code. An answer without text is an error."""

    title = "Claude Code"
    name = CLAUDE_ACP_ADAPTER_NAME
    adapter_config_class = ClaudeACPAdapterConfig
    client_config_class = ClaudeACPClientConfig


class CodexACPAdapter(_KnownAgentAdapter):
    """Evaluates prompts with Codex. An answer without text is an error."""

    title = "Codex"
    name = CODEX_ACP_ADAPTER_NAME
    adapter_config_class = CodexACPAdapterConfig
    client_config_class = CodexACPClientConfig


__all__ = [
    "ACP_ADAPTER_NAME",
    "CLAUDE_ACP_ADAPTER_NAME",
    "CODEX_ACP_ADAPTER_NAME",
    "GEMINI_ACP_ADAPTER_NAME",
    "OPENCODE_ACP_ADAPTER_NAME",
    "ACPAdapter",
    "ACPAdapterConfig",
    "ACPClient",
    "ACPClientConfig",
    "ACPSessionState",
    "AdapterEvent",
    "Budget",
    "BudgetTracker",
    "ClaudeACPAdapter",
    "ClaudeACPAdapterConfig",
    "ClaudeACPClientConfig",
    "CodexACPAdapter",
    "CodexACPAdapterConfig",
    "CodexACPClientConfig",
    "Deadline",
    "DispatchResult",
    "Filesystem",
    "GeminiACPAdapter",
    "GeminiACPAdapterConfig",
    "GeminiACPClientConfig",
    "HostFilesystem",
    "InProcessDispatcher",
    "MarkdownSection",
    "McpServerConfig",
    "ModelInfo",
    "OpenCodeACPAdapter",
    "OpenCodeACPAdapterConfig",
    "OpenCodeACPClientConfig",
    "Prompt",
    "PromptEvaluationError",
    "PromptExecuted",
    "PromptRendered",
    "PromptResponse",
    "PromptTemplate",
    "RenderedTools",
    "Session",
    "ThoughtEmitted",
    "ToolCallResult",
    "ToolInvoked",
    "ToolSchema",
    "TranscriptEntry",
    "build_env",
]
