"""Converts Python types to JSON Schema, and JSON to values of these types."""

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

#: Types that JSON has too.
SIMPLE: dict[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


class ConversionError(ValueError):
    """A value does not have the expected type, or a type cannot be expressed in JSON Schema."""


@dataclasses.dataclass(frozen=True)
class Output(Generic[T]):
    """The expected type of an answer: a schema for the agent, and a function that reads the value."""

    schema: Mapping[str, Any]
    read: Callable[[Any], T]

    @staticmethod
    def of(expected: Any) -> Output[Any]:
        """Accepts a dataclass, a TypedDict, a Pydantic model, any other type that `schema_of` supports, or a JSON Schema."""
        if isinstance(expected, Output):
            return expected
        if isinstance(expected, Mapping):
            return Output(expected, lambda value: value)
        if is_model(expected):
            return Output(expected.model_json_schema(), lambda value: read_as(expected, value))
        try:
            schema = schema_of(expected)
        except RecursionError:
            raise ConversionError(f"{expected!r} is recursive; pass a JSON Schema instead") from None
        return Output(schema, lambda value: read_as(expected, value))


def schema_of(expected: Any) -> dict[str, Any]:
    """Returns the schema of a type. Docstrings and `Annotated[…, "text"]` become descriptions."""
    origin, args = typing.get_origin(expected), typing.get_args(expected)
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
    if expected is Any or expected is object or isinstance(expected, TypeVar):
        return {}
    if expected is None:
        expected = type(None)
    if isinstance(expected, (list, set)) or (dataclasses.is_dataclass(expected) and not isinstance(expected, type)):
        raise ConversionError(f"{expected!r} is a value, not a type")
    if expected in SIMPLE:
        return {"type": SIMPLE[expected]}
    if is_model(expected):
        return inline_definitions(expected.model_json_schema())
    if origin is typing.Literal:
        if any(type(value) not in SIMPLE for value in args):
            raise ConversionError(f"{expected!r} has values that JSON does not support")
        kinds = {SIMPLE[type(value)] for value in args}
        return {"type": kinds.pop(), "enum": list(args)} if len(kinds) == 1 else {"enum": list(args)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(one) for one in args]}
    if isinstance(expected, type) and issubclass(expected, enum.Enum):
        return {"enum": [one.value for one in expected]}
    if dataclasses.is_dataclass(expected) or typing.is_typeddict(expected):
        return _object_schema(expected)
    base = origin or expected
    if base is tuple and args and args[-1] is not Ellipsis:
        return {"type": "array", "prefixItems": [schema_of(one) for one in args], "minItems": len(args), "maxItems": len(args)}
    if isinstance(base, type) and issubclass(base, tuple) and hasattr(base, "_fields"):
        raise ConversionError(f"the named tuple {expected!r} has no JSON Schema; use a dataclass")
    if isinstance(base, type) and issubclass(base, (Mapping, dict)):
        if args and not _is_key_type(args[0]):
            raise ConversionError(f"{expected!r} has keys that are not strings, as JSON objects require")
        return {"type": "object", **({"additionalProperties": schema_of(args[1])} if len(args) == 2 else {})}
    if isinstance(base, type) and issubclass(base, (Sequence, set, frozenset)):
        unique = {"uniqueItems": True} if issubclass(base, (set, frozenset)) else {}
        return {"type": "array", **({"items": schema_of(args[0])} if args else {}), **unique}
    raise ConversionError(f"{expected!r} has no JSON Schema")


def is_model(expected: Any) -> bool:
    """Returns whether a type is a Pydantic model. Pydantic itself is not needed to know."""
    return isinstance(expected, type) and hasattr(expected, "model_json_schema") and hasattr(expected, "model_validate")


