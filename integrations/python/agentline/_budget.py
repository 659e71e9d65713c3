"""What evaluations of an adapter may use: tokens, money, time."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from .outcome import Outcome


@dataclass(frozen=True)
class Deadline:
    """The moment at which an answer must be there; aware of its time zone."""

    expires_at: datetime

    def __post_init__(self) -> None:
        if self.expires_at.tzinfo is None:
            raise ValueError("expires_at must have a time zone")

    @property
    def is_expired(self) -> bool:
        """Whether it is over."""
        return datetime.now(timezone.utc) >= self.expires_at


@dataclass(frozen=True)
class Budget:
    """What evaluations may use in all; `None` is no limit."""

    deadline: Deadline | None = None
    max_total_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_cost_usd: float | None = None


class BudgetTracker:
    """Counts what evaluations used against one budget. Threads may share it."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._lock = threading.Lock()
        self._used = {"max_total_tokens": 0.0, "max_input_tokens": 0.0, "max_output_tokens": 0.0, "max_cost_usd": 0.0}

    def left(self) -> dict[str, float]:
        """What may still be used of each limit that there is."""
        with self._lock:
            limits = {name: getattr(self.budget, name) for name in self._used}
            return {name: limit - self._used[name] for name, limit in limits.items() if limit is not None}

    def record(self, outcome: Outcome[Any]) -> None:
        """Adds a run."""
        usage = outcome.usage
        with self._lock:
            self._used["max_total_tokens"] += usage.total_tokens or 0
            self._used["max_input_tokens"] += usage.input_tokens or 0
            self._used["max_output_tokens"] += (usage.output_tokens or 0) + (usage.thought_tokens or 0)
            self._used["max_cost_usd"] += outcome.cost_usd or 0.0

    def passed(self) -> list[str]:
        """The limits that were passed."""
        return sorted(name for name, left in self.left().items() if left < 0)


#: Limits that the run itself is held to, with their keys. That of the prompt's own tokens is looked at when it is over.
BUDGET_KEYS = {"max_total_tokens": "max_tokens", "max_output_tokens": "max_output_tokens", "max_cost_usd": "max_cost"}
