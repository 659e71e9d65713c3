"""Python functions as tools of an agent. Schemas come from type hints and docstrings; exceptions become tool errors."""

from __future__ import annotations

import dataclasses
import inspect
import threading
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, overload

from ._schema import ConversionError, read_as, read_docstring, schema_of
from .errors import Problem, UsageError


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """One call to a tool. A function with a parameter of this type receives it. The model does not see the parameter."""

    run: str
    number: int
    tool: str
    #: Set when the result is no longer needed. A long-running function can check it.
    cancelled: threading.Event = dataclasses.field(default_factory=threading.Event, compare=False)


@dataclasses.dataclass(frozen=True)
class ToolReturn:
    """The result of a call, for the hook `after`: the value that the function returned, or the text of its error."""

    value: Any
    is_error: bool = False


class StopRun(Exception):
    """Ends the run from inside a tool. `run` raises it in the caller, who may start another run.

    Derive from it to carry data: for example the sections of a prompt that the model asks for and was not shown yet.
    """


#: Decides on a call by its arguments: `True` or `None` allows it, `False` or `Deny(reason)` denies it.
ToolPolicy = Callable[[Mapping[str, Any], ToolCall], Any]
#: Runs after a call. A text that it returns is added to the result.
ToolHook = Callable[[ToolCall, Mapping[str, Any], ToolReturn], Any]


@dataclasses.dataclass(frozen=True)
class Tool:
    """A function that an agent may call."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    function: Callable[..., Any]
    #: The timeout in seconds. The default is 60.
    timeout: float | None = None
    #: The types of the arguments. If empty, the function receives the model's arguments unconverted, as keywords.
    types: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    #: The name of the parameter that receives the `ToolCall`.
    call_parameter: str | None = None
    #: Decides on each call before the function runs. An exception denies the call. It counts towards the timeout.
    policy: ToolPolicy | None = None
    #: Runs after each call. An exception is logged and does not affect the result.
    after: ToolHook | None = None

    def spec(self) -> dict[str, Any]:
        """Returns the definition of the tool for the host."""
        spec = {"name": self.name, "description": self.description, "input_schema": self.input_schema}
        return spec if self.timeout is None else {**spec, "timeout_ms": int(self.timeout * 1000)}

    def arguments(self, given: Any, call: ToolCall) -> dict[str, Any]:
        """Converts the arguments of a call. The model receives the message of a `ConversionError`."""
        if not isinstance(given, Mapping):
            given = {} if given is None else {"input": given}
        arguments = {name: read_as(self.types.get(name, Any), value, name) for name, value in given.items()}
        unknown = [name for name in arguments if self.types and name not in self.types]
        if unknown:
            raise ConversionError(f"unknown argument `{unknown[0]}`; known: {', '.join(self.types)}")
        if self.call_parameter is not None:
            arguments[self.call_parameter] = call
        return arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function directly."""
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
    policy: ToolPolicy | None = None,
    after: ToolHook | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    policy: ToolPolicy | None = None,
    after: ToolHook | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Converts a function to a tool. Use it as `@tool` or `@tool(name=…, timeout=…, policy=…, after=…)`."""

    def make(function: Callable[..., Any]) -> Tool:
        built = _build_tool(function, name, description, input_schema, timeout)
        return dataclasses.replace(built, policy=policy, after=after)

    return make if function is None else make(function)


def collect_tools(tools: Iterable[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Returns the tools by name. Converts plain functions to tools."""
    found: dict[str, Tool] = {}
    if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
        raise _tool_error(f"`tools` must be a list of functions, got {type(tools).__name__}", "write `tools=[function]`")
    for one in tools:
        if not callable(one):
            raise _tool_error(f"`tools` must be a list of functions, but contains {one!r}", "pass the function itself, not its name")
        one = one if isinstance(one, Tool) else tool(one)
        if one.name in found:
            raise _tool_error(f"two tools have the name `{one.name}`", "rename one of them: @tool(name=…)")
        found[one.name] = one
    return found


def _build_tool(
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
    except NameError as exc:
        raise _tool_error(f"cannot resolve the annotations of `{name}`: {exc}", "use types that the module of the function defines or imports") from exc
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
            raise _tool_error(f"`{parameter.name}` of `{name}` is positional-only", "accept it as a keyword argument")
        types[parameter.name] = kind
        try:
            schema = schema_of(kind)
        except (ConversionError, RecursionError) as exc:
            raise _tool_error(f"`{parameter.name}` of `{name}`: {exc}", "use a type that JSON supports, or set `input_schema`") from exc
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


def _tool_error(message: str, hint: str) -> UsageError:
    return UsageError(message, (Problem("tools", message, hint),))
