"""What the provider gives back, and the words of its errors: those of docs/providers.md."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any

from ._lookups import AgentInfo
from .events import Event, Text, Thinking, ToolResult, ToolUse, Unreadable
from .outcome import Denial, Notice, Outcome

#: How many unread lines a warning shows, and how much of each.
SAMPLES, SAMPLE_LENGTH = 3, 50
#: Flags whose key is called otherwise.
FLAGS = {
    "cwd": "working_dir",
    "include-dir": "include_directories",
    "attach": "attachments",
    "system": "system_prompt",
    "mcp": "mcp_servers",
    "schema": "output_schema",
    "quiet-period": "quiet_period_ms",
}
#: The kind of an error and its words, by verdict.
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

    #: All assistant text of all turns, as it was written.
    response: str
    #: The files that the agent created or changed; `None` says that it wrote the file itself.
    files: dict[str, None]
    #: What the caller should know: of the configuration, of the run, of this result.
    warnings: tuple[Notice, ...] = ()
    #: All that the run came to.
    outcome: Outcome[Any] | None = field(default=None, repr=False)

    @property
    def denied(self) -> tuple[Denial, ...]:
        """Tools that the agent wanted and did not get; the answer may be less than was asked for."""
        return self.outcome.denied if self.outcome else ()


class Gathered:
    """Gathers a result while a run goes on."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._last_turn = 0
        self._turn_is_over = self._turn_has_text = False
        self._unread: list[str] = []

    def take(self, event: Event) -> None:
        if isinstance(event, (Text, Thinking, ToolUse)) and self._turn_is_over:
            self._turn_is_over = self._turn_has_text = False
        if isinstance(event, Text):
            if not self._turn_has_text:
                self._turn_has_text, self._last_turn = True, len(self._pieces)
            self._pieces.append(event.text)
        elif isinstance(event, ToolResult):
            self._turn_is_over = True
        elif isinstance(event, Unreadable) and len(self._unread) < SAMPLES:
            self._unread.append(event.sample[:SAMPLE_LENGTH])

    def finish(self, outcome: Outcome[Any], before: tuple[Notice, ...]) -> ProviderResult:
        # Where an agent repeated itself on its way, the outcome has the last turn as it was meant.
        if outcome.text:
            self._pieces[self._last_turn :] = [outcome.text]
        told = [*before, *outcome.warnings]
        if self._unread:
            told.append(
                Notice("malformed_lines", f"Malformed JSON lines: {outcome.unreadable_lines} in total, first: {self._unread}")
            )
        files: dict[str, None] = {}
        missing_files, strange = [], []
        for row in outcome.files:
            if row.change == "deleted":
                continue
            if row.source == "unknown":
                strange.append(row.path)
            elif row.verified or os.path.exists(os.path.join(outcome.cwd, row.path)):
                files[row.path] = None
            else:
                missing_files.append(row.path)
        if missing_files:
            what = "a tool reported that it wrote these files, but they do not exist"
            told.append(Notice("files_missing", f"{what}: {', '.join(missing_files)}"))
        if strange:
            what = "these files changed during the run, but no tool reported them"
            told.append(Notice("files_unknown", f"{what}: {', '.join(strange)}"))
        return ProviderResult("".join(self._pieces), files, tuple(told), outcome)


def missing(card: AgentInfo, detail: str) -> str:
    """Where the program is to be had."""
    detail = "" if detail in ("", f"{card.title} was not found") else f"\n{detail}"
    return (
        f"{card.title} not found. Install from: {card.home_page}\n"
        f"Install with: npm i -g {card.package} (Node.js {card.min_node} or newer){detail}"
    )


def failed(card: AgentInfo, outcome: Outcome[Any], said: str) -> str:
    """The exit code, and standard error where the agent gave no better reason itself."""
    code = "" if outcome.agent_exit_code is None else f" (exit {outcome.agent_exit_code})"
    if outcome.error and outcome.error.kind == "no_result" and outcome.stderr_tail:
        return f"{card.title} failed{code}: {outcome.stderr_tail}"
    return with_stderr(f"{card.title} failed{code}: {said}", outcome)


def with_stderr(message: str, outcome: Outcome[Any]) -> str:
    """Adds standard error, unless the message has it already."""
    stderr = outcome.stderr_tail
    return message if not stderr or stderr in message else f"{message}\n{stderr}"


def keys_for_flags(hint: str | None) -> str | None:
    """Hints name the flags of the command line; here there are only keys."""
    if hint is None:
        return None
    return re.sub(r"`--([a-z][a-z-]*)(?=[ `])", lambda flag: "`" + FLAGS.get(flag[1], flag[1].replace("-", "_")), hint)
