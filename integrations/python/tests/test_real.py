"""The client, the provider and the adapter with the real Gemini CLI and a scripted model."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Stage, needed

import agentline as package
from agentline import Agentline, Answer, Deny, NotAuthenticated, PermissionAsk, Text, TimedOut, ToolResult, tool
from agentline.adapter import (
    GeminiACPAdapter,
    GeminiACPAdapterConfig,
    GeminiACPClientConfig,
    InProcessDispatcher,
    MarkdownSection,
    Prompt,
    PromptExecuted,
    PromptTemplate,
    Session,
    ToolInvoked,
)
from agentline.provider import GeminiCliProvider

pytestmark = pytest.mark.gemini_cli

#: A model with a known price that Gemini CLI uses without its router.
MODEL = "gemini-2.5-pro"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, Agentline]]:
    """One host for all tests of this file, because starting the agent is slow."""
    stage = Stage(tmp_path_factory.mktemp("real")).real()
    with stage.client(defaults={"model": MODEL, "extensions": [], "timeout": 120, "quiet_period_ms": 0}) as client:
        yield stage, client
    stage.assert_no_processes()


def test_an_answer_is_streamed_with_usage_and_cost(real: tuple[Stage, Agentline]) -> None:
    _, client = real
    stream = client.stream("greet me")
    text = "".join(event.text for event in stream if isinstance(event, Text))
    outcome = stream.result()
    assert text == outcome.text == "Hello from the model."
    assert (outcome.agent_version, outcome.surface, outcome.model) == ("0.61.0", "acp", MODEL)
    assert outcome.usage.total_tokens == 125 and outcome.cost_usd and outcome.session_id


def test_functions_are_called_and_files_are_written(real: tuple[Stage, Agentline]) -> None:
    stage, client = real
    asked: list[int] = []

    def lookup(order: int) -> dict[str, Any]:
        """Looks up an order."""
        asked.append(order)
        if order == 8:
            raise LookupError("no such order")
        return {"order": order, "state": "sent"}

    results: list[Any] = []
    outcome = client.run(
        "use my tool",
        tools=[lookup],
        tool_server="shop",
        on_event=lambda event: results.append(event) if isinstance(event, ToolResult) else None,
    )
    assert outcome.text == "One was sent, the other is not there." and asked == [7, 8]
    assert "sent" in results[0].content and "LookupError: no such order" in results[1].content
    # Every kind of value reaches the model, which the agent would reject as bare JSON.
    values = {"int": 42, "float": 0.5, "list": [1, "two"], "bool": False, "none": None, "text": "42", "nested": [{"a": [None]}]}
    returning = [tool(name=f"get_{name}")(lambda value=value: value) for name, value in values.items()]
    returning = [dataclasses.replace(one, input_schema={"type": "object"}, types={}) for one in returning]
    results.clear()
    client.run(
        "use every value",
        tools=returning,
        tool_server="shop",
        on_event=lambda event: results.append(event) if isinstance(event, ToolResult) else None,
    )
    assert [one.is_error for one in results] == [False] * 7, results
    outcome = client.run("write two files")
    assert {row.path: row.verified for row in outcome.files} == {"a.txt": True, "b.txt": True}
    assert (stage.workspace / "b.txt").read_text() == "two, mended\n"


def test_the_permission_callback_denies_a_tool_call(real: tuple[Stage, Agentline]) -> None:
    stage, client = real
    asked: list[PermissionAsk] = []

    def permission(ask: PermissionAsk) -> bool | Deny:
        asked.append(ask)
        return Deny("not this one")

    outcome = client.run("ask before you write", permission_mode="default", permission=permission)
    assert outcome.verdict == "done_with_denials" and outcome.denied[0].reason == "not this one"
    assert asked[0].tool == "Write" and not (stage.workspace / "asked.txt").exists()


def test_the_agent_is_prompted_again_until_the_check_passes(real: tuple[Stage, Agentline]) -> None:
    _, client = real
    seen: list[str] = []

    def check(answer: Answer) -> str | None:
        seen.append(answer.text)
        return None if len(seen) == 2 else "the second part is missing"

    assert client.run("do both parts", check=check).text == "And here is the second."
    assert seen == ["Here is the first part.", "And here is the second."]


def test_a_conversation_keeps_its_history_and_is_saved(real: tuple[Stage, Agentline]) -> None:
    stage, client = real
    with client.session() as conversation:
        assert conversation.prompt("greet me").text == "Hello from the model."
        assert conversation.prompt("say goodbye").text == "Goodbye."
    saved = {one.id: one for one in client.sessions(project=stage.workspace)}
    assert saved[conversation.session_id].prompts == 2 and saved[conversation.session_id].agent == "gemini"
    loaded = client.load_session(conversation.session_id)
    assert loaded.session.id == conversation.session_id and "Goodbye." in str(loaded.messages[-1])
    found = client.search_sessions("goodbye", project=stage.workspace)
    assert [one.session.id for one in found] == [conversation.session_id]


def test_failures_raise_their_own_exception(real: tuple[Stage, Agentline]) -> None:
    _, client = real
    with pytest.raises(TimedOut) as caught:
        client.run("hang", timeout=3)
    assert caught.value.phase == "budget"
    with pytest.raises(NotAuthenticated) as refused:
        client.run("refuse my key")
    assert refused.value.hint
    assert client.capabilities().models


def test_the_provider(real: tuple[Stage, Agentline]) -> None:
    stage, client = real
    folder = stage.folder / "project"
    folder.mkdir()
    (folder / "plan.md").write_text("write two files")
    provider = GeminiCliProvider({"model": MODEL, "extensions": [], "timeout": 120}, client=client)
    provider.validate()
    result = provider.generate("write two files", {"project_root": folder})
    assert result.response == "I begin.Both are written." and result.files == {"a.txt": None, "b.txt": None}
    # Headless (`stream-json`), and with a prompt file.
    cold = GeminiCliProvider({**provider.config, "surface": "stream-json", "max_retries": 0}, client=client)
    result = cold.generate("greet me", {"project_root": folder}, "Be brief.")
    assert result.response == "Hello from the model." and result.outcome is not None
    assert result.outcome.surface == "stream-json"
    assert provider.generate("", {"project_root": folder, "prompt_file": "plan.md"}).response == "I have read the plan."


@dataclass(frozen=True)
class CodeReview:
    summary: str
    issues: list[str]
    score: int


@dataclass(frozen=True)
class Where:
    folder: str


def test_the_adapter(real: tuple[Stage, Agentline]) -> None:
    stage, client = real
    events: list[Any] = []
    bus = InProcessDispatcher()
    for kind in (ToolInvoked, PromptExecuted):
        bus.subscribe(kind, events.append)

    def lookup(order: int) -> str:
        """Looks up an order."""
        return f"{order} was sent"

    adapter = GeminiACPAdapter(
        adapter_config=GeminiACPAdapterConfig(model_id=MODEL, quiet_period_ms=0),
        client_config=GeminiACPClientConfig(cwd=stage.workspace),
        client=client,
    )
    task = MarkdownSection(title="Task", key="task", template="review the changes in ${folder}")
    template = PromptTemplate[CodeReview](ns="demo", key="review", sections=(task,))
    typed = Prompt(template).bind(Where("src"))
    with typed.resources:
        review = adapter.evaluate(typed, session=Session(dispatcher=bus))
    assert review.output == CodeReview("Small and clear.", ["no test"], 9), "corrected after an invalid value"
    assert isinstance(events[-1], PromptExecuted) and review.usage.total_tokens
    assert [event.success for event in events[:-1]] == [False, True]

    events.clear()
    task = MarkdownSection(title="Task", key="task", template="use a tool of ${folder}", tools=(lookup,))
    shop = Prompt(PromptTemplate[str](ns="demo", key="shop", sections=(task,)), Where("the shop"))
    response = adapter.evaluate(shop, session=Session(dispatcher=bus))
    by_name = {event.native_name: event for event in events if isinstance(event, ToolInvoked)}
    assert by_name["mcp_agentline_lookup"].params == {"order": 7} and by_name["mcp_agentline_lookup"].success
    # Over ACP, Gemini CLI does not report the arguments of this tool; its session file has them.
    assert by_name["list_directory"].params, by_name["list_directory"]
    inputs = [entry.detail["input"] for entry in response.transcript if entry.entry_type == "tool_use"]
    assert len(inputs) == 2 and all(inputs)


@pytest.mark.parametrize(
    ("example", "says"),
    [
        ("basic", "`primes.py` prints the primes below 50"),
        ("structured_output", "9 of 10: Small and clear. ['no test']"),
        ("custom_environment", "first event after"),
        ("workflow_provider", "{'SUMMARY.txt': None, 'primes.py': None}"),
        ("client", "Your order was sent on Monday."),
    ],
)
def test_the_examples_run(stage: Stage, example: str, says: str) -> None:
    folder = Path(__file__).parents[1] / "examples"
    env = {**stage.env, "GEMINI_CLI_PATH": needed("AGENTLINE_TEST_GEMINI"), "AGENTLINE_BIN": stage.binary}
    env["PYTHONPATH"] = str(Path(package.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, folder / f"{example}.py"], env=env, cwd=stage.workspace, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
    assert os.listdir(stage.folder / "tmp") == [], "the temporary directories are removed"
