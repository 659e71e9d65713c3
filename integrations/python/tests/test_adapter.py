"""The adapter with a fake agent: typed prompts and answers, tools, permissions, budgets, deadlines and events."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from conftest import Stage

from agentline import Answer, Deny, PermissionAsk
from agentline.adapter import (
    GEMINI_ACP_ADAPTER_NAME,
    ACPAdapter,
    ACPAdapterConfig,
    ACPClientConfig,
    Budget,
    BudgetTracker,
    ClaudeACPAdapter,
    CodexACPAdapter,
    Deadline,
    GeminiACPAdapter,
    GeminiACPAdapterConfig,
    GeminiACPClientConfig,
    InProcessDispatcher,
    MarkdownSection,
    OpenCodeACPAdapter,
    OpenCodeACPAdapterConfig,
    Prompt,
    PromptEvaluationError,
    PromptExecuted,
    PromptRendered,
    PromptTemplate,
    ToolInvoked,
)


@dataclasses.dataclass(frozen=True)
class Script:
    """The script that the fake agent executes. The prompt contains it."""

    script: str


@dataclasses.dataclass(frozen=True)
class CodeReview:
    summary: str
    issues: list[str]
    score: int


def prompt(script: str, *tools: Any, output: Any = None) -> Prompt[Any]:
    section = MarkdownSection(title="Task", key="task", template="${script}", tools=tools)
    template: PromptTemplate[Any] = PromptTemplate(ns="demo", key="fake", sections=(section,), output_type=output)
    return Prompt(template).bind(Script(script))


@pytest.fixture
def adapter(stage: Stage) -> Iterator[GeminiACPAdapter]:
    stage.acp()
    config = GeminiACPClientConfig(cwd=stage.workspace)
    fast = GeminiACPAdapterConfig(quiet_period_ms=0, timeout_s=90)
    with GeminiACPAdapter(adapter_config=fast, client_config=config, binary=stage.binary, host_env=stage.env) as adapter:
        yield adapter


def test_adapter_name_and_defaults() -> None:
    assert GeminiACPAdapter.name == GEMINI_ACP_ADAPTER_NAME == "gemini_acp"
    client, adapter = GeminiACPClientConfig(), GeminiACPAdapterConfig()
    assert (client.agent_bin, client.permission_mode, client.cwd, client.env) == ("gemini", "auto", None, None)
    assert (client.startup_timeout_s, client.allow_file_reads, client.allow_file_writes) == (30.0, False, False)
    assert (adapter.quiet_period_ms, adapter.model_id, adapter.mode_id, adapter.emit_thought_chunks) == (500, None, None, False)
    assert GeminiACPAdapterConfig(model_id="x").model_id == "x"
    assert adapter.model_validation == "warn" and OpenCodeACPAdapterConfig().model_validation == "strict"
    assert ACPClientConfig().agent_bin == "opencode" and ACPAdapter().adapter_name == "acp"
    for kind, name in ((OpenCodeACPAdapter, "opencode_acp"), (ClaudeACPAdapter, "claude_acp"), (CodexACPAdapter, "codex_acp")):
        assert kind().adapter_name == name


def test_configurations_are_frozen_and_validated() -> None:
    for config in (GeminiACPClientConfig(), ACPAdapterConfig()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            config.agent = "x"  # type: ignore[misc, union-attr]
    with pytest.raises(ValueError, match="cwd must be absolute"):
        GeminiACPClientConfig(cwd="relative")
    with pytest.raises(ValueError, match="time zone"):
        Deadline(datetime(2030, 1, 1))


def test_prompts_are_rendered_from_dataclasses() -> None:
    @dataclasses.dataclass
    class Where:
        folder: str

    sections = (
        MarkdownSection(title="Task", key="task", template="Review ${folder}."),
        MarkdownSection(title="Style", key="style", template="\n    Cost: $$5\n"),
    )
    template = PromptTemplate[CodeReview](ns="demo", key="review", sections=sections)
    made = Prompt(template).bind(Where("src"))
    assert made.render().text == "## 1. Task\n\nReview src.\n\n## 2. Style\n\nCost: $5"
    assert (made.name, made.output_type) == ("demo/review", CodeReview)
    assert Prompt(PromptTemplate(ns="a", key="b", sections=())).output_type is None
    with pytest.raises(ValueError, match=r"`\$\{folder\}` has no value; bind a dataclass"):
        Prompt(template).render()
    with pytest.raises(TypeError):
        Prompt(template, {"folder": "src"})


def test_evaluation_returns_an_answer_and_dispatches_events(adapter: GeminiACPAdapter) -> None:
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    events: list[Any] = []
    bus = InProcessDispatcher()
    for kind in (PromptRendered, ToolInvoked, PromptExecuted):
        bus.subscribe(kind, events.append)
    task = prompt('call agentline add {"a": 2, "b": 3}\ntool read_file missing.txt\nsay Done.\nusage 100 20 30 5', add)
    response = adapter.evaluate(task, events=bus)
    assert response.text is not None and response.text.endswith("Done.") and response.prompt_name == "demo/fake"
    assert (response.usage.input_tokens, response.usage.cached_tokens) == (100, 30)
    rendered, added, read, executed = events
    assert "say Done." in rendered.rendered_prompt and rendered.tools == ("add",) and rendered.adapter == "gemini_acp"
    assert added.name == "mcp__agentline__add" and added.params == {"a": 2, "b": 3} and added.success and added.call_id
    assert read.name == "Read" and not read.success
    assert executed.result is response and executed.usage == response.usage
    assert executed.created_at.tzinfo is not None


def test_invalid_typed_answers_are_repaired(adapter: GeminiACPAdapter) -> None:
    valid = '{"summary": "fine", "issues": [], "score": 9}'
    response = adapter.evaluate(prompt(f"say {valid}", output=CodeReview))
    assert response.output == CodeReview("fine", [], 9)
    by_tool = f'call agentline structured_output {{"data": {{"score": 1}}}}\ncall agentline structured_output {{"data": {valid}}}'
    assert adapter.evaluate(prompt(by_tool, output=CodeReview)).output == CodeReview("fine", [], 9)
    assert adapter.evaluate(prompt("say [1, 2]", output=list[int])).output == [1, 2]
    with pytest.raises(PromptEvaluationError) as caught:
        adapter.evaluate(prompt("say no value at all", output=CodeReview))
    assert (caught.value.phase, caught.value.verdict) == ("response", "invalid_output")
    assert caught.value.raw_text and caught.value.prompt_name == "demo/fake"


def test_permission_and_check_callbacks(stage: Stage, adapter: GeminiACPAdapter) -> None:
    def permission(ask: PermissionAsk) -> bool | Deny:
        return ask.paths == ("good.txt",) or ask.paths[0].endswith("/good.txt") or Deny("no")

    script = "ask write_file good.txt x\nask write_file bad.txt x\nsay ok"
    response = adapter.evaluate(prompt(script), permission=permission)
    assert [row.path for row in response.outcome.files] == ["good.txt"] and response.outcome.denied[0].reason == "no"
    # Without a callback, the permission mode `auto` decides.
    assert len(adapter.evaluate(prompt("ask write_file other.txt x\nsay ok")).outcome.files) == 1
    rounds: list[str] = []

    def check(answer: Answer) -> bool:
        rounds.append(answer.text)
        return len(rounds) == 2

    adapter.evaluate(prompt("say x"), check=check)
    assert len(rounds) == 2


def test_deadlines(adapter: GeminiACPAdapter) -> None:
    past = Deadline(datetime.now(timezone.utc) - timedelta(seconds=1))
    bare = datetime.now() - timedelta(seconds=1)
    for options in ({"deadline": past}, {"deadline": past.expires_at}, {"deadline": bare}, {"budget": Budget(deadline=past)}):
        with pytest.raises(PromptEvaluationError, match="Deadline expired before ACP invocation") as caught:
            adapter.evaluate(prompt("say x"), **options)  # type: ignore[arg-type]
        assert caught.value.phase == "request"
    soon = Deadline(datetime.now(timezone.utc) + timedelta(seconds=1))
    with pytest.raises(PromptEvaluationError) as caught:
        adapter.evaluate(prompt("say up\nhang"), deadline=soon)
    assert (caught.value.verdict, caught.value.phase) == ("timed_out", "budget")


def test_messages_are_separated_by_blank_lines(adapter: GeminiACPAdapter) -> None:
    script = "say I look.\ntool read_file a.txt\nsay It is mis\nsay sing.\ntool read_file b.txt\nsay So is that."
    response = adapter.evaluate(prompt(script))
    assert response.text == "I look.\n\nIt is missing.\n\nSo is that.", response.text


def test_a_tracker_adds_up_the_usage_of_several_evaluations(adapter: GeminiACPAdapter) -> None:
    tracker = BudgetTracker(Budget(max_total_tokens=250))
    adapter.evaluate(prompt("say x\nusage 100 20"), budget_tracker=tracker)
    assert tracker.left() == {"max_total_tokens": 130}
    with pytest.raises(PromptEvaluationError) as caught:
        adapter.evaluate(prompt("say x\nusage 200 20"), budget_tracker=tracker)
    assert caught.value.phase == "budget"
    with pytest.raises(PromptEvaluationError, match="exhausted: max_total_tokens") as caught:
        adapter.evaluate(prompt("say x"), budget_tracker=tracker)
    assert caught.value.phase == "budget" and caught.value.outcome is None
    with pytest.raises(PromptEvaluationError, match="max_input_tokens"):
        adapter.evaluate(prompt("say x\nusage 100 20"), budget=Budget(max_input_tokens=50))


def test_errors_have_a_phase(stage: Stage, adapter: GeminiACPAdapter) -> None:
    def phase(task: Prompt[Any], adapter: GeminiACPAdapter = adapter) -> str | None:
        with pytest.raises(PromptEvaluationError) as caught:
            adapter.evaluate(task)
        return caught.value.phase

    empty = PromptTemplate[str](ns="demo", key="open", sections=(MarkdownSection("Task", "task", "${unbound}"),))
    assert phase(Prompt(empty)) == "request"
    assert phase(prompt("stop end_turn")) == "response", "an empty answer is an error"
    assert phase(prompt("die 3")) == "response"
    for model, validation, is_accepted in (
        ("fake-large", "strict", True),
        ("no-such-model", "warn", True),
        ("no-such-model", "strict", False),
    ):
        config = GeminiACPAdapterConfig(model_id=model, quiet_period_ms=0, model_validation=validation)  # type: ignore[arg-type]
        with GeminiACPAdapter(
            adapter_config=config,
            client_config=GeminiACPClientConfig(cwd=stage.workspace),
            binary=stage.binary,
            host_env=stage.env,
        ) as other:
            if is_accepted:
                assert other.evaluate(prompt("say x")).text == "x"
            else:
                assert phase(prompt("say x"), other) == "request"


def test_temporary_workspace_and_environment_variables(stage: Stage) -> None:
    stage.acp()
    config = GeminiACPClientConfig(env={"ODD_VARIABLE": "seen"}, startup_timeout_s=60.0)
    fast = GeminiACPAdapterConfig(quiet_period_ms=0)
    with GeminiACPAdapter(adapter_config=fast, client_config=config, binary=stage.binary, host_env=stage.env) as adapter:
        assert adapter.evaluate(prompt("env ODD_VARIABLE")).text == "ODD_VARIABLE=seen"
        assert adapter.evaluate(prompt("env STAGE_ID")).text == f"STAGE_ID={stage.folder}", "`env` extends the environment"
        folder = adapter.evaluate(prompt("cwd")).text or ""
        assert "agentline-acp-" in folder
