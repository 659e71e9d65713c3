"""One evaluation of a prompt by an adapter, from rendering to the response."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ._adapter_config import env_settings
from ._adapter_errors import PromptEvaluationError, answer_payload
from ._adapter_events import EventSink, PromptResponse, ToolCallTracker, tool_inputs
from ._budget import BUDGET_KEYS, BudgetTracker, budget_left
from ._evaluation import Evaluation, PreparedPrompt, event_sink, prepare, resources
from ._schema import Output
from ._transcript import ACPClient, TranscriptBuilder, TranscriptEntry
from .client import Agentline
from .errors import AgentlineError, InvalidOutput, RunFailed
from .events import Event, Warned
from .outcome import Outcome, Usage

log = logging.getLogger("agentline")


@dataclass(frozen=True)
class ModelInfo:
    """A model that an agent lists."""

    model_id: str
    name: str = ""


class SessionSettings:
    """Records the model and the mode that `_configure_session` sets."""

    def __init__(self) -> None:
        self.recorded: dict[str, str] = {}

    async def set_session_model(self, *, session_id: str, model_id: str) -> None:
        """Sets the model of the session."""
        self.recorded["model"] = model_id

    async def set_session_mode(self, *, session_id: str, mode_id: str) -> None:
        """Sets the mode of the session."""
        self.recorded["mode_id"] = mode_id


class EvaluationRun:
    """Evaluates one prompt. `options` are settings of the run that the caller of `evaluate` gave."""

    def __init__(self, adapter: Any, evaluation: Evaluation, options: dict[str, Any]) -> None:
        self._adapter, self._evaluation, self._options = adapter, evaluation, options
        self._updates = ACPClient(adapter.client_config)
        self._transcript: TranscriptBuilder | None = None
        self._pending: Exception | None = None

    def transcript(self) -> tuple[TranscriptEntry, ...]:
        """Returns the conversation up to now."""
        return self._transcript.entries() if self._transcript else ()

    def is_control_flow(self, error: Exception) -> bool:
        """Returns whether the prompt asked for this exception, which is not a failure: WINK then renders it again."""
        return error is self._pending or any(one.__name__ == "VisibilityExpansionRequired" for one in type(error).__mro__)

    def evaluate(self, prompt: Any) -> PromptResponse[Any]:
        """Sends the prompt and returns the response."""
        adapter, evaluation = self._adapter, self._evaluation
        try:
            rendered = prompt.render(session=evaluation.session)
        except Exception as exc:
            if self.is_control_flow(exc):
                raise
            raise self._error(f"cannot render the prompt: {exc}", "request") from exc
        if isinstance(skills := getattr(rendered, "skills", ()), tuple) and skills:
            hint = "put the skills into the workspace or the home directory of the agent"
            raise self._error("`skills` of a prompt are not supported", "request", hint=hint)
        with contextlib.ExitStack() as stack:
            cwd, temporary, prompt = adapter._resolve_cwd(prompt)
            if temporary is not None:
                stack.callback(shutil.rmtree, temporary, ignore_errors=True)
            self._updates.workspace_root = cwd
            stack.enter_context(resources(prompt))
            prepared = prepare(prompt, rendered, evaluation)
            self._transcript = TranscriptBuilder(prepared.text)
            sink = event_sink(prompt, evaluation)
            sink.rendered(prepared.text, prepared.tools)
            env, cleanup = adapter._prepare_execution_env(rendered=rendered, effective_cwd=cwd)
            stack.callback(cleanup)
            outcome = self._run(prepared, sink, self._settings(cwd, env, prepared))
        return self._respond(prepared, sink, outcome)

    def _settings(self, cwd: str, env: dict[str, str] | None, prepared: PreparedPrompt) -> dict[str, Any]:
        adapter, tracker, options = self._adapter, self._evaluation.budget_tracker, dict(self._options)
        base = os.environ if adapter._host_env is None else adapter._host_env
        deadline = options.pop("deadline")
        settings: dict[str, Any] = {
            **adapter._settings(),
            **env_settings(env, base, adapter.client_config.env),
            "working_dir": cwd,
            "name": self._evaluation.name,
            "deadline": deadline.expires_at if deadline else None,
            "check": prepared.check,
            **{key: value for key, value in options.items() if value is not None},
        }
        if tracker is not None:
            left = budget_left(tracker)
            used_up = sorted(name for name, rest in left.items() if rest <= 0)
            if used_up:
                raise self._error(f"the budget is exhausted: {', '.join(used_up)}", "budget")
            for limit, key in BUDGET_KEYS.items():
                if limit in left:
                    settings[key] = left[limit] if key == "max_cost" else int(left[limit])
        if adapter._overrides("_configure_session"):
            conn = SessionSettings()
            run_coroutine(adapter._configure_session(conn, ""))
            settings.update(conn.recorded)
        return {key: value for key, value in settings.items() if value is not None}

    def _run(self, prepared: PreparedPrompt, sink: EventSink, settings: dict[str, Any]) -> Outcome[Any]:
        adapter, tracker, transcript = self._adapter, self._evaluation.budget_tracker, self._transcript
        assert transcript is not None
        client: Agentline = adapter._connected()
        if "model" in settings and adapter._overrides("_validate_model"):
            adapter._validate_model(settings["model"], adapter._listed_models(client, settings["agent"]))
        calls = ToolCallTracker(sink, adapter.adapter_config.emit_thought_chunks)
        settings["tools"] = [calls.track(one) for one in prepared.tools]

        def on_event(event: Event) -> None:
            self._beat()
            self._updates.add_event(event)
            transcript.add_event(event)
            calls.on_event(event)
            if isinstance(event, Warned) and event.code == "mode_not_set":
                adapter._handle_mode_error(AgentlineError(event.message))

        self._beat()
        try:
            outcome: Outcome[Any] = client.run(
                prepared.text, output=prepared.output, on_event=on_event, raise_on_failure=False, messages=True, **settings
            )
        except InvalidOutput as exc:
            outcome = exc.outcome
        inputs = tool_inputs(outcome.messages or ())
        calls.end(inputs)
        transcript.complete(inputs)
        if isinstance(tracker, BudgetTracker):
            tracker.record(outcome)
        elif tracker is not None:
            from ._wink import token_usage

            tracker.record_cumulative(self._evaluation.name, token_usage(outcome.usage))
        try:
            prepared.raise_pending()
        except Exception as exc:
            self._pending = exc
            raise
        return outcome

    def _respond(self, prepared: PreparedPrompt, sink: EventSink, outcome: Outcome[Any]) -> PromptResponse[Any]:
        adapter, tracker = self._adapter, self._evaluation.budget_tracker
        value = outcome.value
        if not outcome.ok:
            kind = outcome.error.kind if outcome.error else ""
            is_only_empty = outcome.verdict == "empty" and kind == "empty" and prepared.output is None
            # The last answer counts when the check still fails after all rounds.
            if not is_only_empty and kind != "max_rounds":
                raise self._failure(outcome)
            if prepared.output is not None and outcome.output is not None:
                value = Output.of(prepared.output).read(outcome.output)
        if outcome.output is None:
            try:
                adapter._detect_empty_response(self._updates, outcome)
            except PromptEvaluationError as exc:
                exc.outcome, exc.verdict = outcome, outcome.verdict
                raise
        if isinstance(tracker, BudgetTracker) and tracker.passed():
            raise self._error(f"the run exceeded the budget: {', '.join(tracker.passed())}", "budget", outcome=outcome)
        response: PromptResponse[Any] = PromptResponse(
            prompt_name=self._evaluation.name,
            text=self._updates.text(outcome, adapter.adapter_config.emit_thought_chunks),
            output=value,
            usage=outcome.usage,
            outcome=outcome,
            transcript=self.transcript(),
        )
        sink.executed(response, reported(outcome.usage))
        return response

    def _failure(self, outcome: Outcome[Any]) -> PromptEvaluationError:
        """Returns the error of a run without an answer."""
        failure, deadline = RunFailed.of(outcome), self._options["deadline"]
        message, phase = failure.message, failure.phase or "response"
        if failure.kind == "timeout_startup":
            timeout = self._adapter.client_config.startup_timeout_s
            message, phase = f"ACP handshake timed out after {timeout:g}s: {message}", "request"
        elif outcome.verdict == "timed_out" and deadline is not None and deadline.is_expired:
            message = f"ACP prompt timed out (deadline expired): {message}"
        elif outcome.verdict == "not_installed":
            message = f"ACP execution failed: {message}"
        return self._error(message, phase, hint=failure.hint, outcome=outcome)

    def _error(
        self, message: str, phase: str, *, hint: str | None = None, outcome: Outcome[Any] | None = None
    ) -> PromptEvaluationError:
        payload = answer_payload(outcome) if outcome else None
        name = self._evaluation.name
        error = PromptEvaluationError(
            message, prompt_name=name, phase=phase, hint=hint, outcome=outcome, provider_payload=payload
        )
        if outcome is not None and not outcome.ok:
            error.__cause__ = RunFailed.of(outcome)
        return error

    def _beat(self) -> None:
        try:
            self._evaluation.beat()
        except Exception:
            log.exception("the heartbeat failed")


def list_models(client: Agentline, agent: str) -> list[ModelInfo]:
    """Returns the models that an agent lists. An unknown program lists none."""
    try:
        return [ModelInfo(one.id, one.name) for one in client.capabilities(agent).models]
    except AgentlineError:
        return []


def reported(usage: Usage) -> Usage | None:
    """Returns the token counts, or `None` if the agent reported none."""
    return usage if usage.input_tokens is not None or usage.output_tokens is not None else None


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Runs a coroutine to its end, also on a thread that runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(coroutine)
        return
    with ThreadPoolExecutor(1) as executor:
        executor.submit(asyncio.run, coroutine).result()
