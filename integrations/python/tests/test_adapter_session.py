"""The adapter's events, sessions, resources, transcript and errors, with a fake agent."""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Stage, needed
from test_adapter import prompt

from agentline import Agentline, AgentlineError, BinaryNotFound
from agentline.adapter import (
    ACPAdapter,
    ACPAdapterConfig,
    ACPClientConfig,
    ACPSessionState,
    Filesystem,
    GeminiACPAdapter,
    GeminiACPAdapterConfig,
    GeminiACPClientConfig,
    HostFilesystem,
    InProcessDispatcher,
    Prompt,
    PromptEvaluationError,
    PromptExecuted,
    PromptRendered,
    RenderedTools,
    Session,
    ThoughtEmitted,
    ToolInvoked,
)


@pytest.fixture
def client(stage: Stage) -> Iterator[Agentline]:
    with stage.acp().client() as client:
        yield client


def gemini(client: Agentline, stage: Stage, **config: Any) -> GeminiACPAdapter:
    """An adapter for the fake agent."""
    return GeminiACPAdapter(
        adapter_config=GeminiACPAdapterConfig(**{"quiet_period_ms": 0, "timeout_s": 90, **config}),
        client_config=GeminiACPClientConfig(cwd=str(stage.workspace)),
        client=client,
    )


def listen(*kinds: type[Any]) -> tuple[Session, list[Any]]:
    events: list[Any] = []
    bus = InProcessDispatcher()
    for kind in kinds:
        bus.subscribe(kind, events.append)
    return Session(dispatcher=bus), events


def test_events_are_correlated(client: Agentline, stage: Stage) -> None:
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    session, events = listen(PromptRendered, RenderedTools, ToolInvoked, PromptExecuted)
    gemini(client, stage).evaluate(
        prompt('call agentline add {"a": 2, "b": 3}\nsay Done.', add), session=session, run_context="trace-1"
    )
    rendered, tools, invoked, executed = events
    assert {event.session_id for event in events} == {session.session_id} and isinstance(session.session_id, uuid.UUID)
    assert {event.run_context for event in events} == {"trace-1"}
    assert len({event.event_id for event in events}) == 4 and tools.render_event_id == rendered.event_id
    (schema,) = tools.tools
    assert (schema.name, schema.description, schema.parameters["required"]) == ("add", "Adds.", ["a", "b"])
    assert invoked.result.success and "5" in invoked.result.value and invoked.rendered_output == invoked.output
    assert executed.usage is None, "this agent reported no tokens"


def test_thoughts_are_events_and_precede_the_text(client: Agentline, stage: Stage) -> None:
    session, thoughts = listen(ThoughtEmitted)
    script = prompt("think Hmm. \nsay Yes.")
    assert gemini(client, stage).evaluate(script, session=session).text == "Yes." and thoughts == []
    response = gemini(client, stage, emit_thought_chunks=True).evaluate(script, session=session)
    assert "".join(event.text for event in thoughts).strip() == "Hmm."
    assert response.text is not None and response.text.startswith("Hmm.") and response.text.endswith("Yes.")


def test_the_text_is_that_of_the_whole_answer(client: Agentline, stage: Stage) -> None:
    response = gemini(client, stage).evaluate(prompt("say First.\ntool read_file missing.txt\nsay Last."))
    assert response.text == "First.\n\nLast." and response.outcome.text == "Last."


