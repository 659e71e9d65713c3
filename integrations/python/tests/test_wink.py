"""The adapter with the real packages `weakincentives` and `pydantic`, and a fake agent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from conftest import Stage

from agentline.adapter import GeminiACPAdapter, GeminiACPAdapterConfig, GeminiACPClientConfig, PromptEvaluationError

pytestmark = pytest.mark.wink


@dataclass(frozen=True)
class Script:
    script: str


@dataclass(frozen=True)
class Numbers:
    a: int
    b: int


@dataclass(frozen=True)
class Total:
    total: int

    def render(self) -> str:
        return f"the total is {self.total}"


@dataclass(frozen=True)
class Review:
    summary: str
    score: int


@pytest.fixture
def adapter(stage: Stage) -> Iterator[GeminiACPAdapter]:
    pytest.importorskip("weakincentives")
    with stage.acp().client() as client:
        yield GeminiACPAdapter(
            adapter_config=GeminiACPAdapterConfig(quiet_period_ms=0, timeout_s=90),
            client_config=GeminiACPClientConfig(cwd=str(stage.workspace)),
            client=client,
        )


def wink_prompt(script: str, *tools: Any, output: Any = None, **template: Any) -> Any:
    """A prompt of WINK that the fake agent executes."""
    from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate

    section = MarkdownSection[Script](title="Task", key="task", template="${script}", tools=tools)
    kind: Any = PromptTemplate if output is None else PromptTemplate[output]
    return Prompt(kind(ns="demo", key="wink", sections=(section,), **template)).bind(Script(script))


def wink_session(*kinds: Any) -> tuple[Any, list[Any]]:
    from weakincentives.runtime.events import InProcessDispatcher
    from weakincentives.runtime.session import Session

    events: list[Any] = []
    bus = InProcessDispatcher()
    for kind in kinds:
        bus.subscribe(kind, events.append)
    return Session(dispatcher=bus), events


def test_a_prompt_with_a_tool_and_a_session(adapter: GeminiACPAdapter, stage: Stage) -> None:
    from weakincentives.prompt import Tool, ToolContext, ToolResult
    from weakincentives.runtime.events import PromptExecuted, PromptRendered, ToolInvoked
    from weakincentives.runtime.session import RenderedTools

    contexts: list[ToolContext] = []

    def add(params: Numbers, *, context: ToolContext) -> ToolResult[Total]:
        contexts.append(context)
        return ToolResult.ok(Total(params.a + params.b), message="added")

    session, events = wink_session(PromptRendered, RenderedTools, ToolInvoked, PromptExecuted)
    tool = Tool[Numbers, Total](name="add", description="Adds.", handler=add)
    script = 'call agentline add {"a": 2, "b": 3}\ntool read_file missing.txt\nsay Done.\nusage 100 20 30'
    prompt = wink_prompt(script, tool)
    with prompt.resources:
        response = adapter.evaluate(prompt, session=session)
    assert response.text is not None and "the total is 5" in response.text and response.text.endswith("Done.")
    rendered, tools, added, read, executed = events
    assert rendered.adapter == "gemini_acp" and "say Done." in rendered.rendered_prompt
    assert [one.name for one in tools.tools] == ["add"] and tools.render_event_id == rendered.event_id
    # WINK's own bridge reports its tool, with the typed value, exactly once.
    assert (added.name, added.params, added.result.value) == ("add", {"a": 2, "b": 3}, Total(5))
    assert read.name.startswith("acp:") and not read.result.success and read.call_id
    assert {event.session_id for event in events} == {session.session_id}
    assert (executed.usage.input_tokens, executed.usage.output_tokens, executed.usage.cached_tokens) == (100, 20, 30)
    assert executed.result is response and contexts[0].session is session and contexts[0].adapter is adapter
    # The session has reduced the value of the tool into its own state.
    assert session[Total].latest() == Total(5) if hasattr(session, "__getitem__") else True


def test_a_typed_answer(adapter: GeminiACPAdapter) -> None:
    session, _ = wink_session()
    by_tool = 'call agentline structured_output {"data": {"score": "high"}}\ncall agentline structured_output '
    value = {"summary": "fine", "score": 9}
    prompt = wink_prompt(by_tool + json.dumps({"data": value}), output=Review)
    assert adapter.evaluate(prompt, session=session).output == Review("fine", 9)
    listed = wink_prompt("say " + json.dumps([value]), output=list[Review])
    assert adapter.evaluate(listed, session=session).output == [Review("fine", 9)]
    with pytest.raises(PromptEvaluationError) as caught:
        adapter.evaluate(wink_prompt("say nothing", output=Review), session=session)
    assert caught.value.phase == "response" and caught.value.raw_text


def test_errors_are_those_of_wink(adapter: GeminiACPAdapter) -> None:
    from weakincentives.deadlines import Deadline
    from weakincentives.errors import PromptEvaluationError as WinkError

    session, _ = wink_session()
    with pytest.raises(WinkError) as caught:
        adapter.evaluate(wink_prompt("die 3"), session=session)
    assert (caught.value.prompt_name, caught.value.phase) == ("demo:wink", "response")
    assert isinstance(caught.value, PromptEvaluationError) and caught.value.outcome is not None
    deadline = Deadline(expires_at=datetime.now(timezone.utc) + timedelta(seconds=2))
    with pytest.raises(WinkError, match="deadline expired"):
        adapter.evaluate(wink_prompt("say up\nhang"), session=session, deadline=deadline)


def test_a_failing_tool_is_rolled_back_and_reported(adapter: GeminiACPAdapter) -> None:
    from weakincentives.prompt import Tool, ToolContext, ToolResult

    def fail(params: Numbers, *, context: ToolContext) -> ToolResult[Total]:
        raise LookupError("no such number")

    session, _ = wink_session()
    tool = Tool[Numbers, Total](name="fail", description="Fails.", handler=fail)
    response = adapter.evaluate(wink_prompt('call agentline fail {"a": 1, "b": 1}\nsay x', tool), session=session)
    assert "no such number" in str(response.transcript) or "no such number" in (response.text or "")
    response = adapter.evaluate(wink_prompt('call agentline fail {"a": "x"}\nsay x', tool), session=session)
    assert response.text and response.text.endswith("x")


def test_completion_checkers_feedback_and_policies(adapter: GeminiACPAdapter) -> None:
    from weakincentives.prompt import (
        Feedback,
        FeedbackProviderConfig,
        FeedbackTrigger,
        PolicyDecision,
        TaskCompletionResult,
        Tool,
        ToolContext,
        ToolResult,
    )

    answers: list[Any] = []

    class Checker:
        def check(self, context: Any) -> Any:
            answers.append(context.tentative_output)
            return TaskCompletionResult.ok("done") if len(answers) == 2 else TaskCompletionResult.incomplete("the second part")

    class Provider:
        name = "hints"

        def should_run(self, *, context: Any) -> bool:
            return True

        def provide(self, *, context: Any) -> Any:
            is_early = context.deadline.elapsed() < context.deadline.remaining()
            return Feedback(provider_name="hints", summary=f"mind the gap: {is_early}")

    class Policy:
        name = "no big numbers"

        def check(self, tool: Any, params: Any, *, context: Any) -> Any:
            return PolicyDecision.deny("too big") if params.a > 9 else PolicyDecision.allow()

        def on_result(self, tool: Any, params: Any, result: Any, *, context: Any) -> None:
            pass

    def add(params: Numbers, *, context: ToolContext) -> ToolResult[Total]:
        return ToolResult.ok(Total(params.a + params.b), message="added")

    tool = Tool[Numbers, Total](name="add", description="Adds.", handler=add)
    config = FeedbackProviderConfig(provider=Provider(), trigger=FeedbackTrigger(every_n_calls=1))
    session, _ = wink_session()
    script = 'call agentline add {"a": 1, "b": 1}\ncall agentline add {"a": 10, "b": 1}\nsay x'
    prompt = wink_prompt(
        script, tool, policies=(Policy(),), feedback_providers=(config,), task_completion_checker=Checker()
    )
    # A time is as good as a deadline, for the checker and for the feedback.
    deadline = datetime.now(timezone.utc) + timedelta(minutes=5)
    response = adapter.evaluate(prompt, session=session, deadline=deadline)
    assert len(answers) == 2, "the agent was prompted again until the checker was satisfied"
    said = "".join(entry.detail.get("text", "") for entry in response.transcript if entry.entry_type == "assistant_message")
    assert "mind the gap: True" in said and "too big" in said
    assert response.outcome.verdict == "done"


def test_sections_are_expanded_on_request(adapter: GeminiACPAdapter) -> None:
    from weakincentives.prompt import Tool, ToolContext, ToolResult, VisibilityExpansionRequired

    def expand(params: Numbers, *, context: ToolContext) -> ToolResult[Total]:
        raise VisibilityExpansionRequired(
            "expand", requested_overrides={("task",): "full"}, reason="needed", section_keys=("task",)
        )

    session, _ = wink_session()
    tool = Tool[Numbers, Total](name="expand", description="Expands.", handler=expand)
    with pytest.raises(VisibilityExpansionRequired):
        adapter.evaluate(wink_prompt('call agentline expand {"a": 1, "b": 1}\nsay x', tool), session=session)


def test_budgets_and_heartbeats_of_wink(adapter: GeminiACPAdapter) -> None:
    from weakincentives.budget import Budget, BudgetTracker
    from weakincentives.runtime.watchdog import Heartbeat

    session, _ = wink_session()
    tracker, heartbeat = BudgetTracker(Budget(max_total_tokens=150)), Heartbeat()
    before = heartbeat.elapsed()
    adapter.evaluate(wink_prompt("say x\nusage 100 20"), session=session, budget_tracker=tracker, heartbeat=heartbeat)
    assert tracker.consumed.total_tokens == 120 and heartbeat.elapsed() < before + 60
    with pytest.raises(PromptEvaluationError) as caught:
        adapter.evaluate(wink_prompt("say x\nusage 500 20"), session=session, budget=Budget(max_total_tokens=10))
    assert caught.value.phase == "budget"


def test_tools_see_the_file_system_of_the_workspace(adapter: GeminiACPAdapter, stage: Stage) -> None:
    from weakincentives.filesystem import Filesystem
    from weakincentives.prompt import Tool, ToolContext, ToolResult

    roots: list[str] = []

    def look(params: Numbers, *, context: ToolContext) -> ToolResult[Total]:
        roots.append(context.resources.get(Filesystem).root)
        return ToolResult.ok(Total(0), message="seen")

    session, _ = wink_session()
    tool = Tool[Numbers, Total](name="look", description="Looks.", handler=look)
    adapter.evaluate(wink_prompt('call agentline look {"a": 1, "b": 1}\nsay x', tool), session=session)
    assert roots == [str(stage.workspace)]


def test_pydantic_models(stage: Stage) -> None:
    pytest.importorskip("pydantic")
    from pydantic_models import Invoice, Line, total

    value = {"customer": "a", "lines": [{"amount": 3}]}
    with stage.acp().client() as client:
        outcome = client.run("say " + json.dumps(value), output=Invoice)
        assert outcome.value == Invoice(customer="a", lines=[Line(amount=3)])
        assert client.run("say " + json.dumps([value]), output=list[Invoice]).value == [outcome.value]
        arguments = json.dumps({"invoice": value, "extra": [{"amount": 4}]})
        assert '"amount":7' in client.run(f"call agentline total {arguments}", tools=[total]).text.replace(" ", "")
        invalid = json.dumps({"invoice": value, "extra": [{"amount": -1}]})
        assert "greater than 0" in client.run(f"call agentline total {invalid}", tools=[total]).text