def inline_definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces the references to `$defs` of a schema by the definitions, so that it can be part of another schema."""
    definitions = schema.get("$defs", {})

    def inline(part: Any) -> Any:
        if isinstance(part, list):
            return [inline(one) for one in part]
        if not isinstance(part, Mapping):
            return part
        name = str(part.get("$ref", "")).removeprefix("#/$defs/")
        if name in definitions:
            others = {key: value for key, value in part.items() if key != "$ref"}
            return inline({**definitions[name], **others})
        return {key: inline(value) for key, value in part.items() if key != "$defs"}

    inlined: dict[str, Any] = inline(schema)
    return inlined


def _is_key_type(expected: Any) -> bool:
    """Returns whether a string key of a JSON object can be converted to this type."""
    is_enum = isinstance(expected, type) and issubclass(expected, enum.Enum)
    return expected in (str, int, Any) or isinstance(expected, TypeVar) or is_enum or typing.get_origin(expected) is typing.Literal


def _object_schema(expected: Any) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(expected, include_extras=True)
    except NameError as exc:
        raise ConversionError(f"cannot resolve the annotations of {expected!r}: {exc}") from exc
    descriptions = _read_descriptions(expected)
    if typing.is_typeddict(expected):
        names = list(hints)
        required = _required(expected, hints)
        defaults: dict[str, Any] = {}
    else:
        fields = [one for one in dataclasses.fields(expected) if one.init]
        names = [one.name for one in fields]
        required = [one.name for one in fields if one.default is one.default_factory is dataclasses.MISSING]
        defaults = {one.name: one.default for one in fields if isinstance(one.default, (str, int, float, bool))}
    properties = {name: schema_of(hints[name]) for name in names}
    for name, schema in properties.items():
        if name in descriptions and "description" not in schema:
            schema["description"] = descriptions[name]
        if name in defaults and not isinstance(defaults[name], enum.Enum):
            schema["default"] = defaults[name]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {**({"description": descriptions[""]} if descriptions.get("") else {}), **schema}


def _required(expected: Any, hints: Mapping[str, Any]) -> list[str]:
    """Returns the required keys of a TypedDict. `__required_keys__` is wrong if annotations are evaluated lazily."""
    origins = {name: typing.get_origin(hint) for name, hint in hints.items()}
    declared = expected.__required_keys__
    return [
        name
        for name, origin in origins.items()
        if origin is typing.Required or (name in declared and origin is not typing.NotRequired)
    ]


def _read_descriptions(expected: Any) -> dict[str, str]:
    """Returns the descriptions in the docstring of a class: its own under the empty name, and those of its fields."""
    text = inspect.cleandoc(expected.__dict__.get("__doc__") or "")
    # Python gives a dataclass without a docstring its signature as docstring.
    if text.startswith(f"{expected.__name__}("):
        return {}
    return read_docstring(text)


def read_docstring(text: str) -> dict[str, str]:
    """Reads a docstring: the text before the first section under the empty name, and each argument under its own name.

    Supports the sections of Google's style (`Args:`, `Attributes:`) and lines such as `:param name: text`.
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


def read_as(expected: Any, value: Any, where: str = "") -> Any:
    """Converts a JSON value to a type. The message of `ConversionError` says where the value is invalid."""
    origin, args = typing.get_origin(expected), typing.get_args(expected)
    label = where or "the value"
    if origin in (typing.Annotated, typing.Required, typing.NotRequired, typing.Final):
        return read_as(args[0], value, where)
    if expected is Any or expected is object or isinstance(expected, TypeVar):
        return value
    if expected is None or expected is type(None):
        if value is not None:
            raise ConversionError(f"{label} must be null")
        return None
    if origin in (typing.Union, types.UnionType):
        return _read_union(args, value, where)
    if origin is typing.Literal:
        if not any(value == one and type(value) is type(one) for one in args):
            raise ConversionError(f"{label} must be one of {list(args)}")
        return value
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if expected is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if expected in SIMPLE:
        if not isinstance(value, expected) or (expected is not bool and isinstance(value, bool)):
            raise ConversionError(f"{label} must be of type {SIMPLE[expected]}, got {value!r}")
        return value
    if isinstance(expected, type) and issubclass(expected, enum.Enum):
        try:
            return expected(value)
        except ValueError:
            raise ConversionError(f"{label} must be one of {[one.value for one in expected]}") from None
    if is_model(expected):
        return _read_model(expected, value, where)
    if dataclasses.is_dataclass(expected) or typing.is_typeddict(expected):
        return _read_fields(expected, value, where)
    return _read_collection(origin or expected, args, value, where)


