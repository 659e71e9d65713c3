"""Limits on the tokens, cost and time of an adapter's evaluations."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from .outcome import Outcome


@dataclass(frozen=True)
class Deadline:
    """The time by which an evaluation must finish. `expires_at` must have a time zone."""

    expires_at: datetime
    started_at: datetime = field(default_factory=lambda: datetime.now(timezone.utc), compare=False)

    def __post_init__(self) -> None:
        if self.expires_at.tzinfo is None:
            raise ValueError("expires_at must have a time zone")

    @classmethod
    def create(cls, expires_at: datetime) -> Deadline:
        """Returns a deadline."""
        return cls(expires_at)

    @staticmethod
    def of(deadline: Any) -> Deadline | None:
        """Returns a deadline from a time, or from another object with a `remaining()` time."""
        if deadline is None or isinstance(deadline, Deadline):
            return deadline
        if isinstance(deadline, datetime):
            return Deadline(deadline if deadline.tzinfo else deadline.astimezone())
        return Deadline(datetime.now(timezone.utc) + deadline.remaining())

    def remaining(self, *, now: datetime | None = None) -> timedelta:
        """Returns the time until the deadline. It is negative after the deadline."""
        return self.expires_at - (now or datetime.now(timezone.utc))

    def elapsed(self, *, now: datetime | None = None) -> timedelta:
        """Returns the time since the deadline was set."""
        return (now or datetime.now(timezone.utc)) - self.started_at

    @property
    def is_expired(self) -> bool:
        """Whether the deadline has passed."""
        return self.remaining() <= timedelta(0)


@dataclass(frozen=True)
class Budget:
    """The limits for one or more evaluations. `None` means no limit."""

    deadline: Deadline | None = None
    max_total_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_cost_usd: float | None = None


class BudgetTracker:
    """Adds up the usage of evaluations that share a budget. Thread-safe."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._lock = threading.Lock()
        self._used = {"max_total_tokens": 0.0, "max_input_tokens": 0.0, "max_output_tokens": 0.0, "max_cost_usd": 0.0}

    def left(self) -> dict[str, float]:
        """Returns the remaining amount of each limit that is set."""
        with self._lock:
            limits = {name: getattr(self.budget, name, None) for name in self._used}
            return {name: limit - self._used[name] for name, limit in limits.items() if limit is not None}

    def record(self, outcome: Outcome[Any]) -> None:
        """Adds the usage of a run."""
        usage = outcome.usage
        with self._lock:
            self._used["max_total_tokens"] += usage.total_tokens or 0
            self._used["max_input_tokens"] += usage.input_tokens or 0
            self._used["max_output_tokens"] += (usage.output_tokens or 0) + (usage.thought_tokens or 0)
            self._used["max_cost_usd"] += outcome.cost_usd or 0.0

    def passed(self) -> list[str]:
        """Returns the names of the limits that have been exceeded."""
        return sorted(name for name, left in self.left().items() if left < 0)


#: Limits that agentline enforces during the run, with their configuration keys. `max_input_tokens` is checked after the run.
BUDGET_KEYS = {"max_total_tokens": "max_tokens", "max_output_tokens": "max_output_tokens", "max_cost_usd": "max_cost"}


def budget_left(tracker: Any) -> dict[str, float]:
    """Returns the remaining amount of each limit of a tracker, which may also be WINK's."""
    if isinstance(tracker, BudgetTracker):
        return tracker.left()
    consumed = tracker.consumed
    used = {
        "max_total_tokens": consumed.total_tokens or 0,
        "max_input_tokens": consumed.input_tokens or 0,
        "max_output_tokens": consumed.output_tokens or 0,
    }
    limits = {name: getattr(tracker.budget, name, None) for name in used}
    return {name: limit - used[name] for name, limit in limits.items() if limit is not None}
