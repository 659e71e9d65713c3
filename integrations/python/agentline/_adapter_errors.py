"""The error of an adapter, and the hints of its messages in terms of its configuration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .errors import AgentlineError, join_class
from .outcome import Outcome

if TYPE_CHECKING:
    from ._transcript import TranscriptEntry

#: How many characters of an invalid answer an error contains.
RAW_TEXT_LENGTH = 2000
#: The fields of the configuration that have another name than their key.
FIELDS = {
    "model": "model_id",
    "timeout": "timeout_s",
    "startup_timeout": "startup_timeout_s",
    "working_dir": "cwd",
    "max_tokens": "Budget.max_total_tokens",
    "max_output_tokens": "Budget.max_output_tokens",
    "max_cost": "Budget.max_cost_usd",
}


class PromptEvaluationError(AgentlineError):
    """A prompt was not answered. `phase` is `request`, `response`, `tool` or `budget`.

    In a program that uses WINK, this is also its `PromptEvaluationError`.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> PromptEvaluationError:
        return super().__new__(join_class(cls, "weakincentives.errors", "PromptEvaluationError"))

    def __init__(
        self,
        message: str,
        *,
        prompt_name: str,
        phase: str,
        hint: str | None = None,
        outcome: Outcome[Any] | None = None,
        provider_payload: dict[str, Any] | None = None,
    ) -> None:
        verdict = outcome.verdict if outcome else None
        super().__init__(message, hint=_name_fields(hint), verdict=verdict, phase=phase, outcome=outcome)
        self.prompt_name = prompt_name
        #: What the agent answered, as far as there is an answer: `raw_text`.
        self.provider_payload = provider_payload
        #: The conversation up to the error.
        self.transcript: tuple[TranscriptEntry, ...] = ()

    @property
    def raw_text(self) -> str | None:
        """The beginning of the answer."""
        return self.provider_payload.get("raw_text") if self.provider_payload else None


def answer_payload(outcome: Outcome[Any]) -> dict[str, Any]:
    """Returns the `provider_payload` of an error with an outcome."""
    return {"raw_text": outcome.text[:RAW_TEXT_LENGTH]}


def _name_fields(hint: str | None) -> str | None:
    """Replaces the keys in a hint with the fields of an adapter's configuration."""
    return hint and re.sub(r"`([a-z_]+)(?=[ `])", lambda key: "`" + FIELDS.get(key[1], key[1]), hint)
