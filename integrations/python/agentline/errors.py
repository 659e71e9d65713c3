"""The exceptions of this package, each with a message and, where possible, a hint."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .outcome import Outcome


@dataclass(frozen=True)
class Problem:
    """One problem with a request."""

    key: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        names_it = not self.key or self.message.startswith((self.key, f"`{self.key}`"))
        return self.message if names_it else f"`{self.key}`: {self.message}"


def join_hints(problems: tuple[Problem, ...]) -> str | None:
    """Returns the hints of all problems, each once."""
    return "; ".join(dict.fromkeys(one.hint for one in problems if one.hint)) or None


class AgentlineError(Exception):
    """The base class of all exceptions of this package.

    `verdict` and `phase` have the values of the outcome. They may also be set for an error without an outcome.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        verdict: str | None = None,
        phase: str | None = None,
        outcome: Outcome[Any] | None = None,
    ) -> None:
        # Not `super()`: the next class may be an engine's, with arguments of its own (`join_class`).
        Exception.__init__(self, message)
        self.message = message
        self.hint = hint
        self.verdict = verdict
        self.phase = phase
        self.outcome = outcome

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


E = TypeVar("E", bound=AgentlineError)


def join_class(error: type[E], module: str, name: str) -> type[E]:
    """Returns a subclass of an error class that is also the error class of an engine, so that the engine's own `except`
    catches it. Returns the class itself unless the program has loaded the engine's module."""
    other = getattr(sys.modules.get(module), name, None)
    if not isinstance(other, type) or not issubclass(other, Exception) or issubclass(error, other):
        return error
    joined = _joined.get((error, other))
    if joined is None:
        joined = type(error.__name__, (error, other), {"__module__": error.__module__, "__doc__": error.__doc__})
        _joined[(error, other)] = joined
    return joined


_joined: dict[tuple[type[Any], type[Any]], type[Any]] = {}


class BinaryNotFound(AgentlineError):
    """The program `agentline` was not found or cannot be started."""

    def __init__(self, message: str) -> None:
        hint = "install agentline, or set `binary=` or AGENTLINE_BIN to its path"
        super().__init__(message, hint=hint, phase="request")


class UsageError(AgentlineError, ValueError):
    """The request is invalid and nothing was started. `problems` lists every problem."""

    def __init__(self, message: str, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message, hint=join_hints(problems), phase="request")
        self.problems = problems


class RequestFailed(AgentlineError):
    """agentline could not fulfil a valid request. `code` is the JSON-RPC error code."""

    def __init__(self, message: str, code: int, data: Any = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, phase="request")
        self.code = code
        self.data = data


class HostDied(AgentlineError):
    """The host process of the client has exited, and all its runs have ended."""

    def __init__(
        self, message: str, *, exit_code: int | None = None, stderr_tail: str = "", program: str | None = None
    ) -> None:
        hint = (
            f"check that the program is a current agentline: `{program} --version`" if program else "create a new client"
        )
        super().__init__(message, hint=hint, phase="response")
        #: The program, if it never answered `initialize`.
        self.program = program
        self.exit_code = exit_code
        self.stderr_tail = stderr_tail


class ClientClosed(AgentlineError):
    """The client was closed before or during a request."""

    def __init__(self, message: str = "the client is closed", hint: str = "create a new client") -> None:
        super().__init__(message, hint=hint, phase="request")


class RunFailed(AgentlineError):
    """A run did not succeed. `outcome` is its complete outcome."""

    outcome: Outcome[Any]

    def __init__(self, outcome: Outcome[Any]) -> None:
        error = outcome.error
        reason = error.message if error else f"the run ended with the verdict {outcome.verdict}"
        super().__init__(
            f"{outcome.verdict}: {reason}",
            hint=error.hint if error else None,
            verdict=outcome.verdict,
            phase=error.phase if error else None,
            outcome=outcome,
        )
        self.kind = error.kind if error else None
        self.retryable = bool(error and error.retryable)

    @staticmethod
    def of(outcome: Outcome[Any]) -> RunFailed:
        """Returns the exception for the verdict of an outcome."""
        return BY_VERDICT.get(outcome.verdict, RunFailed)(outcome)


class NotInstalled(RunFailed):
    """The agent is not installed."""


class NotAuthenticated(RunFailed):
    """The agent is not signed in, or its credentials were rejected."""


class EmptyAnswer(RunFailed):
    """The agent gave no answer, or the answer was blocked."""


class LimitReached(RunFailed):
    """A limit such as `max_turns`, `max_tokens` or `max_cost` stopped the run."""


class TimedOut(RunFailed):
    """A timeout or the deadline stopped the run."""


class RateLimited(RunFailed):
    """The run was rejected for load or quota, after all retries."""


class InvalidOutput(RunFailed):
    """The value does not match the schema, after all repair turns."""


class Untrusted(RunFailed):
    """The agent does not trust the working directory."""


class Cancelled(RunFailed):
    """The run was cancelled."""


BY_VERDICT: dict[str, type[RunFailed]] = {
    "not_installed": NotInstalled,
    "not_authenticated": NotAuthenticated,
    "empty": EmptyAnswer,
    "limit_reached": LimitReached,
    "timed_out": TimedOut,
    "rate_limited": RateLimited,
    "invalid_output": InvalidOutput,
    "untrusted": Untrusted,
    "cancelled": Cancelled,
}
