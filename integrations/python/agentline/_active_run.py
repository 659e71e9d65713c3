"""A run in progress: the common part of the synchronous and the asynchronous stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Generic, TypeVar, cast

from ._run_request import RunListener, RunRequest
from ._schema import ConversionError
from ._wire import Host
from .errors import InvalidOutput, RunFailed
from .outcome import Outcome, RunError

T = TypeVar("T")

#: How long to wait until a cancelled run and all its processes have ended.
CANCEL_WAIT_S = 15.0


class ActiveRun(Generic[T]):
    """A run that has been requested from the host and has no outcome yet."""

    def __init__(self, host: Host, request: RunRequest, method: str, listener: RunListener) -> None:
        self._host, self._run_request, self._listener = host, request, listener
        self._outcome: Outcome[T | None] | None = None
        self._done = False
        try:
            self._future: Future[Any] = host.request(method, request.params)
        except BaseException:
            self._done = True
            host.remove_listener(request.run)
            raise

    @property
    def run(self) -> str:
        """The name of the run, for `cancel`."""
        return self._run_request.run

    def cancel(self) -> None:
        """Stops the run and every process that it started. The outcome then has the verdict `cancelled`."""
        if not self._future.done():
            self._host.notify("cancel", {"run": self.run})

    def _read_result(self, answer: Mapping[str, Any]) -> Outcome[T | None]:
        """Returns the outcome of the response, or raises the exception of the program's own check or tool."""
        if self._listener.failure is not None:
            raise self._listener.failure
        self._outcome = read_outcome(answer, self._run_request)
        return self._outcome

    def __del__(self) -> None:
        if not getattr(self, "_done", True):
            self.cancel()


def read_outcome(answer: Mapping[str, Any], request: RunRequest) -> Outcome[Any]:
    """Reads an outcome and converts its value to the requested type."""
    try:
        return Outcome.of(answer, request.output)
    except ConversionError as exc:
        outcome: Outcome[Any] = Outcome.of(answer)
        error = RunError("invalid_output", "response", f"the value does not have the requested type: {exc}")
        raise InvalidOutput(dataclasses.replace(outcome, verdict="invalid_output", error=error)) from exc


def require_success(outcome: Outcome[T | None]) -> Outcome[T]:
    """Returns the outcome if the run succeeded, so that it has a value, else raises `RunFailed`."""
    if not outcome.ok:
        raise RunFailed.of(outcome)
    return cast(Outcome[T], outcome)
