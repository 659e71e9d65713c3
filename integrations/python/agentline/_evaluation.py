"""A prompt that is ready to be sent: its text, its tools, the type of its answer, and its callbacks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ._adapter_events import EventSink, NativeEvents
from ._prompts import Prompt
from .settings import CheckCallback
from .tools import Tool


@dataclass(frozen=True)
class Evaluation:
    """What an adapter was asked to do, apart from the prompt itself."""

    adapter: Any
    name: str
    session: Any = None
    dispatchers: tuple[Any, ...] = ()
    deadline: Any = None
    budget_tracker: Any = None
    heartbeat: Any = None
    run_context: Any = None

    @property
    def adapter_name(self) -> str:
        """The name of the adapter in events."""
        return str(self.adapter.adapter_name)

    @property
    def session_id(self) -> Any:
        """The id of the session in events."""
        return getattr(self.session, "session_id", None)

    def beat(self) -> None:
        """Reports to a watchdog that the evaluation is alive."""
        if self.heartbeat is not None:
            self.heartbeat.beat()


@dataclass(frozen=True)
class PreparedPrompt:
    """A rendered prompt. `raise_pending` raises what a tool asked the evaluation to raise at its end."""

    text: str
    tools: tuple[Tool, ...]
    #: The type of the answer, an `Output`, or `None` for text.
    output: Any
    check: CheckCallback | None = None
    raise_pending: Callable[[], None] = lambda: None


def prepare(prompt: Any, rendered: Any, evaluation: Evaluation) -> PreparedPrompt:
    """Prepares a prompt of this package, or one of WINK."""
    if isinstance(prompt, Prompt):
        return PreparedPrompt(rendered.text, tuple(rendered.tools.values()), prompt.output_type)
    from . import _wink

    return _wink.prepare(prompt, rendered, evaluation)


def event_sink(prompt: Any, evaluation: Evaluation) -> EventSink:
    """Returns the events that the dispatchers of an evaluation expect."""
    dispatchers = [one for one in (getattr(evaluation.session, "dispatcher", None), *evaluation.dispatchers) if one is not None]
    if any(type(one).__module__.partition(".")[0] == "weakincentives" for one in dispatchers):
        from . import _wink

        return _wink.WinkEvents(prompt, evaluation, dispatchers)
    fields: Mapping[str, Any] = {
        "prompt_ns": prompt.ns,
        "prompt_key": prompt.key,
        "prompt_name": evaluation.name,
        "adapter": evaluation.adapter_name,
        "session_id": evaluation.session_id,
        "run_context": evaluation.run_context,
    }
    return NativeEvents(fields, dispatchers)


@contextlib.contextmanager
def resources(prompt: Any) -> Iterator[None]:
    """Enters the resources of a prompt, unless the caller has done so."""
    is_entered = prompt.resources.is_entered if isinstance(prompt, Prompt) else getattr(prompt, "_resource_context", None) is not None
    if is_entered:
        yield
        return
    with prompt.resources:
        yield
