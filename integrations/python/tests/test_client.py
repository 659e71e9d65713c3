"""The synchronous client with a fake agent and the real host."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypedDict

import pytest
from conftest import Stage

import agentline
from agentline import (
    Agentline,
    Answer,
    ContextWindow,
    Deny,
    Event,
    FileChanged,
    Finished,
    InvalidOutput,
    LimitReached,
    PermissionAsk,
    RateLimited,
    RequestFailed,
    Retry,
    RunFailed,
    RunSettings,
    Started,
    StopRun,
    Text,
    TimedOut,
    ToolCall,
    ToolLocation,
    ToolOutput,
    ToolResult,
    ToolReturn,
    ToolUse,
    UsageError,
    UsageUpdated,
    Warned,
    tool,
)
from agentline.settings import ALIASES


def test_a_run_returns_its_outcome(agentline: Agentline) -> None:
    outcome = agentline.run("say Hello", name="greeting")
    assert (outcome.verdict, outcome.text, outcome.name, outcome.ok) == ("done", "Hello", "greeting", True)
    assert outcome.raw["schema"] == "agentline.outcome/1"
    assert outcome.usage.raw == outcome.raw["usage"]
    assert agentline.server["protocol"] == 1


def test_events_are_streamed_and_the_outcome_is_last(agentline: Agentline) -> None:
    events = list(agentline.stream("say one\nthink hm\nplan\nsay two"))
    assert isinstance(events[0], Started) and events[0].agent == "gemini"
    assert "".join(e.text for e in events if isinstance(e, Text)) == "onetwo"
    # An event without a class of its own is a plain `Event`.
    plan = next(e for e in events if e.type == "plan")
    assert type(plan) is Event and plan.raw["entries"]
    assert isinstance(events[-1], Finished) and events[-1].outcome.text == "onetwo"
    types: list[str] = []
    agentline.run("say a\nplan", events=["plan"], on_event=lambda e: types.append(e.type))
    assert types == ["plan", "outcome"]


def test_events_of_tools_have_what_the_agent_sent(stage: Stage, agentline: Agentline) -> None:
    call = {"toolCallId": "m", "kind": "execute"}
    output = [{"type": "content", "content": {"type": "text", "text": "built"}}]
    updates: list[dict[str, Any]] = [
        {"sessionUpdate": "tool_call", "status": "in_progress", "title": "make", "locations": [{"path": "/a", "line": 3}]},
        {"sessionUpdate": "tool_call_update", "status": "in_progress", "content": output},
        {"sessionUpdate": "tool_call_update", "status": "completed", "rawOutput": {"code": 0}},
    ]
    script = [f"update {json.dumps({**call, **update})}" for update in updates]
    prompt = "\n".join(["used 5 100", "ask write_file a.txt hi\\n", *script, "say Done."])
    events = list(agentline.stream(prompt, permission_mode="accept-edits", diffs=True))
    assert isinstance(events[0], Started) and events[0].schema == "agentline.events/1"
    write, make = (e for e in events if isinstance(e, ToolUse))
    assert make.title == "make" and make.locations == (ToolLocation("/a", 3),)
    assert [diff.new for diff in write.diffs] == ["hi\n"]
    assert [e.text for e in events if isinstance(e, ToolOutput)] == ["built"]
    written, made = (e for e in events if isinstance(e, ToolResult))
    assert written.diffs == write.diffs and made.raw_output == {"code": 0}
    usage = [e.usage.context for e in events if isinstance(e, UsageUpdated)]
    assert usage[0] == ContextWindow(used=5, size=100)
    change = next(e for e in events if isinstance(e, FileChanged))
    assert change.diff == "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+hi\n"
    last = events[-1]
    assert isinstance(last, Finished)
    assert last.outcome.files[0].diff == change.diff and last.outcome.usage.context == usage[0]


def test_leaving_a_stream_early_stops_the_run(stage: Stage, agentline: Agentline) -> None:
    with agentline.stream("say begun\nrun sleep 600") as events:
        next(e for e in events if e.type == "tool_use")
    assert agentline.pool_status().active == 0
    with agentline.stream("say begun\nhang", run="mine") as events:
        next(e for e in events if isinstance(e, Text))
        with pytest.raises(UsageError, match="`mine` is already in progress"):
            agentline.run("say x", run="mine")
        assert agentline.cancel("mine") is True
        assert events.outcome().verdict == "cancelled"
    assert agentline.cancel("mine") is False
    assert agentline.run("say still here").text == "still here"


def test_invalid_requests_raise_with_key_and_hint(agentline: Agentline) -> None:
    with pytest.raises(UsageError) as caught:
        agentline.run("x", timeout="soon", permission_mode="perhaps")
    keys = {problem.key for problem in caught.value.problems}
    assert {"timeout", "permission_mode"} <= keys
    assert "10m" in (caught.value.hint or "") and caught.value.phase == "request"
    assert str(caught.value).count("hint:") == 1
    with pytest.raises(UsageError, match="is empty"):
        agentline.run("")
    for prompt in ("\ud800", float("nan")):
        with pytest.raises(UsageError, match="cannot be sent as JSON"):
            agentline.run("x", extra={"system_prompt": prompt})


def test_a_misspelled_option_is_refused_before_anything_starts(agentline: Agentline, stage: Stage) -> None:
    before = len(stage.living())
    calls: list[tuple[Any, str, str]] = [
        (lambda: agentline.run("say x", timout=5), "timout", "did you mean `timeout`?"),  # type: ignore[call-overload]
        (lambda: agentline.stream("say x", permision=print), "permision", "`permission`"),  # type: ignore[call-overload]
        (lambda: agentline.session(maxTurn=1), "maxTurn", "`max_turns`"),  # type: ignore[call-overload]
        (lambda: agentline.run("say x", xyzzy=1), "xyzzy", "`extra` takes"),  # type: ignore[call-overload]
        # The host checks what the package does not know, and what is nested.
        (lambda: agentline.run("say x", extra={"modle": 1}), "modle", "`model`"),
        (lambda: agentline.run("say x", agents={"a": {"comand": "x"}}), "agents.a.comand", "`agents.a.command`"),
        (lambda: agentline.session(messages=True), "messages", "with each prompt"),
        (lambda: agentline.prewarm(modle="x"), "modle", "`model`"),  # type: ignore[call-arg]
        (lambda: agentline.configure_pool(max_process=1), "max_process", "`max_processes`"),  # type: ignore[call-arg]
        (lambda: stage.client(defaults={"timout": 5}), "timout", "`timeout`"),
        (lambda: stage.client(pool={"max_process": 1}), "pool", ""),
    ]
    for call, key, hint in calls:
        with pytest.raises(UsageError) as caught:
            call()
        assert [problem.key for problem in caught.value.problems] == [key]
        assert hint in (caught.value.hint or ""), caught.value.hint
    assert len(stage.living()) == before


def test_a_failed_request_has_its_hint_as_an_attribute(agentline: Agentline) -> None:
    with pytest.raises(RequestFailed) as caught:
        agentline.load_session("no-such-session")
    assert "hint" not in caught.value.message and caught.value.hint and str(caught.value).count("hint:") == 1


def test_a_failed_run_raises_with_its_outcome(agentline: Agentline) -> None:
    with pytest.raises(RunFailed) as caught:
        agentline.run("say so far\ndie 3")
    error = caught.value
    assert (error.verdict, error.phase) == ("failed", "response")
    assert error.outcome.text == "so far" and error.kind
    outcome = agentline.run("say so far\ndie 3", raise_on_failure=False)
    assert outcome.verdict == "failed" and outcome.error is not None and outcome.error.message
    # The agent has been restarted, so the timeout covers the prompt only.
    assert agentline.run("say back").text == "back"
    with pytest.raises(TimedOut) as timed:
        agentline.run("say up\nhang", timeout=timedelta(seconds=2))
    assert timed.value.phase == "budget" and timed.value.outcome.text == "up"
    with pytest.raises(TimedOut):
        agentline.run("hang", deadline=datetime.now(timezone.utc) + timedelta(seconds=1))
    with pytest.raises(LimitReached):
        agentline.run("tool read_file a\ntool read_file b\ntool read_file c\nsay x", max_tool_calls=1)


def test_a_rate_limited_run_is_retried_and_reported(agentline: Agentline) -> None:
    events: list[Event] = []
    with pytest.raises(RateLimited) as caught:
        agentline.run("error 429 quota exceeded. Please retry in 1s", max_retries=1, on_event=events.append)
    retries = [e for e in events if isinstance(e, Retry)]
    assert [e.attempt for e in retries] == [2] and retries[0].wait_ms >= 1000 and retries[0].model is None
    events.clear()
    refused = "refused 1 refusals You have exhausted your daily quota on this model.\nsay second model"
    outcome = agentline.run(refused, fallback_models=["gemini-2.5-pro"], retry_after_changes=True, on_event=events.append)
    assert outcome.text == "second model" and outcome.attempts == 2
    assert [(e.wait_ms, e.model) for e in events if isinstance(e, Retry)] == [(0, "gemini-2.5-pro")]
    assert caught.value.outcome.attempts == 2 and caught.value.retryable
    assert caught.value.outcome.error is not None and caught.value.outcome.error.retry_after_ms == 1000


def test_the_permission_callback_decides_tool_calls(stage: Stage, agentline: Agentline) -> None:
    asked: list[PermissionAsk] = []

    def permission(ask: PermissionAsk) -> bool | Deny:
        asked.append(ask)
        if "broken" in ask.paths[0]:
            raise RuntimeError("no idea")
        return True if "good" in ask.paths[0] else Deny("not on a Sunday")

    def run(file: str) -> Any:
        prompt = f"ask write_file {file} hi\nsay done"
        return agentline.run(prompt, permission_mode="default", permission=permission)

    assert [row.path for row in run("good.txt").files] == ["good.txt"]
    assert (asked[0].tool, asked[0].diffs[0]["new"]) == ("Write", "hi")
    refused = run("bad.txt")
    assert refused.verdict == "done_with_denials" and refused.denied[0].reason == "not on a Sunday"
    assert "RuntimeError: no idea" in run("broken.txt").denied[0].reason
    assert sorted(p.name for p in stage.workspace.iterdir()) == ["good.txt"]

    async def later(ask: PermissionAsk) -> bool:
        return True

    outcome = agentline.run("ask write_file c.txt hi\nsay done", permission_mode="default", permission=later)
    assert outcome.verdict == "done"


def test_the_check_callback_decides_when_a_task_is_complete(agentline: Agentline) -> None:
    seen: list[Answer] = []

    def check(answer: Answer) -> str | None:
        seen.append(answer)
        return None if "second" in answer.text else "say second"

    assert agentline.run("say first", check=check, max_rounds=3).verdict == "done"
    assert seen[0].text == "first" and len(seen) == 2 and seen[0].working_dir
    with pytest.raises(LimitReached):
        agentline.run("say first", check=lambda answer: False, max_rounds=1)

    def broken(answer: Answer) -> bool:
        raise ZeroDivisionError("my own mistake")

    with pytest.raises(ZeroDivisionError, match="my own mistake"):
        agentline.run("say first", check=broken)
    with agentline.session(check=broken) as conversation, pytest.raises(ZeroDivisionError):
        conversation.prompt("say first")


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


@dataclasses.dataclass(frozen=True)
class Review:
    summary: str
    score: int
    mood: Mood = Mood.GOOD
    issues: tuple[str, ...] = ()


class Row(TypedDict):
    n: int


def test_answers_have_the_requested_type(agentline: Agentline) -> None:
    outcome = agentline.run('say {"summary": "fine", "score": 9, "mood": "bad", "issues": ["x"]}', output=Review)
    assert outcome.value == Review("fine", 9, Mood.BAD, ("x",))
    assert outcome.output == {"summary": "fine", "score": 9, "mood": "bad", "issues": ["x"]}
    assert agentline.run('say {"n": 4}', output=Row).value == {"n": 4}
    assert agentline.run("say [1, 2]", output=list[int]).value == [1, 2]
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert agentline.run('say {"n": 4}', output=schema).value == {"n": 4}
    with pytest.raises(InvalidOutput) as caught:
        agentline.run('say {"summary": 1}', output=Review, repair_turns=0)
    assert caught.value.phase == "response" and caught.value.outcome.value is None
    with pytest.raises(UsageError, match="has no JSON Schema"):
        agentline.run("x", output=complex)


def test_conversations_keep_their_history(agentline: Agentline) -> None:
    with agentline.session(output=None) as conversation:
        assert conversation.prompt("say one").text == "one"
        history = conversation.prompt("history", messages=True)
        assert "say one" in history.text and history.session_id == conversation.session_id
        assert history.messages and history.messages[-1]["role"] == "assistant"
        assert [e.type for e in conversation.stream("say two")][-1] == "outcome"
    with pytest.raises(UsageError, match="no open conversation"):
        conversation.prompt("say x")
    calls: list[int] = []

    def note(n: int) -> str:
        calls.append(n)
        return f"noted {n}"

    with agentline.session(tools=[note]) as conversation:
        assert "noted 1" in conversation.prompt('call agentline note {"n": 1}').text
        assert "noted 2" in conversation.prompt('call agentline note {"n": 2}').text
    assert calls == [1, 2]


def test_a_policy_decides_on_tool_calls_and_a_hook_adds_to_their_results(agentline: Agentline) -> None:
    seen: list[Any] = []

    def policy(arguments: Mapping[str, Any], call: ToolCall) -> bool | Deny | None:
        if arguments["n"] == 0:
            return Deny("zero is not for you")
        if arguments["n"] == 9:
            raise RuntimeError("no judge")
        return None if arguments["n"] == 1 else arguments["n"] > 0

    async def after(call: ToolCall, arguments: Mapping[str, Any], output: ToolReturn) -> str | None:
        seen.append((call.number, dict(arguments), output))
        if output.value == 6:
            raise RuntimeError("no word")
        return "and a note"

    @tool(policy=policy, after=after)
    def double(n: int, call: ToolCall) -> int:
        """Doubles a number."""
        if n == 2:
            raise ValueError("not two")
        return n * 2

    calls = "\n".join(f'call agentline double {{"n": {n}}}' for n in (1, 2, 3, 0, -1, 9))
    events: list[Any] = []
    agentline.run(calls, tools=[double], on_event=events.append)
    text = "\n".join(event.content or "" for event in events if isinstance(event, ToolResult))
    assert "2\n\nand a note" in text and "ValueError: not two\n\nand a note" in text
    assert "zero is not for you" in text and "the policy of the tool denies this call" in text
    assert "the policy of the tool failed: RuntimeError: no judge" in text
    assert seen[0] == (1, {"n": 1}, ToolReturn(2)) and seen[1][2] == ToolReturn("ValueError: not two", is_error=True)
    assert [one[1]["n"] for one in seen] == [1, 2, 3]


def test_a_tool_can_end_the_run(agentline: Agentline) -> None:
    class SectionNeeded(StopRun):
        def __init__(self, section: str) -> None:
            super().__init__(f"{section} is needed")
            self.section = section

    def open_section(section: str) -> str:
        raise SectionNeeded(section)

    events: list[Any] = []
    with pytest.raises(SectionNeeded) as caught:
        agentline.run('call agentline open_section {"section": "appendix"}\nsay more', tools=[open_section], on_event=events.append)
    assert caught.value.section == "appendix"
    warnings = [e for e in events if isinstance(e, Warned)]
    assert any(one.code == "stopped_by_tool" and "appendix is needed" in one.message for one in warnings)
    assert agentline.run("say still here").text == "still here"


def test_attachments_and_paths(stage: Stage, agentline: Agentline) -> None:
    (stage.workspace / "sub").mkdir()
    note = stage.workspace / "note.txt"
    note.write_text("remember")
    outcome = agentline.run("echo_prompt", attachments=[note, {"name": "dot.png", "data": "iVBORw0KGgo="}])
    assert "image" in outcome.text
    assert agentline.run("cwd", working_dir=stage.workspace / "sub").text.endswith("/sub")


def test_lookups(stage: Stage, agentline: Agentline) -> None:
    gemini = next(one for one in agentline.agents() if one.id == "gemini")
    assert gemini.title == "Gemini CLI" and "acp" in gemini.surfaces and gemini.package == "@google/gemini-cli"
    assert agentline.detect() == stage.env["GEMINI_CLI_PATH"]
    can = agentline.capabilities("gemini")
    assert can.agent == "gemini" and can.models and can.raw["supports_thinking"] is can.supports_thinking
    with pytest.raises(UsageError, match="gemini"):
        agentline.detect("geminy")
    assert agentline.prewarm(1) >= 1
    assert agentline.pool_status().processes
    agentline.configure_pool(max_processes=2, idle_s=60)
    assert agentline.sessions(limit=5) == ()
    assert agentline.search_sessions("nothing") == ()
    with pytest.raises(agentline_errors(), match="no session `.*` found"):
        agentline.load_session("zzzzzz")


def agentline_errors() -> type[Exception]:
    return agentline.AgentlineError


def test_many_threads_can_share_a_client(agentline: Agentline) -> None:
    def run(n: int) -> str:
        return agentline.run(f"chunks 20 part{n} {{n}} \nsay end {n}", permission_mode="plan").text

    with ThreadPoolExecutor(8) as threads:
        for n, text in enumerate(threads.map(run, range(24))):
            assert text.endswith(f"end {n}") and f"part{n} 20" in text
    assert len(agentline.pool_status().processes) <= 4
    assert threading.active_count() < 20


def test_every_configuration_key_is_typed() -> None:
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
    table = page.split("<!-- keys -->")[1].split("<!-- end of keys -->")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    keys = {row[1].strip(" `") for row in rows}
    aliases = {alias for row in rows for alias in re.findall(r"`(\w+)`", row[2])}
    assert len(keys) > 50
    assert keys - {"prompt"} == set(RunSettings.__annotations__)
    assert aliases | {"prompt"} == ALIASES
