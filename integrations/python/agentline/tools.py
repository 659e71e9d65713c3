"""Python functions as tools of an agent: their schema from type hints and docstring, their errors as tool errors."""

from __future__ import annotations

import dataclasses
import inspect
import threading
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, overload

from ._schema import Unfit, read_as, read_docstring, schema_of
from .errors import Problem, UsageError


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """One call of a tool. A function with a parameter of this type gets it; the model does not see that parameter."""

    run: str
    number: int
    tool: str
    #: Set when nobody wants the answer any more: a long function may look at it.
    cancelled: threading.Event = dataclasses.field(default_factory=threading.Event, compare=False)


@dataclasses.dataclass(frozen=True)
class Tool:
    """A function that an agent may call."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    function: Callable[..., Any]
    #: Seconds; a minute when nothing is said.
    timeout: float | None = None
    #: The types of the arguments; without them the function gets what the model sent, by name.
    types: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    #: The parameter that gets the `ToolCall`.
    call_parameter: str | None = None

    def spec(self) -> dict[str, Any]:
        """What the host is told about it."""
        spec = {"name": self.name, "description": self.description, "input_schema": self.input_schema}
        return spec if self.timeout is None else {**spec, "timeout_ms": int(self.timeout * 1000)}

    def arguments(self, given: Any, call: ToolCall) -> dict[str, Any]:
        """The arguments of the function. `Unfit` is told to the model."""
        if not isinstance(given, Mapping):
            given = {} if given is None else {"input": given}
        arguments = {name: read_as(self.types.get(name, Any), value, name) for name, value in given.items()}
        unknown = [name for name in arguments if self.types and name not in self.types]
        if unknown:
            raise Unfit(f"there is no argument `{unknown[0]}`; known: {', '.join(self.types)}")
        if self.call_parameter is not None:
            arguments[self.call_parameter] = call
        return arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, for the program's own use."""
        return self.function(*args, **kwargs)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Makes a tool of a function, as `@tool` or `@tool(name=…, timeout=…)`."""

    def make(function: Callable[..., Any]) -> Tool:
        return _make(function, name, description, input_schema, timeout)

    return make if function is None else make(function)


def gather(tools: Iterable[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Tools by name. A plain function is made one."""
    found: dict[str, Tool] = {}
    if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
        raise _wrong(f"`tools` must be a list of functions, got {type(tools).__name__}", "write `tools=[function]`")
    for one in tools:
        if not callable(one):
            raise _wrong(f"`tools` must be a list of functions, got {one!r} in it", "give the function itself, not its name")
        one = one if isinstance(one, Tool) else tool(one)
        if one.name in found:
            raise _wrong(f"two tools are called `{one.name}`", "give one of them another name: @tool(name=…)")
        found[one.name] = one
    return found


def _make(
    function: Callable[..., Any],
    name: str | None,
    description: str | None,
    input_schema: Mapping[str, Any] | None,
    timeout: float | None,
) -> Tool:
    name = name or str(getattr(function, "__name__", type(function).__name__))
    about = read_docstring(inspect.getdoc(function) or "")
    target = function if inspect.isroutine(function) or not callable(function) else type(function).__call__
    try:
        hints = typing.get_type_hints(target, include_extras=True)
    except NameError as why:
        raise _wrong(f"the types of `{name}` are not known: {why}", "use types that exist where the function is") from why
    types: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    required: list[str] = []
    call_parameter = None
    for parameter in inspect.signature(function).parameters.values():
        kind = hints.get(parameter.name, Any)
        if kind is ToolCall:
            call_parameter = parameter.name
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise _wrong(f"`{parameter.name}` of `{name}` can only be given by place", "let it be given by name")
        types[parameter.name] = kind
        try:
            schema = schema_of(kind)
        except (Unfit, RecursionError) as why:
            raise _wrong(f"`{parameter.name}` of `{name}`: {why}", "use a type that JSON has, or give `input_schema`") from why
        if parameter.name in about and "description" not in schema:
            schema["description"] = about[parameter.name]
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif isinstance(parameter.default, (str, int, float, bool)):
            schema["default"] = parameter.default
        properties[parameter.name] = schema
    if input_schema is None:
        input_schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Tool(
        name=name,
        description=about.get("", "") if description is None else description,
        input_schema=input_schema,
        function=function,
        timeout=timeout,
        types=types,
        call_parameter=call_parameter,
    )


def _wrong(message: str, hint: str) -> UsageError:
    return UsageError(message, (Problem("tools", message, hint),))
