"""The override points of an adapter and the choice of its agent, with a fake agent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from conftest import Stage, needed
from test_adapter import prompt

from agentline import Agentline, Retry, Text
from agentline._adapter_config import agent_settings, env_settings, server_settings
from agentline.adapter import (
    ACPAdapter,
    ACPAdapterConfig,
    ACPClient,
    ACPClientConfig,
    ClaudeACPClientConfig,
    CodexACPClientConfig,
    GeminiACPAdapter,
    GeminiACPAdapterConfig,
    GeminiACPClientConfig,
    InProcessDispatcher,
    McpServerConfig,
    ModelInfo,
    OpenCodeACPAdapter,
    OpenCodeACPAdapterConfig,
    OpenCodeACPClientConfig,
    PromptEvaluationError,
    PromptRendered,
    build_env,
)


@pytest.fixture
def client(stage: Stage) -> Iterator[Agentline]:
    with stage.acp().client() as client:
        yield client


def configs(stage: Stage, **config: Any) -> dict[str, Any]:
    return {
        "adapter_config": GeminiACPAdapterConfig(**{"quiet_period_ms": 0, "timeout_s": 90, **config}),
        "client_config": GeminiACPClientConfig(cwd=str(stage.workspace)),
    }


def test_a_subclass_changes_name_arguments_and_environment(client: Agentline, stage: Stage) -> None:
    cleaned: list[str] = []

    class Mine(GeminiACPAdapter):
        def _adapter_name(self) -> str:
            return "mine"

        def _agent_spawn_args(self) -> tuple[str, ...]:
            return (*super()._agent_spawn_args(), "--debug")

        def _prepare_execution_env(self, *, rendered: Any, effective_cwd: str) -> tuple[dict[str, str] | None, Callable[[], None]]:
            assert "env MINE" in rendered.text
            return {**stage.env, "MINE": "yes"}, lambda: cleaned.append(effective_cwd)

    bus, events = InProcessDispatcher(), []
    bus.subscribe(PromptRendered, events.append)
    adapter = Mine(**configs(stage), client=client)
    response = adapter.evaluate(prompt("env MINE"), events=bus)
    assert response.text is not None and response.text.startswith("MINE=yes")
    assert events[0].adapter == adapter.adapter_name == "mine" and cleaned == [str(stage.workspace)]
    assert adapter._settings()["agent_args"] == ["--experimental-acp", "--debug"]

    class Other(GeminiACPAdapter):
        def _agent_spawn_args(self) -> tuple[str, ...]:
            return ("--other",)

    # The flags of the configuration are agentline's own business.
    plain = GeminiACPAdapter(adapter_config=GeminiACPAdapterConfig(model_id="m", approval_mode="yolo"))
    assert plain._agent_spawn_args() == ("--experimental-acp", "--model", "m", "--approval-mode", "yolo")
    assert plain._settings()["agent_args"] is None and Other()._settings()["agent_args"] == ["--other"]


def test_a_subclass_validates_the_model(client: Agentline, stage: Stage) -> None:
    seen: list[Sequence[ModelInfo]] = []

    class Mine(GeminiACPAdapter):
        def _validate_model(self, model_id: str, available_models: Sequence[ModelInfo]) -> None:
            seen.append(available_models)
            raise PromptEvaluationError(f"{model_id} is too expensive", prompt_name="", phase="request")

    with pytest.raises(PromptEvaluationError, match="fake-large is too expensive") as caught:
        Mine(**configs(stage, model_id="fake-large"), client=client).evaluate(prompt("say x"))
    assert caught.value.prompt_name == "demo/fake" and caught.value.phase == "request"
    assert "fake-large" in [one.model_id for one in seen[0]]


def test_the_model_validation_of_opencode() -> None:
    adapter, models = OpenCodeACPAdapter(), [ModelInfo("a/b", "B")]
    adapter._validate_model("a/b", models)
    adapter._validate_model("any", [])
    with pytest.raises(PromptEvaluationError, match="'any' not found in available models"):
        adapter._validate_model("any", models)
    GeminiACPAdapter()._validate_model("any", models)
    lenient = OpenCodeACPAdapter(adapter_config=OpenCodeACPAdapterConfig(model_validation="warn"))
    lenient._validate_model("any", models)


def test_the_adapter_of_opencode_validates_the_model(client: Agentline, stage: Stage) -> None:
    def adapter(model: str) -> OpenCodeACPAdapter:
        config = OpenCodeACPAdapterConfig(quiet_period_ms=0, model_id=model)
        # The fake agent, which lists models too.
        agent = OpenCodeACPClientConfig(agent="gemini", agent_args=(), cwd=str(stage.workspace))
        return OpenCodeACPAdapter(adapter_config=config, client_config=agent, client=client)

    assert adapter("fake-large").evaluate(prompt("say x")).text == "x"
    with pytest.raises(PromptEvaluationError, match="Model 'no-such' not found in available models: .*fake-large") as caught:
        adapter("no-such").evaluate(prompt("say x"))
    assert caught.value.phase == "request" and caught.value.outcome is None


def test_a_subclass_sets_the_mode(client: Agentline, stage: Stage) -> None:
    class Mine(GeminiACPAdapter):
        async def _configure_session(self, conn: Any, session_id: str) -> None:
            await conn.set_session_mode(session_id=session_id, mode_id="yolo")
            await conn.set_session_model(session_id=session_id, model_id="fake-large")

    text = Mine(**configs(stage), client=client).evaluate(prompt("state")).text or ""
    assert "yolo" in text and "fake-large" in text


def test_a_refused_mode_is_not_fatal_unless_a_subclass_says_so(client: Agentline, stage: Stage) -> None:
    refused: list[Exception] = []

    class Mine(GeminiACPAdapter):
        def _handle_mode_error(self, error: Exception) -> None:
            refused.append(error)
            raise PromptEvaluationError("the mode is needed", prompt_name="", phase="request") from error

    response = GeminiACPAdapter(**configs(stage, mode_id="no-such-mode"), client=client).evaluate(prompt("say x"))
    assert response.text == "x" and "mode_not_set" in [one.code for one in response.outcome.warnings]
    with pytest.raises(PromptEvaluationError, match="the mode is needed"):
        Mine(**configs(stage, mode_id="no-such-mode"), client=client).evaluate(prompt("say x"))
    assert "no-such-mode" in str(refused[0])


def test_an_answer_without_text(client: Agentline, stage: Stage) -> None:
    with pytest.raises(PromptEvaluationError, match="Gemini returned an empty response") as caught:
        GeminiACPAdapter(**configs(stage), client=client).evaluate(prompt("stop end_turn"))
    assert (caught.value.phase, caught.value.verdict) == ("response", "empty") and caught.value.outcome is not None

    class Mine(GeminiACPAdapter):
        def _detect_empty_response(self, client: ACPClient, prompt_resp: Any) -> None:
            assert client.message_chunks == [] and prompt_resp.stop_reason == "end_turn"
            assert [call["status"] for call in client.tool_call_tracker.values()] == ["failed"]

    response = Mine(**configs(stage), client=client).evaluate(prompt("tool read_file missing.txt\nstop end_turn"))
    assert response.text is None and response.output is None


def test_approval_mode_replaces_the_permission_mode(client: Agentline, stage: Stage) -> None:
    allowed = GeminiACPAdapter(**configs(stage, approval_mode="yolo"), client=client)
    assert len(allowed.evaluate(prompt("ask write_file a.txt x\nsay ok")).outcome.files) == 1
    denied = GeminiACPAdapter(**configs(stage, approval_mode="plan"), client=client)
    assert denied.evaluate(prompt("ask write_file b.txt x\nsay ok")).outcome.denied


def test_a_program_of_unknown_kind_is_never_treated_as_gemini(client: Agentline, stage: Stage) -> None:
    config = ACPClientConfig(agent_bin=needed("AGENTLINE_TEST_FAKE_ACP"), agent_args=("--acp",), cwd=str(stage.workspace))
    adapter = ACPAdapter(adapter_config=ACPAdapterConfig(quiet_period_ms=0), client_config=config, client=client)
    response = adapter.evaluate(prompt("say hello"))
    assert (response.text, response.outcome.agent) == ("hello", "acp")
    # An empty answer is acceptable for an unknown agent.
    assert adapter.evaluate(prompt("stop end_turn")).text is None
    # An agent that lists no models accepts any, also with strict validation.
    strict = ACPAdapterConfig(quiet_period_ms=0, model_id="any", model_validation="strict")
    bare = dataclasses.replace(config, env={"FAKE_ACP_FAULT": "no_modes_no_models,set_model_unknown"})
    assert ACPAdapter(adapter_config=strict, client_config=bare, client=client).evaluate(prompt("say x")).text == "x"


def test_the_agent_of_a_configuration() -> None:
    def agent(config: ACPClientConfig) -> dict[str, Any]:
        return {key: value for key, value in agent_settings(config, config.agent_args).items() if value is not None}

    assert agent(GeminiACPClientConfig()) == {"agent": "gemini_acp"}
    assert agent(GeminiACPClientConfig(agent_bin="/opt/gemini")) == {"agent": "gemini_acp", "agent_bin": "/opt/gemini"}
    assert agent(ACPClientConfig()) == agent(OpenCodeACPClientConfig()) == {"agent": "opencode"}
    assert agent(ClaudeACPClientConfig()) == {"agent": "claude"} and agent(CodexACPClientConfig()) == {"agent": "codex"}
    assert agent(ACPClientConfig(agent="mine")) == {"agent": "mine"}
    for config in (ACPClientConfig(agent_bin="gemini"), ACPClientConfig(agent_args=("serve",))):
        command = {"command": config.agent_bin, "args": list(config.agent_args)}
        assert agent(config) == {"agent": "acp", "agents": {"acp": command}}


def test_mcp_servers_as_in_acp(client: Agentline, stage: Stage) -> None:
    servers: tuple[McpServerConfig, ...] = (
        {"name": "files", "command": "npx", "args": ["mcp"], "env": [{"name": "A", "value": "1"}]},
        {"type": "http", "name": "web", "url": "http://127.0.0.1:1/mcp", "headers": [{"name": "X", "value": "y"}]},
        {"command": "other"},
    )
    expected = {
        "files": {"command": "npx", "args": ["mcp"], "env": {"A": "1"}},
        "web": {"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": {"X": "y"}},
        "server-3": {"command": "other"},
    }
    assert server_settings(servers) == expected and server_settings(expected) == expected
    config = GeminiACPClientConfig(cwd=str(stage.workspace), mcp_servers=servers[1:2])
    adapter = GeminiACPAdapter(adapter_config=GeminiACPAdapterConfig(quiet_period_ms=0), client_config=config, client=client)
    assert '"name":"web"' in (adapter.evaluate(prompt("echo_servers")).text or "")


def test_environments() -> None:
    base = {"PATH": "/bin", "A": "1"}
    assert build_env(None, base) is None and build_env({"B": "2"}, base) == {**base, "B": "2"}
    assert env_settings(None, base, None) == {"pass_env": ["*"]}
    assert env_settings({**base, "B": "2"}, base, None) == {"pass_env": ["*"], "env": {"B": "2"}}
    assert env_settings(base, base, {"A": "1"}) == {"pass_env": ["*"], "env": {"A": "1"}}
    # A variable that is missing from the environment is not passed.
    assert env_settings({"PATH": "/bin"}, base, None) == {"pass_env": ["PATH"], "env": None}
    adapter = GeminiACPAdapter(adapter_config=GeminiACPAdapterConfig(sandbox_profile="strict-open"), host_env=base)
    env, cleanup = adapter._prepare_execution_env(rendered=None, effective_cwd="/")
    cleanup()
    assert env == {**base, "SEATBELT_PROFILE": "strict-open"}
    assert adapter._settings()["sandbox_profile"] == "strict-open"


def test_a_retry_discards_the_text_of_the_failed_attempt() -> None:
    client = ACPClient()
    for event in [Text(type="text", text="half an "), Retry(type="retry", attempt=2), Text(type="text", text="an answer")]:
        client.add_event(event)
    assert [chunk.content for chunk in client.message_chunks] == ["an answer"]
