"""Uses the provider for workflow engines: `python workflow_provider.py`. Runs offline with the demo's model."""

from _stage import demo

from agentline.provider import GeminiCliProvider

with demo() as stage, GeminiCliProvider({"model": stage.model, "timeout": 120}) as provider:
    provider.validate()
    result = provider.generate("Write a program that prints the primes below 50.", {"project_root": stage.workspace})

print(result.response)
print(result.files)
