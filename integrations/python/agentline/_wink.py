"""Evaluates prompts of WINK (`weakincentives`) with its own tools, sessions and events.

This module is imported only when a caller passes such objects, so the package is installed then. No other part of
agentline knows WINK's classes.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

from ._adapter_events import PromptResponse, dispatch_safely
from ._evaluation import Evaluation, PreparedPrompt
from ._schema import ConversionError, Output
from .events import ToolResult, ToolUse
from .outcome import Usage
from .settings import Answer, CheckCallback
from .tools import Tool



def _module(name: str) -> Any:
    return importlib.import_module(f"weakincentives.{name}")


_events, _filesystem = _module("runtime.events"), _module("filesystem")
#: How many characters of a tool's output an event contains, as for WINK's own tools.
RENDERED_OUTPUT = 1000


def bind_filesystem(prompt: Any, root: str) -> Any:
    """Returns the prompt with a file system for its tools."""
    return prompt.bind(resources={_filesystem.Filesystem: _filesystem.HostFilesystem(_root=root)})


def prepare(prompt: Any, rendered: Any, evaluation: Evaluation) -> PreparedPrompt:
    """Prepares a rendered prompt. WINK's own bridge runs its tools, with policies, transactions and events."""
    signal = _module("adapters._shared._visibility_signal").VisibilityExpansionSignal()
    tools = _module("adapters._shared._bridge").create_bridged_tools(
        rendered.tools,
        session=evaluation.session,
        adapter=evaluation.adapter,
        prompt=prompt,
        rendered_prompt=rendered,
        deadline=evaluation.deadline,
        budget_tracker=evaluation.budget_tracker,
        adapter_name=evaluation.adapter_name,
        prompt_name=evaluation.name,
        heartbeat=evaluation.heartbeat,
        run_context=evaluation.run_context,
        visibility_signal=signal,
    )

    pending: list[Exception] = []

    def is_pending() -> bool:
        if not pending and (asked := signal.get_and_clear()) is not None:
            pending.append(asked)
        return bool(pending)

    def raise_pending() -> None:
        if is_pending():
            raise pending[0]

    return PreparedPrompt(
        text=rendered.text,
        tools=tuple(_tool(one, prompt, evaluation) for one in tools),
        output=_output(rendered),
        check=_check(prompt, evaluation, is_pending),
        raise_pending=raise_pending,
    )


def _tool(bridged: Any, prompt: Any, evaluation: Evaluation) -> Tool:
    def call(**arguments: Any) -> str:
        evaluation.beat()
        result = bridged(arguments)
        texts = [str(item.get("text", "")) for item in result.get("content", ())]
        if result.get("isError"):
            raise ConversionError("\n".join(texts))
        feedback = _module("prompt.feedback").collect_feedback(prompt=prompt, session=evaluation.session, deadline=evaluation.deadline)
        return "\n".join([*texts, feedback] if feedback else texts)

    return Tool(bridged.name, bridged.description, bridged.input_schema, call)


def _output(rendered: Any) -> Output[Any] | None:
    if rendered.output_type is None:
        return None
    extra = "ignore" if rendered.allow_extra_keys else "forbid"
    schema: dict[str, Any] = _module("serde").schema(rendered.output_type, extra=extra)
    if rendered.container == "array":
        schema = {"type": "array", "items": schema}

    parse = _module("prompt.structured_output").parse_structured_output

    def read(value: Any) -> Any:
        try:
            return parse(json.dumps(value), rendered)
        except (TypeError, ValueError) as exc:
            raise ConversionError(str(exc)) from exc

    return Output(schema, read)


