"""The asynchronous client with a fake agent and the real host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from conftest import Stage

from agentline import (
    Answer,
    AsyncAgentline,
    ClientClosed,
    Event,
    Finished,
    HostDied,
    PermissionAsk,
    RunFailed,
    Text,
    ToolCall,
)


def run_with_client(stage: Stage, scenario: Callable[[AsyncAgentline], Awaitable[None]]) -> None:
    """Runs a scenario with a client of the fake agent."""

    async def main() -> None:
        async with asyncio.timeout(120), stage.acp().async_client() as client:
            await scenario(client)

    asyncio.run(main())


def test_runs_streams_and_conversations(stage: Stage) -> None:
    async def scenario(client: AsyncAgentline) -> None:
        assert (await client.run("say hi")).text == "hi"
        events = [event async for event in client.stream("say a\nsay b")]
        assert "".join(e.text for e in events if isinstance(e, Text)) == "ab"
        assert isinstance(events[-1], Finished)
        async with client.session() as conversation:
            assert (await conversation.prompt("say one")).text == "one"
            assert "say one" in (await conversation.prompt("history")).text
        with pytest.raises(RunFailed):
            await client.run("die 3")
        assert (await client.run('say {"n": 4}', output=dict[str, int])).value == {"n": 4}
        received: list[Event] = []

        async def on_event(event: Event) -> None:
            await asyncio.sleep(0)
            received.append(event)

        await client.run("say x", on_event=on_event)
        assert received[-1].type == "outcome"
        assert (await client.pool_status()).active == 0
        assert await client.detect() == stage.env["GEMINI_CLI_PATH"]
        assert (await client.capabilities()).agent == "gemini"
        assert await client.sessions() == ()

    run_with_client(stage, scenario)


def test_async_callbacks_run_on_the_event_loop_and_runs_are_concurrent(stage: Stage) -> None:
    async def scenario(client: AsyncAgentline) -> None:
        home = asyncio.get_running_loop()
        met = asyncio.Event()

        async def first() -> str:
            assert asyncio.get_running_loop() is home
            await met.wait()
            return "first"

        async def second() -> str:
            met.set()
            return "second"

        def plain(word: str) -> str:
            return word.upper()

        async def permission(ask: PermissionAsk) -> bool:
            return asyncio.get_running_loop() is home

        async def check(answer: Answer) -> bool:
            return True

        tools = [first, second, plain]
        runs = [
            client.run("call agentline first {}", tools=tools),
            client.run("call agentline second {}", tools=tools),
            client.run('call agentline plain {"word": "x"}', tools=tools),
            client.run("ask write_file a.txt x\nsay ok", permission_mode="default", permission=permission, check=check),
        ]
        texts = [outcome.text for outcome in await asyncio.gather(*runs)]
        assert texts == ["first: first", "second: second", "plain: X", "ok"]

    run_with_client(stage, scenario)


def test_cancelling_a_task_stops_its_run_and_all_its_processes(stage: Stage) -> None:
    async def scenario(client: AsyncAgentline) -> None:
        before = set(stage.living())
        task = asyncio.create_task(client.run("say up\nrun sleep 600"))
        while not set(stage.living()) - before or (await client.pool_status()).active != 1:
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.pool_status()).active == 0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await client.run("hang")
        async for event in client.stream("say up\nhang"):
            if isinstance(event, Text):
                break
        assert (await client.run("say still here")).text == "still here"

    run_with_client(stage, scenario)


def test_a_tool_call_of_a_cancelled_run_is_cancelled(stage: Stage) -> None:
    async def scenario(client: AsyncAgentline) -> None:
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def endless(call: ToolCall) -> str:
            started.set()
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return "never"

        stream = client.stream("call agentline endless {}", tools=[endless])
        async for event in stream:
            if event.type == "tool_use":
                await started.wait()
                stream.cancel()
        assert (await stream.outcome()).verdict == "cancelled"
        await asyncio.wait_for(cancelled.wait(), 30)

    run_with_client(stage, scenario)


def test_calls_raise_when_the_host_dies(stage: Stage) -> None:
    async def main() -> None:
        client = stage.acp().async_client()
        async with asyncio.timeout(120), client:
            assert client._host is not None
            task = asyncio.create_task(client.run("say up\nhang"))
            while (await client.pool_status()).active != 1:
                await asyncio.sleep(0.02)
            client._host._process.kill()
            with pytest.raises(HostDied):
                await task
            with pytest.raises(HostDied):
                await client.run("say x")
        with pytest.raises(ClientClosed):
            await client.run("say x")

    asyncio.run(main())
