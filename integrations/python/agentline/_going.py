"""A run that goes on: what its stream, synchronous or not, has in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from ._order import Ear, Order
from ._schema import Unfit
from ._wire import Host
from .errors import InvalidOutput, RunFailed
from .outcome import Outcome, RunError

T = TypeVar("T")

#: How long a run that is no longer wanted is waited for: until it and all that it started are gone.
CANCEL_WAIT_S = 15.0


class Going(Generic[T]):
    """One run, asked for and not yet answered."""

    def __init__(self, host: Host, order: Order, method: str, ear: Ear) -> None:
        self._host, self._order, self._ear = host, order, ear
        self._outcome: Outcome[T] | None = None
        self._over = False
        try:
            self._future: Future[Any] = host.request(method, order.params)
        except BaseException:
            self._over = True
            host.forget(order.run)
            raise

    @property
    def run(self) -> str:
        """The program's name for the run."""
        return self._order.run

    def cancel(self) -> None:
        """Stops the run and all that it started. Its outcome still comes, with the verdict `cancelled`."""
        if not self._future.done():
            self._host.notify("cancel", {"run": self.run})

    def _settle(self, answer: Mapping[str, Any]) -> Outcome[T]:
        """The outcome that the host told; what the program's own check raised goes before it."""
        if self._ear.failure is not None:
            raise self._ear.failure
        self._outcome = read_outcome(answer, self._order)
        return self._outcome

    def __del__(self) -> None:
        if not getattr(self, "_over", True):
            self.cancel()


def read_outcome(answer: Mapping[str, Any], order: Order) -> Outcome[Any]:
    """An outcome, with its value as the type that was asked for."""
    try:
        return Outcome.of(answer, order.output)
    except Unfit as why:
        outcome: Outcome[Any] = Outcome.of(answer)
        error = RunError("invalid_output", "response", f"the value is not of the wanted type: {why}")
        raise InvalidOutput(dataclasses.replace(outcome, verdict="invalid_output", error=error)) from why


def good(outcome: Outcome[T]) -> Outcome[T]:
    """The outcome of a run that has an answer; any other is raised."""
    if not outcome.ok:
        raise RunFailed.of(outcome)
    return outcome
