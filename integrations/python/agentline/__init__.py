"""Drives coding-agent CLIs and reports what they did.

    from agentline import Agentline

    with Agentline() as agentline:
        outcome = agentline.run("Say hello")
        print(outcome.text, outcome.files, outcome.cost_usd)

`AsyncAgentline` is the client for asyncio programs. `agentline.provider` is a provider for workflow engines, and
`agentline.adapter` is an adapter for typed prompts.
"""

from ._lookups import AgentInfo, Capabilities, LoadedSession, Model, PoolStatus, SavedSession, SearchResult
from .aio import AsyncAgentline, AsyncConversation, AsyncStream
from .client import Agentline, Conversation, Stream, connect
from .errors import (
    AgentlineError,
    BinaryNotFound,
    Cancelled,
    ClientClosed,
    EmptyAnswer,
    HostDied,
    InvalidOutput,
    LimitReached,
    NotAuthenticated,
    NotInstalled,
    Problem,
    RateLimited,
    RequestFailed,
    RunFailed,
    TimedOut,
    Untrusted,
    UsageError,
)
from .events import (
    Diff,
    Event,
    FileChanged,
    Finished,
    Permission,
    Retry,
    Started,
    Text,
    Thinking,
    ToolLocation,
    ToolOutput,
    ToolResult,
    ToolUse,
    Unreadable,
    UsageUpdated,
    Warned,
)
from .outcome import ContextWindow, Denial, FileChange, Notice, Outcome, RunError, Usage, Verdict
from .settings import Answer, Deny, PermissionAsk, PermissionMode, PoolSettings, RunOptions, RunSettings, Surface
from .tools import StopRun, Tool, ToolCall, ToolReturn, tool

__version__ = "0.1.0"

__all__ = [
    "AgentInfo",
    "Agentline",
    "AgentlineError",
    "Answer",
    "AsyncAgentline",
    "AsyncConversation",
    "AsyncStream",
    "BinaryNotFound",
    "Cancelled",
    "Capabilities",
    "ClientClosed",
    "ContextWindow",
    "Conversation",
    "Denial",
    "Deny",
    "Diff",
    "EmptyAnswer",
    "Event",
    "FileChange",
    "FileChanged",
    "Finished",
    "HostDied",
    "InvalidOutput",
    "LimitReached",
    "LoadedSession",
    "Model",
    "NotAuthenticated",
    "NotInstalled",
    "Notice",
    "Outcome",
    "Permission",
    "PermissionAsk",
    "PermissionMode",
    "PoolSettings",
    "PoolStatus",
    "Problem",
    "RateLimited",
    "RequestFailed",
    "Retry",
    "RunError",
    "RunFailed",
    "RunOptions",
    "RunSettings",
    "SavedSession",
    "SearchResult",
    "Started",
    "StopRun",
    "Stream",
    "Surface",
    "Text",
    "Thinking",
    "TimedOut",
    "Tool",
    "ToolCall",
    "ToolLocation",
    "ToolOutput",
    "ToolResult",
    "ToolReturn",
    "ToolUse",
    "Unreadable",
    "Untrusted",
    "Usage",
    "UsageError",
    "UsageUpdated",
    "Verdict",
    "Warned",
    "connect",
    "tool",
]