def test_a_failing_handler_does_not_lose_the_answer(client: Agentline, stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    session, events = listen(PromptExecuted)

    def fail(event: object) -> None:
        raise RuntimeError("a bug in the handler")

    for kind in (PromptRendered, ToolInvoked, PromptExecuted):
        session.dispatcher.subscribe(kind, fail)
    response = gemini(client, stage).evaluate(prompt("tool read_file missing.txt\nsay paid"), session=session)
    assert response.text == "paid" and len(events) == 1 and "a handler of PromptExecuted failed" in caplog.text
    result = session.dispatcher.dispatch(events[0])
    assert not result.ok and len(result.errors) == 1
    with pytest.raises(ExceptionGroup):
        result.raise_if_errors()
    assert session.dispatcher.unsubscribe(PromptExecuted, fail) and session.dispatcher.dispatch(events[0]).ok


def test_every_error_is_wrapped(client: Agentline, stage: Stage) -> None:
    def wrapped(adapter: ACPAdapter, **options: Any) -> PromptEvaluationError:
        with pytest.raises(PromptEvaluationError) as caught:
            adapter.evaluate(prompt("say x"), **options)
        assert caught.value.prompt_name == "demo/fake"
        return caught.value

    def check(answer: Any) -> bool:
        raise LookupError("a bug in the check")

    error = wrapped(gemini(client, stage), check=check)
    assert "a bug in the check" in error.message and isinstance(error.__cause__, LookupError)
    assert [entry.entry_type for entry in error.transcript] == ["user_message", "assistant_message"]
    error = wrapped(GeminiACPAdapter(binary="/nonexistent/agentline"))
    assert error.phase == "request" and isinstance(error.__cause__, BinaryNotFound) and error.hint
    closed = gemini(stage.client(), stage)
    closed._connected().close()
    assert "the client is closed" in wrapped(closed).message
    config = ACPClientConfig(cwd=stage.workspace, agent_bin="/nonexistent/agent")
    error = wrapped(ACPAdapter(client_config=config, client=client))
    assert error.message.startswith("ACP execution failed: ") and error.verdict == "not_installed"
    error = wrapped(gemini(client, stage, sandbox=True))
    assert "`sandbox`" in error.message and error.phase == "request"


def test_hints_name_the_fields_of_the_configuration(client: Agentline, stage: Stage) -> None:
    adapter = gemini(client, stage, model_id="no-such-model", model_validation="strict")
    with pytest.raises(PromptEvaluationError) as caught:
        adapter.evaluate(prompt("say x"))
    assert "`model_id`" in (caught.value.hint or "") and "--" not in (caught.value.hint or "")


def test_the_transcript(client: Agentline, stage: Stage) -> None:
    response = gemini(client, stage).evaluate(prompt("think a\nsay b\nsay c\ntool read_file missing.txt\nsay d"))
    assert [entry.entry_type for entry in response.transcript] == [
        "user_message",
        *(["thinking"] if any(entry.entry_type == "thinking" for entry in response.transcript) else []),
        "assistant_message",
        "tool_use",
        "tool_result",
        "assistant_message",
    ]
    texts = [entry.detail["text"] for entry in response.transcript if entry.entry_type == "assistant_message"]
    assert texts == ["bc", "d"], "pieces of a text are one entry"
    (result,) = [entry.detail for entry in response.transcript if entry.entry_type == "tool_result"]
    assert result["status"] == "error" and result["tool_call_id"]
    assert [entry.sequence_number for entry in response.transcript] == list(range(1, len(response.transcript) + 1))


def test_the_workspace_is_the_file_system_of_the_prompt(client: Agentline, stage: Stage) -> None:
    folder = stage.folder / "files"
    folder.mkdir()
    config = GeminiACPAdapterConfig(quiet_period_ms=0)
    adapter = GeminiACPAdapter(adapter_config=config, client=client)
    bound = prompt("cwd").bind(resources={Filesystem: HostFilesystem(str(folder))})
    with bound.resources:
        assert adapter.evaluate(bound).text == str(folder)
        assert bound.resources.get(Filesystem).root == str(folder) and bound.resources.get_optional(Path) is None
    # The `cwd` of the configuration has priority.
    assert gemini(client, stage).evaluate(bound).text == str(stage.workspace)
    # Without either, the workspace is a temporary directory that the tools of the prompt can use and that is removed.
    temporary = adapter.evaluate(prompt("cwd")).text or ""
    assert "agentline-acp-" in temporary and not Path(temporary).exists()


def test_resources_are_entered_and_exited() -> None:
    steps: list[str] = []

    class Connection(contextlib.AbstractContextManager["Connection"]):
        def __enter__(self) -> Connection:
            steps.append("open")
            return self

        def __exit__(self, *args: object) -> None:
            steps.append("close")

    bound: Prompt[Any] = prompt("say x").bind(resources={Connection: Connection()})
    with bound.resources:
        assert steps == ["open"]
        with pytest.raises(RuntimeError, match="already in use"), bound.resources:
            pass
    assert steps == ["open", "close"]


def test_a_session_is_continued(client: Agentline, stage: Stage) -> None:
    store = {"FAKE_ACP_STORE": str(stage.folder / "tmp")}
    program = needed("AGENTLINE_TEST_FAKE_ACP")
    config = ACPClientConfig(agent_bin=program, agent_args=("--acp",), cwd=str(stage.workspace), env=store)
    adapter = ACPAdapter(adapter_config=ACPAdapterConfig(quiet_period_ms=0), client_config=config, client=client)
    state = adapter.evaluate(prompt("say one")).session_state
    assert state is not None and state == ACPSessionState(state.session_id, str(stage.workspace), None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.cwd = "x"  # type: ignore[misc]
    continued = adapter.evaluate(prompt("history"), resume=state)
    assert "say one" in (continued.text or "") and continued.session_state == state


def test_the_last_answer_counts_when_the_check_never_passes(client: Agentline, stage: Stage) -> None:
    rounds: list[str] = []

    def check(answer: Any) -> str:
        rounds.append(answer.text)
        return "more, please"

    response = gemini(client, stage, max_rounds=2).evaluate(prompt("say again"), check=check)
    assert len(rounds) == 3 and response.outcome.verdict == "limit_reached"
    assert response.text and response.text.strip()


def test_timeouts_are_named(client: Agentline, stage: Stage) -> None:
    config = GeminiACPClientConfig(cwd=str(stage.workspace), startup_timeout_s=0.5, env={"FAKE_ACP_FAULT": "initialize_never"})
    adapter = GeminiACPAdapter(client_config=config, client=client)
    with pytest.raises(PromptEvaluationError, match="ACP handshake timed out after 0.5s") as caught:
        adapter.evaluate(prompt("say x"))
    assert (caught.value.phase, caught.value.verdict) == ("request", "timed_out")


def test_a_heartbeat_beats_with_the_events(client: Agentline, stage: Stage) -> None:
    class Heartbeat:
        beats = 0

        def beat(self) -> None:
            self.beats += 1
            raise AgentlineError("a bug in the heartbeat")

    heartbeat = Heartbeat()
    assert gemini(client, stage).evaluate(prompt("say x\nsay y"), heartbeat=heartbeat).text == "xy"
    assert heartbeat.beats >= 3
