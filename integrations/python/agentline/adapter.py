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
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any, ClassVar, Final, Literal, TypeVar

from ._adapter_events import (
    AdapterEvent,
    InProcessDispatcher,
    PromptExecuted,
    PromptRendered,
    PromptResponse,
    ToolInvoked,
    ToolCallTracker,
)
from ._budget import BUDGET_KEYS, Budget, BudgetTracker, Deadline
from ._prompts import MarkdownSection, Prompt, PromptTemplate, Rendered
from .client import Agentline
from .errors import AgentlineError, HostDied, InvalidOutput, RunFailed, UsageError
from .outcome import Outcome
from .settings import CheckCallback, Path, PermissionCallback

OutputT = TypeVar("OutputT")

GEMINI_ACP_ADAPTER_NAME: Final = "gemini_acp"
#: How many characters of an invalid answer an error contains.
RAW_TEXT_LENGTH = 2000


class PromptEvaluationError(AgentlineError):
    """A prompt was not answered. `phase` is `request`, `response`, `tool` or `budget`."""

    def __init__(
        self,
        message: str,
        *,
        prompt_name: str,
        phase: str,
        hint: str | None = None,
        outcome: Outcome[Any] | None = None,
        raw_text: str | None = None,
    ) -> None:
        verdict = outcome.verdict if outcome else None
        super().__init__(message, hint=hint, verdict=verdict, phase=phase, outcome=outcome)
        self.prompt_name = prompt_name
        self.raw_text = raw_text


@dataclass(frozen=True)
class ACPClientConfig:
    """How the agent is started. `cwd` is the workspace and must be absolute; the default is a temporary directory."""

    agent: str = ""
    agent_bin: Path | None = None
    agent_args: tuple[str, ...] | None = None
    cwd: Path | None = None
    env: Mapping[str, str] | None = None
    startup_timeout_s: float = 30.0
    permission_mode: Literal["auto", "deny", "prompt"] = "auto"
    allow_file_reads: bool = False
    allow_file_writes: bool = False
    mcp_servers: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.cwd is not None and not os.path.isabs(self.cwd):
            raise ValueError(f"cwd must be absolute, got: {os.fspath(self.cwd)!r}")


@dataclass(frozen=True)
class GeminiACPClientConfig(ACPClientConfig):
    """How Gemini CLI is started."""

    agent: str = GEMINI_ACP_ADAPTER_NAME


@dataclass(frozen=True)
class ACPAdapterConfig:
    """How prompts are sent. With `model_validation="strict"`, a model that the agent does not list is an error."""

    model_id: str | None = None
    mode_id: str | None = None
    model_validation: Literal["warn", "strict"] = "strict"
    quiet_period_ms: int = 500
    emit_thought_chunks: bool = False
    repair_turns: int = 2
    max_rounds: int = 10
    timeout_s: float | None = None


@dataclass(frozen=True)
class GeminiACPAdapterConfig(ACPAdapterConfig):
    """How prompts are sent to Gemini CLI."""


