"""What can go wrong, as exceptions that say where, how and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .outcome import Outcome


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with what was asked for."""

    key: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        names_it = not self.key or self.message.startswith((self.key, f"`{self.key}`"))
        return self.message if names_it else f"`{self.key}`: {self.message}"


class AgentlineError(Exception):
    """The root of all errors of this package.

    `verdict` and `phase` are the words of the outcome, where there is one or where they are certain without it.
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
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.verdict = verdict
        self.phase = phase
        self.outcome = outcome

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class BinaryNotFound(AgentlineError):
    """The program `agentline` is not here."""

    def __init__(self, message: str) -> None:
        hint = "install agentline, or name its program by `binary=` or AGENTLINE_BIN"
        super().__init__(message, hint=hint, phase="request")


class UsageError(AgentlineError, ValueError):
    """What was asked for is wrong; nothing was started. `problems` has all of it."""

    def __init__(self, message: str, problems: tuple[Problem, ...] = ()) -> None:
        hints = "; ".join(dict.fromkeys(p.hint for p in problems if p.hint))
        super().__init__(message, hint=hints or None, phase="request")
        self.problems = problems


class RequestFailed(AgentlineError):
    """agentline could not do what it was asked, and it was nobody's mistake in asking. `code` is that of JSON-RPC."""

    def __init__(self, message: str, code: int, data: Any = None) -> None:
        super().__init__(message, phase="request")
        self.code = code
        self.data = data


class HostDied(AgentlineError):
    """The process behind the client is gone, and with it all of its runs."""

    def __init__(
        self, message: str, *, exit_code: int | None = None, stderr_tail: str = "", program: str | None = None
    ) -> None:
        hint = f"see whether it is agentline, and this one or newer: `{program} --version`" if program else "make a new client"
        super().__init__(message, hint=hint, phase="response")
        #: The program, where it never said that it is agentline.
        self.program = program
        self.exit_code = exit_code
        self.stderr_tail = stderr_tail


class ClientClosed(AgentlineError):
    """The client was closed, before or while something was asked of it."""

    def __init__(self, message: str = "the client is closed", hint: str = "make a new client") -> None:
        super().__init__(message, hint=hint, phase="request")


class RunFailed(AgentlineError):
    """A run ended without the answer that was asked for. `outcome` has all that it came to."""

    outcome: Outcome[Any]

    def __init__(self, outcome: Outcome[Any]) -> None:
        error = outcome.error
        said = error.message if error else f"the run ended with the verdict {outcome.verdict}"
        super().__init__(
            f"{outcome.verdict}: {said}",
            hint=error.hint if error else None,
            verdict=outcome.verdict,
            phase=error.phase if error else None,
            outcome=outcome,
        )
        self.kind = error.kind if error else None
        self.retryable = bool(error and error.retryable)

    @staticmethod
    def of(outcome: Outcome[Any]) -> RunFailed:
        """The exception of an outcome's verdict."""
        return BY_VERDICT.get(outcome.verdict, RunFailed)(outcome)


class NotInstalled(RunFailed):
    """The agent's program is not here."""


class NotAuthenticated(RunFailed):
    """No sign-in, or one that was refused."""


class EmptyAnswer(RunFailed):
    """No answer, or a blocked one."""


class LimitReached(RunFailed):
    """One of `max_turns`, `max_tokens`, `max_cost` … stopped it."""


class TimedOut(RunFailed):
    """A clock stopped it."""


class RateLimited(RunFailed):
    """Quota or load, after all retries."""


class InvalidOutput(RunFailed):
    """The value does not fit the schema, after all repairs."""


class Untrusted(RunFailed):
    """The agent does not trust the folder."""


class Cancelled(RunFailed):
    """The run was stopped by `cancel`."""


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
