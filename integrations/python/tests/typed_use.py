"""A program for the type checker. It is checked but never run."""

from dataclasses import dataclass
from typing import Any, assert_type

from agentline import Agentline, AsyncAgentline, Event, Outcome
from agentline.adapter import GeminiACPAdapter, MarkdownSection, Prompt, PromptTemplate


@dataclass
class Review:
    score: int


def use(agentline: Agentline, adapter: GeminiACPAdapter) -> None:
    outcome = agentline.run("x", output=Review, timeout=60, permission_mode="plan")
    assert_type(outcome, Outcome[Review])
    assert_type(outcome.value, Review)
    assert_type(agentline.run("x", output=Review, raise_on_failure=False).value, Review | None)
    assert_type(agentline.run("x"), Outcome[Any])
    for event in agentline.stream("x", output=Review):
        assert_type(event, Event)
    with agentline.session(output=Review) as conversation:
        assert_type(conversation.prompt("x").value, Review)
        assert_type(conversation.prompt("x", raise_on_failure=False).value, Review | None)
    assert_type(agentline.stream("x", output=Review).result().value, Review)
    assert_type(agentline.stream("x", output=Review).outcome().value, Review | None)
    # A mode with a typing error is reported by the type checker.
    agentline.run("x", permission_mode="accept_edits", surface="pty")  # type: ignore[call-overload]
    template = PromptTemplate[Review](ns="a", key="b", sections=(MarkdownSection("t", "k", "x"),))
    assert_type(adapter.evaluate(Prompt(template)).output, Review | None)


async def use_async(agentline: AsyncAgentline) -> None:
    assert_type(await agentline.run("x", output=Review), Outcome[Review])
    assert_type((await agentline.run("x", output=Review, raise_on_failure=False)).value, Review | None)
    async for event in agentline.stream("x"):
        assert_type(event, Event)
