"""The result of the provider and its error messages, as documented in docs/providers.md."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any

from ._lookups import AgentInfo
from .events import Event, Text, Thinking, ToolResult, ToolUse
from .outcome import Denial, Notice, Outcome

#: Flags with a different name than their configuration key.
FLAGS = {
    "cwd": "working_dir",
    "include-dir": "include_directories",
    "attach": "attachments",
    "system": "system_prompt",
    "mcp": "mcp_servers",
    "schema": "output_schema",
    "quiet-period": "quiet_period_ms",
}
#: The kind and the phrase of an error, by verdict.
VERDICTS = {
    "empty": ("blocked", "gave no answer"),
    "not_installed": ("not_found", ""),
    "not_authenticated": ("authentication", ""),
    "timed_out": ("timeout", "timed out"),
    "rate_limited": ("rate_limited", "was rate limited"),
    "untrusted": ("untrusted", "does not trust the workspace"),
    "limit_reached": ("limit_reached", "reached a limit"),
    "cancelled": ("cancelled", "was cancelled"),
    "invalid_output": ("invalid_output", "returned an answer that does not match the schema"),
}


@dataclass(frozen=True)
class ProviderResult:
    """The answer of an agent."""

    #: The assistant text of all turns, unchanged.
    response: str
    #: The files that the agent created or changed. The value is `None` because the agent wrote the file itself.
    files: dict[str, None]
    #: Warnings about the configuration, the run and this result.
    warnings: tuple[Notice, ...] = ()
    #: The complete outcome of the run.
    outcome: Outcome[Any] | None = field(default=None, repr=False)

    @property
    def denied(self) -> tuple[Denial, ...]:
        """The tool calls that were denied. The answer may be incomplete because of them."""
        return self.outcome.denied if self.outcome else ()


class ResultBuilder:
    """Builds a result from the events of a run."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._last_turn = 0
        self._turn_is_over = self._turn_has_text = False

    def add_event(self, event: Event) -> None:
        if isinstance(event, (Text, Thinking, ToolUse)) and self._turn_is_over:
            self._turn_is_over = self._turn_has_text = False
        if isinstance(event, Text):
            if not self._turn_has_text:
                self._turn_has_text, self._last_turn = True, len(self._pieces)
            self._pieces.append(event.text)
        elif isinstance(event, ToolResult):
            self._turn_is_over = True

    def finish(self, outcome: Outcome[Any], config_warnings: tuple[Notice, ...]) -> ProviderResult:
        # If the agent repeated text, the outcome has the corrected text of the last turn.
        if outcome.text:
            self._pieces[self._last_turn :] = [outcome.text]
        warnings = [*config_warnings, *outcome.warnings]
        files: dict[str, None] = {}
        missing_files, unknown_files = [], []
        for row in outcome.files:
            if row.change == "deleted":
                continue
            if row.source == "unknown":
                unknown_files.append(row.path)
            elif row.verified or os.path.exists(os.path.join(outcome.cwd, row.path)):
                files[row.path] = None
            else:
                missing_files.append(row.path)
        if missing_files:
            problem = "a tool reported that it wrote these files, but they do not exist"
            warnings.append(Notice("files_missing", f"{problem}: {', '.join(missing_files)}"))
        if unknown_files:
            problem = "these files changed during the run, but no tool reported them"
            warnings.append(Notice("files_unknown", f"{problem}: {', '.join(unknown_files)}"))
        return ProviderResult("".join(self._pieces), files, tuple(warnings), outcome)


def not_found_message(info: AgentInfo, detail: str) -> str:
    """Returns the message for an agent that is not installed, with the install command."""
    detail = "" if detail in ("", f"{info.title} was not found") else f"\n{detail}"
    return (
        f"{info.title} not found. Install from: {info.home_page}\n"
        f"Install with: npm i -g {info.package} (Node.js {info.min_node} or newer){detail}"
    )


def failure_message(info: AgentInfo, outcome: Outcome[Any], reason: str) -> str:
    """Returns the message for a failed run: the exit code, and stderr if the agent reported no reason."""
    code = "" if outcome.agent_exit_code is None else f" (exit {outcome.agent_exit_code})"
    if outcome.error and outcome.error.kind == "no_result" and outcome.stderr_tail:
        return f"{info.title} failed{code}: {outcome.stderr_tail}"
    return with_stderr(f"{info.title} failed{code}: {reason}", outcome)


def with_stderr(message: str, outcome: Outcome[Any]) -> str:
    """Adds stderr to a message unless the message contains it already."""
    stderr = outcome.stderr_tail
    return message if not stderr or stderr in message else f"{message}\n{stderr}"


def keys_for_flags(hint: str | None) -> str | None:
    """Replaces the command-line flags in a hint with configuration keys."""
    if hint is None:
        return None
    return re.sub(r"`--([a-z][a-z-]*)(?=[ `])", lambda flag: "`" + FLAGS.get(flag[1], flag[1].replace("-", "_")), hint)
