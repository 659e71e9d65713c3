"""What happened in an evaluation: the transcript, and the updates that an adapter's override points see."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from .events import Event, Retry, Text, Thinking, ToolResult, ToolUse, Warned
from .outcome import Outcome

#: How many characters of a tool's output `ACPClient.tool_call_tracker` keeps.
TRACKED_OUTPUT = 1000
#: The warnings with which a new round begins.
ROUNDS = frozenset({"round", "repair", "denial_reason"})


@dataclass(frozen=True)
class TranscriptEntry:
    """One entry of a transcript. `entry_type` is `user_message`, `assistant_message`, `thinking`, `tool_use` or
    `tool_result`. `detail` has `text`, or `tool_name`, `tool_call_id`, `input`, `status` and `output`."""

    entry_type: str
    sequence_number: int
    detail: Mapping[str, Any]
    timestamp: datetime = field(default_factory=lambda: datetime.now(timezone.utc))


class TranscriptBuilder:
    """Builds a transcript from events. Pieces of one text become one entry."""

    def __init__(self, prompt: str) -> None:
        self._entries: list[TranscriptEntry] = []
        self._kind, self._pieces = "", [""]
        self._add("user_message", {"text": prompt})

    def add_event(self, event: Event) -> None:
        """Adds an event of the run."""
        if isinstance(event, (Text, Thinking)):
            kind = "assistant_message" if isinstance(event, Text) else "thinking"
            if kind != self._kind:
                self._end_text()
            self._kind = kind
            self._pieces.append(event.text)
            return
        if isinstance(event, ToolUse):
            self._end_text()
            self._add("tool_use", {"tool_name": event.name, "tool_call_id": event.id, "input": event.input})
        elif isinstance(event, ToolResult):
            self._end_text()
            detail = {"tool_call_id": event.tool_use_id, "status": event.status, "output": event.content or ""}
            self._add("tool_result", detail)
        elif isinstance(event, Warned) and event.code in ROUNDS:
            self._end_text()
            self._add("user_message", {"text": event.message})
        elif isinstance(event, Retry):
            self._end_text()

    def complete(self, inputs: Mapping[str, Any]) -> None:
        """Adds the arguments of tool calls that the agent reported without arguments."""
        for number, entry in enumerate(self._entries):
            if entry.entry_type == "tool_use" and entry.detail["input"] is None:
                detail = {**entry.detail, "input": inputs.get(entry.detail["tool_call_id"])}
                self._entries[number] = replace(entry, detail=detail)

    def entries(self) -> tuple[TranscriptEntry, ...]:
        """Returns the transcript up to now."""
        self._end_text()
        return tuple(self._entries)

    def _end_text(self) -> None:
        text = "".join(self._pieces)
        if text:
            self._add(self._kind, {"text": text})
        self._kind, self._pieces = "", []

    def _add(self, kind: str, detail: Mapping[str, Any]) -> None:
        self._entries.append(TranscriptEntry(kind, len(self._entries) + 1, detail))


@dataclass(frozen=True)
class AgentMessageChunk:
    """A piece of the answer."""

    content: str


@dataclass(frozen=True)
class AgentThoughtChunk:
    """A piece of the model's reasoning."""

    content: str


class ACPClient:
    """The updates of one evaluation, for the override points of an adapter. Each round and each attempt begins without updates."""

    def __init__(self, config: Any = None, *, workspace_root: str | None = None) -> None:
        self.config, self.workspace_root = config, workspace_root
        self.reset_tracking()

    def reset_tracking(self) -> None:
        """Forgets all updates."""
        self.message_chunks: list[AgentMessageChunk] = []
        #: The positions in `message_chunks` at which a new message begins, because a tool call came before it.
        self._message_starts: list[int] = []
        self._is_message_over = False
        self.thought_chunks: list[AgentThoughtChunk] = []
        #: The title, status (`started`, `completed`, `failed`) and output of each tool call.
        self.tool_call_tracker: dict[str, dict[str, str]] = {}
        #: The time of the last update on the monotonic clock.
        self.last_update_time: float | None = None

    def add_event(self, event: Event) -> None:
        """Tracks an event of the run."""
        if isinstance(event, Retry) or (isinstance(event, Warned) and event.code in ROUNDS):
            self.reset_tracking()
            return
        self.last_update_time = time.monotonic()
        if isinstance(event, Text):
            if self._is_message_over and self.message_chunks:
                self._message_starts.append(len(self.message_chunks))
            self._is_message_over = False
            self.message_chunks.append(AgentMessageChunk(event.text))
        elif isinstance(event, Thinking):
            self.thought_chunks.append(AgentThoughtChunk(event.text))
        elif isinstance(event, ToolUse):
            self._is_message_over = True
            self.tool_call_tracker.setdefault(event.id, {"title": event.native_name, "status": "started", "output": ""})
        elif isinstance(event, ToolResult) and event.tool_use_id in self.tool_call_tracker:
            status = "failed" if event.is_error else "completed"
            self.tool_call_tracker[event.tool_use_id].update(status=status, output=(event.content or "")[:TRACKED_OUTPUT])

    def text(self, outcome: Outcome[Any], emit_thoughts: bool) -> str | None:
        """Returns the messages of the last round, separated by blank lines, with the thoughts first if they are emitted."""
        pieces = [chunk.content for chunk in self.message_chunks]
        # If the agent repeated a piece, the outcome has the corrected text of the last turn.
        said = self._messages(pieces) if "".join(pieces).endswith(outcome.text) else outcome.text
        thoughts = "".join(chunk.content for chunk in self.thought_chunks) if emit_thoughts and said else ""
        return thoughts + said or None

    def _messages(self, pieces: list[str]) -> str:
        """Joins the pieces of each message, and the messages with a blank line."""
        said = ""
        for start, end in zip([0, *self._message_starts], [*self._message_starts, len(pieces)]):
            message = "".join(pieces[start:end])
            said = f"{said.rstrip()}\n\n{message.lstrip()}" if said.strip() and message.strip() else said + message
        return said