def _check(prompt: Any, evaluation: Evaluation, is_pending: Callable[[], bool] = lambda: False) -> CheckCallback | None:
    """Returns the prompt's own check of completion. It lets the answer pass when the deadline or the budget is used up,
    when the prompt must be rendered again (`is_pending`), or when there is nothing to tell the agent."""
    checker = prompt.task_completion_checker
    if checker is None:
        return None
    completion = _module("prompt.task_completion")

    def check(answer: Answer) -> str | None:
        deadline, tracker = evaluation.deadline, evaluation.budget_tracker
        if is_pending() or (deadline is not None and deadline.remaining().total_seconds() <= 0):
            return None
        if tracker is not None and hasattr(tracker, "check"):
            try:
                tracker.check()
            except RuntimeError:
                return None
        filesystem = None
        with contextlib.suppress(Exception):
            filesystem = prompt.resources.get_optional(_filesystem.Filesystem)
        context = completion.TaskCompletionContext(session=evaluation.session, tentative_output=answer.text, filesystem=filesystem)
        result = checker.check(context)
        return None if result.complete or not result.feedback else str(result.feedback)

    return check


class WinkEvents:
    """Creates WINK's own events."""

    def __init__(self, prompt: Any, evaluation: Evaluation, dispatchers: Iterable[Any]) -> None:
        self._prompt, self._evaluation, self._dispatchers = prompt, evaluation, list(dispatchers)

    def rendered(self, text: str, tools: Iterable[Tool]) -> None:
        records, event_id = _module("runtime.session.rendered_tools"), uuid4()
        prompt, evaluation = self._prompt, self._evaluation
        now, session_id = datetime.now(timezone.utc), evaluation.session_id
        self._dispatch(
            _events.PromptRendered(
                prompt_ns=prompt.ns,
                prompt_key=prompt.key,
                prompt_name=prompt.name,
                adapter=evaluation.adapter_name,
                session_id=session_id,
                render_inputs=(),
                rendered_prompt=text,
                created_at=now,
                descriptor=None,
                run_context=evaluation.run_context,
                event_id=event_id,
            )
        )
        schemas = tuple(records.ToolSchema(one.name, one.description, one.input_schema) for one in tools)
        self._dispatch(
            records.RenderedTools(
                prompt_ns=prompt.ns,
                prompt_key=prompt.key,
                tools=schemas,
                render_event_id=event_id,
                session_id=session_id,
                created_at=now,
            )
        )

    def thought(self, text: str) -> None:
        """WINK has no event for thoughts; they precede the text of the response."""

    def tool_invoked(self, call: ToolUse, result: ToolResult, params: Any) -> None:
        # WINK's bridge has reported its own tools already.
        if call.name.startswith(f"mcp__{self._evaluation.adapter.tool_server}__"):
            return
        title = call.native_name or call.name
        results = _module("prompt.tool").ToolResult
        ended = results.error(f"Tool {title} failed") if result.is_error else results.ok(None, message=f"Tool {title} completed")
        self._dispatch(
            _events.ToolInvoked(
                prompt_name=self._evaluation.name,
                adapter=self._evaluation.adapter_name,
                name=f"acp:{title}",
                params=params if isinstance(params, Mapping) else {},
                result=ended,
                session_id=self._evaluation.session_id,
                created_at=datetime.now(timezone.utc),
                usage=None,
                rendered_output=(result.content or "")[:RENDERED_OUTPUT],
                call_id=call.id or None,
                run_context=self._evaluation.run_context,
            )
        )

    def executed(self, response: PromptResponse[Any], usage: Usage | None) -> None:
        self._dispatch(
            _events.PromptExecuted(
                prompt_name=self._evaluation.name,
                adapter=self._evaluation.adapter_name,
                result=response,
                session_id=self._evaluation.session_id,
                created_at=datetime.now(timezone.utc),
                usage=token_usage(usage),
                run_context=self._evaluation.run_context,
            )
        )

    def _dispatch(self, event: Any) -> None:
        for dispatcher in self._dispatchers:
            dispatch_safely(dispatcher, event)


def token_usage(usage: Usage | None) -> Any:
    """Returns the token counts in WINK's form."""
    if usage is None:
        return None
    return _module("budget").TokenUsage(usage.input_tokens, usage.output_tokens, usage.cached_tokens)
