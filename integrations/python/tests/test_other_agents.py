"""The adapter of Claude Code, Codex or OpenCode with the real agent and a scripted model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from conftest import needed

from agentline.adapter import (
    ACPAdapter,
    ClaudeACPAdapter,
    CodexACPAdapter,
    InProcessDispatcher,
    MarkdownSection,
    OpenCodeACPAdapter,
    OpenCodeACPAdapterConfig,
    Prompt,
    PromptEvaluationError,
    PromptTemplate,
    Session,
    ToolInvoked,
)

pytestmark = pytest.mark.other_agent

ADAPTERS: dict[str, type[ACPAdapter]] = {"claude": ClaudeACPAdapter, "codex": CodexACPAdapter, "opencode": OpenCodeACPAdapter}


@dataclass(frozen=True)
class Review:
    summary: str
    score: int


def template(kind: Any, text: str, *tools: Any) -> Prompt[Any]:
    section = MarkdownSection(title="Task", key="task", template=text, tools=tools)
    return Prompt(PromptTemplate[kind](ns="demo", key="real", sections=(section,)))


def test_typed_prompts_with_a_real_agent() -> None:
    setup = json.loads(needed("AGENTLINE_TEST_AGENT"))
    kind = ADAPTERS[setup["agent"]]
    asked: list[int] = []

    def lookup(order: int) -> str:
        """Looks up an order."""
        asked.append(order)
        return "sent on Monday"

    bus, calls = InProcessDispatcher(), []
    bus.subscribe(ToolInvoked, calls.append)
    config = kind.adapter_config_class(timeout_s=180, **({"model_id": "scripted/scripted-model"} if kind is OpenCodeACPAdapter else {}))
    client = kind.client_config_class(cwd=setup["workspace"], startup_timeout_s=120)
    with kind(adapter_config=config, client_config=client, binary=needed("AGENTLINE_BIN"), host_env=setup["env"]) as adapter:
        response = adapter.evaluate(template(Review, "Look up the order 7.", lookup), session=Session(dispatcher=bus))
        assert response.output == Review("Order 7 was sent.", 9) and asked == [7]
        assert (response.outcome.agent, response.outcome.surface, response.outcome.verdict) == (setup["agent"], "acp", "done")
        assert "mcp__agentline__lookup" in [call.name for call in calls] and {call.adapter for call in calls} == {kind.name}
        written = adapter.evaluate(template(str, "Write a file."))
        assert written.text == "It is written." and [row.path for row in written.outcome.files] == ["a.txt"]
        if kind is OpenCodeACPAdapter:
            other = OpenCodeACPAdapterConfig(model_id="scripted/other")
            wrong = OpenCodeACPAdapter(adapter_config=other, client_config=client, client=adapter._connected())
            with pytest.raises(PromptEvaluationError, match="Model 'scripted/other' not found in available models: .*scripted"):
                wrong.evaluate(template(str, "Write a file."))
