"""Gets a typed answer after one correction: `python structured_output.py`. Runs offline with a scripted model."""

from dataclasses import dataclass
from pathlib import Path

from _stage import demo

from agentline.adapter import (
    GeminiACPAdapter,
    GeminiACPAdapterConfig,
    GeminiACPClientConfig,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Session,
)


@dataclass(frozen=True)
class CodeReview:
    """A review of a change.

    Attributes:
        summary: One sentence.
        issues: What to change.
        score: From 0 to 10.
    """

    summary: str
    issues: list[str]
    score: int


@dataclass(frozen=True)
class Change:
    folder: str


template = PromptTemplate[CodeReview](
    ns="demo",
    key="review",
    sections=(
        MarkdownSection(
            title="Task",
            key="task",
            template="Review the code changes in ${folder} and provide a structured assessment.",
        ),
    ),
)
prompt = Prompt(template).bind(Change(folder="src"))

# In this script, the model first submits an invalid value, receives the reason, and corrects it.
with demo(Path(__file__).with_name("review.script.json")) as stage:
    with GeminiACPAdapter(
        adapter_config=GeminiACPAdapterConfig(model_id=stage.model),
        client_config=GeminiACPClientConfig(cwd=stage.workspace),
    ) as adapter:
        with prompt.resources:
            resp = adapter.evaluate(prompt, session=Session())

review: CodeReview | None = resp.output
assert review is not None
print(f"{review.score} of 10: {review.summary} {review.issues}")
