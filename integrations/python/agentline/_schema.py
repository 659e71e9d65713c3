"""JSON Schema from Python types, and values of those types from JSON."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Types that are the same in both worlds.
SIMPLE: dict[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


class Unfit(ValueError):
    """A value that is not of the wanted type, or a type that JSON cannot hold."""


@dataclasses.dataclass(frozen=True)
class Output(Generic[T]):
    """What an answer must be: a schema for the agent, and the way back to a value."""

    schema: Mapping[str, Any]
    read: Callable[[Any], T]

    @staticmethod
    def of(wanted: Any) -> Output[Any]:
        """From a dataclass, a TypedDict, any other type of this module, or a schema as it stands."""
        if isinstance(wanted, Output):
            return wanted
        if isinstance(wanted, Mapping):
            return Output(wanted, lambda value: value)
        try:
            schema = schema_of(wanted)
        except RecursionError:
            raise Unfit(f"{wanted!r} holds itself, which only a schema of your own can say") from None
        return Output(schema, lambda value: read_as(wanted, value))


def schema_of(wanted: Any) -> dict[str, Any]:
    """The schema of a type. Docstrings and `Annotated[…, "text"]` become descriptions."""
    origin, args = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is typing.Annotated:
        schema = schema_of(args[0])
        for note in args[1:]:
            if isinstance(note, str):
                schema["description"] = note
            elif isinstance(note, Mapping):
                schema.update(note)
        return schema
    if origin in (typing.Required, typing.NotRequired, typing.Final):
        return schema_of(args[0])
    if wanted is Any or wanted is object or isinstance(wanted, TypeVar):
        return {}
    if wanted is None:
        wanted = type(None)
    if isinstance(wanted, (list, set)) or (dataclasses.is_dataclass(wanted) and not isinstance(wanted, type)):
        raise Unfit(f"{wanted!r} is a value, not a type")
    if wanted in SIMPLE:
        return {"type": SIMPLE[wanted]}
    if origin is typing.Literal:
        if any(type(value) not in SIMPLE for value in args):
            raise Unfit(f"{wanted!r} has values that JSON does not have")
        kinds = {SIMPLE[type(value)] for value in args}
        return {"type": kinds.pop(), "enum": list(args)} if len(kinds) == 1 else {"enum": list(args)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(one) for one in args]}
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return {"enum": [one.value for one in wanted]}
    if dataclasses.is_dataclass(wanted) or typing.is_typeddict(wanted):
        return _of_fields(wanted)
    base = origin or wanted
    if base is tuple and args and args[-1] is not Ellipsis:
        return {"type": "array", "prefixItems": [schema_of(one) for one in args], "minItems": len(args), "maxItems": len(args)}
    if isinstance(base, type) and issubclass(base, tuple) and hasattr(base, "_fields"):
        raise Unfit(f"no JSON Schema is known for the named tuple {wanted!r}; a dataclass has one")
    if isinstance(base, type) and issubclass(base, (Mapping, dict)):
        if args and not _is_key(args[0]):
            raise Unfit(f"the keys of {wanted!r} cannot be those of a JSON object, which are text")
        return {"type": "object", **({"additionalProperties": schema_of(args[1])} if len(args) == 2 else {})}
    if isinstance(base, type) and issubclass(base, (Sequence, set, frozenset)):
        unique = {"uniqueItems": True} if issubclass(base, (set, frozenset)) else {}
        return {"type": "array", **({"items": schema_of(args[0])} if args else {}), **unique}
    raise Unfit(f"no JSON Schema is known for {wanted!r}")


def _is_key(wanted: Any) -> bool:
    """Whether the text that is a key in JSON can be read as it."""
    is_enum = isinstance(wanted, type) and issubclass(wanted, enum.Enum)
    return wanted in (str, int, Any) or isinstance(wanted, TypeVar) or is_enum or typing.get_origin(wanted) is typing.Literal


def _of_fields(wanted: Any) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(wanted, include_extras=True)
    except NameError as why:
        raise Unfit(f"the types of {wanted!r} are not known: {why}") from why
    about = _described(wanted)
    if typing.is_typeddict(wanted):
        names = list(hints)
        required = _required(wanted, hints)
        defaults: dict[str, Any] = {}
    else:
        fields = [one for one in dataclasses.fields(wanted) if one.init]
        names = [one.name for one in fields]
        required = [one.name for one in fields if one.default is one.default_factory is dataclasses.MISSING]
        defaults = {one.name: one.default for one in fields if isinstance(one.default, (str, int, float, bool))}
    properties = {name: schema_of(hints[name]) for name in names}
    for name, schema in properties.items():
        if name in about and "description" not in schema:
            schema["description"] = about[name]
        if name in defaults and not isinstance(defaults[name], enum.Enum):
            schema["default"] = defaults[name]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {**({"description": about[""]} if about.get("") else {}), **schema}


def _required(wanted: Any, hints: Mapping[str, Any]) -> list[str]:
    """The keys that a TypedDict must have. It does not know itself where annotations are read late."""
    said = {name: typing.get_origin(hint) for name, hint in hints.items()}
    must = wanted.__required_keys__
    return [name for name, how in said.items() if how is typing.Required or (name in must and how is not typing.NotRequired)]


def _described(wanted: Any) -> dict[str, str]:
    """The description of a class, under the empty name, and those of its fields from its docstring."""
    text = inspect.cleandoc(wanted.__dict__.get("__doc__") or "")
    # A dataclass without a docstring gets its own signature as one.
    if text.startswith(f"{wanted.__name__}("):
        return {}
    return read_docstring(text)


def read_docstring(text: str) -> dict[str, str]:
    """What a docstring says: all before its sections under the empty name, and each argument under its own.

    Sections are those of Google's style (`Args:`, `Attributes:`) or lines such as `:param name: text`.
    """
    found: dict[str, str] = {}
    before: list[str] = []
    section: str | None = None
    last = ""
    for line in inspect.cleandoc(text).splitlines():
        field = re.match(r":(?:param|arg|ivar)\s+(?:[\w\[\], |]+\s+)?(\w+):\s*(.*)", line)
        if field:
            section, last = "args", field[1]
            found[last] = field[2]
        elif re.fullmatch(r"(Args|Arguments|Parameters|Attributes):\s*", line):
            section, last = "args", ""
        elif re.fullmatch(r"(Returns|Return|Yields|Raises|Examples?|Notes?):\s*", line) or line.startswith((":return", ":raise")):
            section, last = "other", ""
        elif section is None:
            before.append(line)
        elif section == "args":
            named = re.match(r"\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)", line)
            if named:
                last = named[1]
                found[last] = named[2]
            elif last and line.strip():
                found[last] = f"{found[last]} {line.strip()}".strip()
    found[""] = "\n".join(before).strip()
    return found


def read_as(wanted: Any, value: Any, where: str = "") -> Any:
    """A JSON value as a value of a type; `Unfit` says where it does not fit."""
    origin, args = typing.get_origin(wanted), typing.get_args(wanted)
    place = where or "the value"
    if origin in (typing.Annotated, typing.Required, typing.NotRequired, typing.Final):
        return read_as(args[0], value, where)
    if wanted is Any or wanted is object or isinstance(wanted, TypeVar):
        return value
    if wanted is None or wanted is type(None):
        if value is not None:
            raise Unfit(f"{place} must be null")
        return None
    if origin in (typing.Union, types.UnionType):
        return _read_union(args, value, where)
    if origin is typing.Literal:
        if not any(value == one and type(value) is type(one) for one in args):
            raise Unfit(f"{place} must be one of {list(args)}")
        return value
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if wanted is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if wanted in SIMPLE:
        if not isinstance(value, wanted) or (wanted is not bool and isinstance(value, bool)):
            raise Unfit(f"{place} must be of type {SIMPLE[wanted]}, got {value!r}")
        return value
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        try:
            return wanted(value)
        except ValueError:
            raise Unfit(f"{place} must be one of {[one.value for one in wanted]}") from None
    if dataclasses.is_dataclass(wanted) or typing.is_typeddict(wanted):
        return _read_fields(wanted, value, where)
    return _read_many(origin or wanted, args, value, where)


def _read_union(args: tuple[Any, ...], value: Any, where: str) -> Any:
    # What fits as it stands is meant before what must be made to fit.
    for one in args:
        if one in SIMPLE and type(value) is one:
            return value
    reasons = []
    # One that knows all keys of an object is meant before one that would lose some.
    for one in sorted(args, key=lambda one: _strange(one, value)):
        try:
            return read_as(one, value, where)
        except Unfit as why:
            reasons.append(str(why))
    raise Unfit("; ".join(reasons))


def _strange(wanted: Any, value: Any) -> int:
    """How many keys of an object a type does not know."""
    if typing.get_origin(wanted) is typing.Annotated:
        wanted = typing.get_args(wanted)[0]
    has_fields = dataclasses.is_dataclass(wanted) or typing.is_typeddict(wanted)
    return len(set(value) - set(typing.get_type_hints(wanted))) if has_fields and isinstance(value, Mapping) else 0


def _read_fields(wanted: Any, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise Unfit(f"{where or 'the value'} must be an object, got {value!r}")
    hints = typing.get_type_hints(wanted, include_extras=True)
    before = f"{where}." if where else ""
    if typing.is_typeddict(wanted):
        missing = [name for name in _required(wanted, hints) if name not in value]
        known = set(hints)
    else:
        fields = [one for one in dataclasses.fields(wanted) if one.init]
        known = {one.name for one in fields}
        missing = [
            one.name for one in fields if one.name not in value and one.default is one.default_factory is dataclasses.MISSING
        ]
    if missing:
        raise Unfit(f"{before}{sorted(missing)[0]} is missing")
    read = {name: read_as(hints[name], one, before + name) for name, one in value.items() if name in known}
    try:
        return wanted(**read)
    except (TypeError, ValueError) as why:
        # What the class itself does not take, by its `__post_init__`.
        raise Unfit(f"{where or 'the value'}: {why}") from why


def _read_key(wanted: Any, key: str, where: str) -> Any:
    if wanted is int:
        if not re.fullmatch(r"-?\d+", key):
            raise Unfit(f"the key `{key}` of {where} must be an integer")
        return int(key)
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        found = next((one for one in wanted if str(one.value) == key), None)
        if found is None:
            raise Unfit(f"the key `{key}` of {where} must be one of {[one.value for one in wanted]}")
        return found
    return read_as(wanted, key, f"the key `{key}` of {where}")


def _read_many(base: Any, args: tuple[Any, ...], value: Any, where: str) -> Any:
    place = where or "the value"
    if isinstance(base, type) and issubclass(base, (Mapping, dict)):
        if not isinstance(value, Mapping):
            raise Unfit(f"{place} must be an object, got {value!r}")
        kind, inner = args if len(args) == 2 else (Any, Any)
        return {_read_key(kind, key, place): read_as(inner, one, f"{place}.{key}") for key, one in value.items()}
    if isinstance(base, type) and issubclass(base, (Sequence, set, frozenset)):
        if not isinstance(value, list):
            raise Unfit(f"{place} must be an array, got {value!r}")
        if base is tuple and args and args[-1] is not Ellipsis:
            if len(args) != len(value):
                raise Unfit(f"{place} must have {len(args)} items")
            return tuple(read_as(kind, one, f"{place}[{i}]") for i, (kind, one) in enumerate(zip(args, value)))
        inner = args[0] if args else Any
        items = [read_as(inner, one, f"{place}[{i}]") for i, one in enumerate(value)]
        make: Callable[[list[Any]], Any] = list if inspect.isabstract(base) else base
        return make(items)
    raise Unfit(f"{base!r} cannot be read from JSON")


def plain(value: Any) -> Any:
    """What `json` cannot write by itself, as something that it can."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if hasattr(value, "total_seconds"):
        return value.total_seconds()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON: {value!r}")