def _read_union(args: tuple[Any, ...], value: Any, where: str) -> Any:
    # Prefer a type that the value already has to one that needs a conversion.
    for one in args:
        if one in SIMPLE and type(value) is one:
            return value
    reasons = []
    # Prefer a class that has all keys of an object to one that would drop some.
    for one in sorted(args, key=lambda one: _count_unknown_keys(one, value)):
        try:
            return read_as(one, value, where)
        except ConversionError as exc:
            reasons.append(str(exc))
    raise ConversionError("; ".join(reasons))


def _count_unknown_keys(expected: Any, value: Any) -> int:
    """Returns how many keys of an object a type does not have."""
    if typing.get_origin(expected) is typing.Annotated:
        expected = typing.get_args(expected)[0]
    has_fields = dataclasses.is_dataclass(expected) or typing.is_typeddict(expected)
    return len(set(value) - set(typing.get_type_hints(expected))) if has_fields and isinstance(value, Mapping) else 0


def _read_fields(expected: Any, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise ConversionError(f"{where or 'the value'} must be an object, got {value!r}")
    hints = typing.get_type_hints(expected, include_extras=True)
    before = f"{where}." if where else ""
    if typing.is_typeddict(expected):
        missing = [name for name in _required(expected, hints) if name not in value]
        known = set(hints)
    else:
        fields = [one for one in dataclasses.fields(expected) if one.init]
        known = {one.name for one in fields}
        missing = [
            one.name for one in fields if one.name not in value and one.default is one.default_factory is dataclasses.MISSING
        ]
    if missing:
        raise ConversionError(f"{before}{sorted(missing)[0]} is missing")
    read = {name: read_as(hints[name], one, before + name) for name, one in value.items() if name in known}
    try:
        return expected(**read)
    except (TypeError, ValueError) as exc:
        # The class rejected the value, for example in its `__post_init__`.
        raise ConversionError(f"{where or 'the value'}: {exc}") from exc


def _read_model(expected: Any, value: Any, where: str) -> Any:
    try:
        return expected.model_validate(value)
    except ValueError as exc:
        raise ConversionError(f"{where}: {exc}" if where else str(exc)) from exc


def _read_key(expected: Any, key: str, where: str) -> Any:
    if expected is int:
        if not re.fullmatch(r"-?\d+", key):
            raise ConversionError(f"the key `{key}` of {where} must be an integer")
        return int(key)
    if isinstance(expected, type) and issubclass(expected, enum.Enum):
        found = next((one for one in expected if str(one.value) == key), None)
        if found is None:
            raise ConversionError(f"the key `{key}` of {where} must be one of {[one.value for one in expected]}")
        return found
    return read_as(expected, key, f"the key `{key}` of {where}")


def _read_collection(base: Any, args: tuple[Any, ...], value: Any, where: str) -> Any:
    label = where or "the value"
    if isinstance(base, type) and issubclass(base, (Mapping, dict)):
        if not isinstance(value, Mapping):
            raise ConversionError(f"{label} must be an object, got {value!r}")
        kind, inner = args if len(args) == 2 else (Any, Any)
        return {_read_key(kind, key, label): read_as(inner, one, f"{label}.{key}") for key, one in value.items()}
    if isinstance(base, type) and issubclass(base, (Sequence, set, frozenset)):
        if not isinstance(value, list):
            raise ConversionError(f"{label} must be an array, got {value!r}")
        if base is tuple and args and args[-1] is not Ellipsis:
            if len(args) != len(value):
                raise ConversionError(f"{label} must have {len(args)} items")
            return tuple(read_as(kind, one, f"{label}[{i}]") for i, (kind, one) in enumerate(zip(args, value)))
        inner = args[0] if args else Any
        items = [read_as(inner, one, f"{label}[{i}]") for i, one in enumerate(value)]
        make: Callable[[list[Any]], Any] = list if inspect.isabstract(base) else base
        return make(items)
    raise ConversionError(f"{base!r} cannot be read from JSON")


def to_jsonable(value: Any) -> Any:
    """Converts a value that `json` cannot serialize to one that it can."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if is_model(type(value)):
        return value.model_dump(mode="json")
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
    raise TypeError(f"cannot serialize {type(value).__name__} to JSON: {value!r}")
