"""Uses the asynchronous client with a function as a tool: `python client.py`. Runs offline with a scripted model."""

import asyncio
from pathlib import Path

from _stage import demo

from agentline import AsyncAgentline, Finished, Text, ToolUse


async def lookup(order: int) -> str:
    """Looks up an order.

    Args:
        order: The order number.
    """
    return f"order {order} was sent on Monday"


async def main() -> None:
    with demo(Path(__file__).with_name("shop.script.json")) as stage:
        async with AsyncAgentline(cwd=stage.workspace, defaults={"model": stage.model}) as agentline:
            async for event in agentline.stream("Where is order 7?", tools=[lookup], tool_server="shop"):
                match event:
                    case Text(text=text):
                        print(text, end="", flush=True)
                    case ToolUse(name=name):
                        print(f"[{name}]")
                    case Finished(outcome=outcome):
                        print(f"\n{outcome.verdict}: {outcome.usage.total_tokens} tokens")


asyncio.run(main())
