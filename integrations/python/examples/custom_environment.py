"""Sets variables for one agent and a startup timeout: `python custom_environment.py`. Runs offline with the demo's model."""

from _stage import demo

from agentline.adapter import GeminiACPAdapter, GeminiACPClientConfig, MarkdownSection, Prompt, PromptTemplate

task = MarkdownSection(title="Task", key="task", template="Write a program that prints the primes below 50.")
prompt = Prompt(PromptTemplate[str](ns="demo", key="env", sections=(task,)))

with demo() as stage:
    with GeminiACPAdapter(
        client_config=GeminiACPClientConfig(
            cwd=stage.workspace,
            env={"GEMINI_API_KEY": "a-key-for-this-agent-alone"},
            startup_timeout_s=30.0,
        ),
    ) as adapter:
        resp = adapter.evaluate(prompt)

print(resp.text)
print(f"first event after {resp.outcome.first_event_ms} ms")