class ACPAdapter:
    """Evaluates prompts with an agent that speaks ACP. All evaluations share one host and its warm agents."""

    name: ClassVar[str] = "acp"

    def __init__(
        self,
        *,
        adapter_config: ACPAdapterConfig | None = None,
        client_config: ACPClientConfig | None = None,
        client: Agentline | None = None,
        binary: Path | None = None,
        host_env: Mapping[str, str] | None = None,
    ) -> None:
        self.adapter_config = adapter_config or ACPAdapterConfig()
        self.client_config = client_config or ACPClientConfig()
        self._owns_client = client is None
        self._client = client
        self._binary, self._host_env = binary, host_env
        self._lock = threading.Lock()

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        events: InProcessDispatcher | None = None,
        deadline: Deadline | datetime | None = None,
        budget: Budget | None = None,
        budget_tracker: BudgetTracker | None = None,
        permission: PermissionCallback | None = None,
        check: CheckCallback | None = None,
    ) -> PromptResponse[OutputT]:
        """Sends a prompt to the agent and waits for the answer.

        Args:
            prompt: The prompt, with its tools and the type of its answer.
            events: Receives `PromptRendered`, `ToolInvoked` and `PromptExecuted`.
            deadline: When the evaluation must finish. The earlier of this and the budget's deadline applies.
            budget: The limits of this evaluation.
            budget_tracker: Limits that several evaluations share.
            permission: Decides tool calls that no rule decides. Overrides `permission_mode`.
            check: Decides after each answer whether the task is complete. If not, the agent is prompted again.
        """
        name = prompt.name
        tracker = budget_tracker or (BudgetTracker(budget) if budget else None)
        if isinstance(deadline, datetime):
            deadline = Deadline(deadline if deadline.tzinfo else deadline.astimezone())
        ends = [one for one in (deadline, tracker.budget.deadline if tracker else None) if one is not None]
        end = min(ends, key=lambda one: one.expires_at, default=None)
        if end is not None and end.is_expired:
            raise PromptEvaluationError("Deadline expired before ACP invocation", prompt_name=name, phase="request")
        try:
            rendered = prompt.render()
        except (KeyError, ValueError, TypeError) as exc:
            raise PromptEvaluationError(f"cannot render the prompt: {exc}", prompt_name=name, phase="request") from exc
        event_fields: dict[str, Any] = {
            "prompt_ns": prompt.ns,
            "prompt_key": prompt.key,
            "prompt_name": name,
            "adapter": self.name,
        }
        bus = events or InProcessDispatcher()
        bus.dispatch(PromptRendered(**event_fields, rendered_prompt=rendered.text, tools=tuple(rendered.tools)))
        settings = self._settings(end, tracker, name) | {"permission": permission, "check": check}
        if permission is not None:
            settings["permission_mode"] = "default"
        tool_calls = ToolCallTracker(event_fields, bus)
        settings["tools"] = [tool_calls.track(one) for one in rendered.tools.values()]
        outcome = self._run(prompt, rendered, settings, tool_calls, tracker)
        response: PromptResponse[OutputT] = PromptResponse(
            prompt_name=name,
            text=outcome.text or None,
            output=outcome.value,
            usage=outcome.usage,
            outcome=outcome,
        )
        bus.dispatch(PromptExecuted(**event_fields, result=response, usage=outcome.usage))
        return response

    def close(self) -> None:
        """Stops the host, unless the client was passed to the constructor."""
        with self._lock:
            if self._owns_client and self._client is not None:
                self._client.close()

    def __enter__(self) -> ACPAdapter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _connected(self) -> Agentline:
        with self._lock:
            if self._client is None:
                self._client = Agentline(self._binary, env=self._host_env)
            return self._client

    def _settings(self, end: Deadline | None, tracker: BudgetTracker | None, prompt_name: str) -> dict[str, Any]:
        """Returns the settings of the run."""
        config, client = self.adapter_config, self.client_config
        keys: dict[str, Any] = {
            "agent": client.agent or None,
            "surface": "acp",
            "agent_bin": client.agent_bin,
            "agent_args": client.agent_args,
            "working_dir": client.cwd,
            "env": client.env,
            "pass_env": ["*"],
            "startup_timeout": client.startup_timeout_s,
            "permission_mode": client.permission_mode,
            "allow_file_reads": client.allow_file_reads,
            "allow_file_writes": client.allow_file_writes,
            "mcp_servers": client.mcp_servers or None,
            "model": config.model_id,
            "model_validation": config.model_validation,
            "mode_id": config.mode_id,
            "quiet_period_ms": config.quiet_period_ms,
            "emit_thoughts": config.emit_thought_chunks,
            "repair_turns": config.repair_turns,
            "max_rounds": config.max_rounds,
            "timeout": config.timeout_s,
            "deadline": end.expires_at if end else None,
            "name": prompt_name,
        }
        if tracker is not None:
            left = tracker.left()
            used_up = sorted(name for name, rest in left.items() if rest <= 0)
            if used_up:
                message = f"the budget is exhausted: {', '.join(used_up)}"
                raise PromptEvaluationError(message, prompt_name=prompt_name, phase="budget")
            for limit, key in BUDGET_KEYS.items():
                if limit in left:
                    keys[key] = left[limit] if key == "max_cost" else int(left[limit])
        return {key: value for key, value in keys.items() if value is not None}

    def _run(
        self,
        prompt: Prompt[Any],
        rendered: Rendered,
        settings: dict[str, Any],
        tool_calls: ToolCallTracker,
        tracker: BudgetTracker | None,
    ) -> Outcome[Any]:
        name = prompt.name
        client = self._connected()
        with contextlib.ExitStack() as stack:
            if "working_dir" not in settings:
                settings["working_dir"] = stack.enter_context(tempfile.TemporaryDirectory(prefix="agentline-acp-"))
            try:
                outcome = client.run(
                    rendered.text, output=prompt.output_type, on_event=tool_calls.on_event, raise_on_failure=False, **settings
                )
            except UsageError as exc:
                raise PromptEvaluationError(exc.message, prompt_name=name, phase="request", hint=exc.hint) from exc
            except InvalidOutput as exc:
                outcome = exc.outcome
            except HostDied as exc:
                raise PromptEvaluationError(exc.message, prompt_name=name, phase="response", hint=exc.hint) from exc
        if tracker is not None:
            tracker.record(outcome)
        if not outcome.ok:
            failure = RunFailed.of(outcome)
            raise PromptEvaluationError(
                failure.message,
                prompt_name=name,
                phase=failure.phase or "response",
                hint=failure.hint,
                outcome=outcome,
                raw_text=outcome.text[:RAW_TEXT_LENGTH],
            ) from failure
        if tracker is not None and tracker.passed():
            message = f"the run exceeded the budget: {', '.join(tracker.passed())}"
            raise PromptEvaluationError(message, prompt_name=name, phase="budget", outcome=outcome, raw_text=outcome.text)
        return outcome


class GeminiACPAdapter(ACPAdapter):
    """Evaluates prompts with Gemini CLI."""

    name: ClassVar[str] = GEMINI_ACP_ADAPTER_NAME

    def __init__(
        self,
        *,
        adapter_config: GeminiACPAdapterConfig | None = None,
        client_config: GeminiACPClientConfig | None = None,
        client: Agentline | None = None,
        binary: Path | None = None,
        host_env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            adapter_config=adapter_config or GeminiACPAdapterConfig(),
            client_config=client_config or GeminiACPClientConfig(),
            client=client,
            binary=binary,
            host_env=host_env,
        )


__all__ = [
    "GEMINI_ACP_ADAPTER_NAME",
    "ACPAdapter",
    "ACPAdapterConfig",
    "ACPClientConfig",
    "AdapterEvent",
    "Budget",
    "BudgetTracker",
    "Deadline",
    "GeminiACPAdapter",
    "GeminiACPAdapterConfig",
    "GeminiACPClientConfig",
    "InProcessDispatcher",
    "MarkdownSection",
    "Prompt",
    "PromptEvaluationError",
    "PromptExecuted",
    "PromptRendered",
    "PromptResponse",
    "PromptTemplate",
    "ToolInvoked",
]
