"""Sends a prompt over ACP and receives events as callbacks: `python basic.py`. Runs offline with the demo's model."""

from _stage import demo

from agentline.adapter import (
    GeminiACPAdapter,
    GeminiACPAdapterConfig,
    GeminiACPClientConfig,
    InProcessDispatcher,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Session,
    ToolInvoked,
)

bus = InProcessDispatcher()
session = Session(dispatcher=bus)
bus.subscribe(ToolInvoked, lambda event: print(f"[{event.name}: {'ok' if event.success else event.status}]"))

template = PromptTemplate[str](
    ns="demo",
    key="gemini",
    sections=(
        MarkdownSection(
            title="Task",
            key="task",
            template="Write a program that prints the primes below 50, and leave a note that says so.",
        ),
    ),
)
prompt = Prompt(template)

with demo() as stage:
    adapter = GeminiACPAdapter(
        adapter_config=GeminiACPAdapterConfig(
            model_id=stage.model,
        ),
        client_config=GeminiACPClientConfig(
            cwd=stage.workspace,
            permission_mode="auto",
            allow_file_reads=True,
            # The agent writes files itself; it may not ask agentline to do so.
            allow_file_writes=False,
        ),
    )
    with prompt.resources:
        resp = adapter.evaluate(prompt, session=session)
    adapter.close()

print(resp.text)
print([f"{row.change} {row.path}" for row in resp.outcome.files], f"${resp.outcome.cost_usd:.4f}")
