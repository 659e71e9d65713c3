"""Conversion of types to schemas, of JSON to values, and of functions to tools. No process is started."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import pytest

from agentline import ToolCall, UsageError, tool
from agentline._run_request import build_request
from agentline._schema import Output, ConversionError, read_as, read_docstring, schema_of, to_jsonable
from agentline._wire import encode
from agentline.tools import collect_tools


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass(frozen=True)
class Point:
    """A position.

    Attributes:
        x: To the right.
    """

    x: int
    y: Annotated[float, "upwards"] = 0.0


class Order(TypedDict):
    id: int
    note: NotRequired[str]


@dataclasses.dataclass
class Shape:
    points: list[Point]
    color: Color | None = None
    order: Order | None = None
    by_name: dict[str, Point] = dataclasses.field(default_factory=dict)


@pytest.mark.parametrize(
    ("expected", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (Mapping[str, Any], {"type": "object", "additionalProperties": {}}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Color, {"enum": ["red", "blue"]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (Annotated[int, "years", {"minimum": 0}], {"type": "integer", "description": "years", "minimum": 0}),
    ],
)
def test_schemas_of_types(expected: Any, schema: dict[str, Any]) -> None:
    assert schema_of(expected) == schema


def test_schemas_of_classes() -> None:
    assert schema_of(Point) == {
        "description": "A position.",
        "type": "object",
        "properties": {
            "x": {"type": "integer", "description": "To the right."},
            "y": {"type": "number", "description": "upwards", "default": 0.0},
        },
        "required": ["x"],
        "additionalProperties": False,
    }
    assert schema_of(Order)["required"] == ["id"]
    assert schema_of(Shape)["required"] == ["points"] and "description" not in schema_of(Shape)
    assert schema_of(tuple[int, str])["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    with pytest.raises(ConversionError):
        schema_of(complex)


def test_values_of_classes() -> None:
    value = {"points": [{"x": 1}], "color": "blue", "order": {"id": 7}, "by_name": {"a": {"x": 2, "y": 1}}, "new": 1}
    assert read_as(Shape, value) == Shape([Point(1)], Color.BLUE, {"id": 7}, {"a": Point(2, 1.0)})
    assert read_as(tuple[int, str], [1, "a"]) == (1, "a")
    assert read_as(set[int], [1, 2]) == {1, 2}
    assert read_as(Sequence[int], [1]) == [1]
    assert read_as(int, 2.0) == 2 and read_as(int | str, "2") == "2"


@pytest.mark.parametrize(
    ("expected", "value", "says"),
    [
        (int, True, "must be of type integer"),
        (int, "1", "must be of type integer"),
        (Point, {"y": 1}, "x is missing"),
        (Shape, {"points": [{"x": "a"}]}, r"points\[0\].x must be of type integer"),
        (Shape, {"points": [], "color": "green"}, "must be one of"),
        (Literal["a"], "b", "must be one of"),
        (tuple[int, int], [1], "must have 2 items"),
        (list[int], {}, "must be an array"),
        (dict[str, int], [], "must be an object"),
    ],
)
def test_invalid_values_are_reported_with_their_position(expected: Any, value: Any, says: str) -> None:
    with pytest.raises(ConversionError, match=says):
        read_as(expected, value)


def test_functions_become_tools() -> None:
    def lookup(order: int, call: ToolCall, *, detail: Literal["short", "long"] = "short", at: Point | None = None) -> str:
        """Looks up an order.

        In the shop's own database.

        Args:
            order: The order number,
                as printed on the invoice.
            detail (str): The level of detail.

        Returns:
            The state of the order.
        """
        return f"{order} {detail} {at} {call.number}"

    made = tool(lookup)
    assert made.name == "lookup" and made.description == "Looks up an order.\n\nIn the shop's own database."
    properties = made.input_schema["properties"]
    assert list(properties) == ["order", "detail", "at"] and made.input_schema["required"] == ["order"]
    assert properties["order"]["description"] == "The order number, as printed on the invoice."
    assert properties["detail"]["default"] == "short" and properties["detail"]["description"] == "The level of detail."
    call = ToolCall(run="r", number=3, tool="lookup")
    assert made(**made.arguments({"order": 7, "at": {"x": 1}}, call)) == "7 short Point(x=1, y=0.0) 3"
    with pytest.raises(ConversionError, match="unknown argument `color`"):
        made.arguments({"order": 7, "color": 1}, call)
    assert tool(name="other", timeout=2.5)(lookup).spec()["timeout_ms"] == 2500
    assert list(collect_tools([lookup, tool(name="other")(lookup)])) == ["lookup", "other"]


def test_functions_that_cannot_be_tools_are_rejected_with_a_reason() -> None:
    def odd(value: complex) -> None: ...

    def positional(value: int, /) -> None: ...

    for function, says in ((odd, "has no JSON Schema"), (positional, "is positional-only")):
        with pytest.raises(UsageError, match=says):
            tool(function)
    with pytest.raises(UsageError, match="two tools"):
        collect_tools([tool(lambda: None), tool(lambda: None)])
    assert tool(lambda: 1).name == "<lambda>"


def test_docstrings_in_other_styles() -> None:
    read = read_docstring("Adds.\n\n:param int a: One.\n:param b: Two.\n:returns: Both.")
    assert read == {"": "Adds.", "a": "One.", "b": "Two."}
    assert read_docstring("") == {"": ""}


@dataclasses.dataclass
class Circle:
    x: int


@dataclasses.dataclass
class Ring:
    x: int
    inner: int


@dataclasses.dataclass
class Even:
    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError("n must be even")


@dataclasses.dataclass
class Tree:
    branches: list[Tree]


@dataclasses.dataclass
class Lost:
    x: Nowhere  # type: ignore[name-defined]  # noqa: F821


class Pair(NamedTuple):
    a: int
    b: int


def test_values_convert_without_loss_or_wrong_types() -> None:
    # Of two matching classes, the one that has every key is chosen.
    assert read_as(Circle | Ring, {"x": 1, "inner": 2}) == Ring(1, 2)
    assert read_as(Circle | Ring, {"x": 1}) == Circle(1)
    assert read_as(dict[int, str], {"7": "x"}) == {7: "x"}
    assert read_as(dict[Color, int], {"red": 1}) == {Color.RED: 1}
    for expected, value in ((dict[int, str], {"x": "y"}), (dict[Color, int], {"green": 1}), (dict[Literal["a"], int], {"b": 1})):
        with pytest.raises(ConversionError, match="the key `"):
            read_as(expected, value)
    with pytest.raises(ConversionError, match="n must be even"):
        read_as(Even, {"n": 3})


def test_unsupported_types_are_rejected_with_a_reason() -> None:
    for expected, why in (
        (Tree, "is recursive"),
        (Lost, "cannot resolve the annotations of .*: name 'Nowhere'"),
        (Circle(1), "is a value, not a type"),
        ([int], "is a value, not a type"),
        (Pair, "use a dataclass"),
        (Literal[Color.RED], "values that JSON does not support"),
        (dict[float, int], "keys that are not strings"),
    ):
        with pytest.raises(ConversionError, match=why):
            Output.of(expected)


def test_options_of_the_wrong_type_are_reported_by_name() -> None:
    for options, why in (
        ({"tools": len}, "must be a list of functions"),
        ({"tools": ["lookup"]}, "but contains 'lookup'"),
        ({"extra": ["x"]}, "must be a dict"),
        ({"answer_timeout": "soon"}, "number of seconds"),
        ({"permission": "yes"}, "must be a function"),
    ):
        with pytest.raises(UsageError, match=why) as caught:
            build_request("run", "hi", None, options)
        assert caught.value.problems[0].key == next(iter(options))
    assert build_request("run", "hi", None, {"answer_timeout": timedelta(seconds=2)}).params["answer_timeout_ms"] == 2000
    with pytest.raises(UsageError, match="`on_evnt`: cannot be sent") as caught:
        encode({"params": {"prompt": "hi", "on_evnt": lambda event: None}})
    assert "on_event" in (caught.value.hint or "")


class Line:
    """A class with the methods of a Pydantic model."""

    def __init__(self, amount: int) -> None:
        self.amount = amount

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        amount = {"$ref": "#/$defs/Amount", "description": "in cents"}
        return {"type": "object", "properties": {"amount": amount}, "$defs": {"Amount": {"type": "integer", "minimum": 1}}}

    @classmethod
    def model_validate(cls, value: Any) -> Line:
        if not isinstance(value, dict) or value.get("amount", 0) < 1:
            raise ValueError("amount must be positive")
        return cls(value["amount"])

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        assert mode == "json"
        return {"amount": self.amount}


def test_models_with_their_own_schema_and_validation() -> None:
    inlined = {"type": "object", "properties": {"amount": {"type": "integer", "minimum": 1, "description": "in cents"}}}
    assert schema_of(Line) == inlined and schema_of(list[Line]) == {"type": "array", "items": inlined}
    assert Output.of(Line).schema == Line.model_json_schema(), "alone, the schema keeps its definitions"
    (line,) = read_as(list[Line], [{"amount": 3}])
    assert isinstance(line, Line) and line.amount == 3
    with pytest.raises(ConversionError, match=r"the value\[0\]: amount must be positive"):
        read_as(list[Line], [{"amount": 0}])
    assert to_jsonable(Line(4)) == {"amount": 4}

    def pay(line: Line) -> Line:
        """Pays."""
        return line

    assert tool(pay).input_schema["properties"] == {"line": inlined}


class Node:
    """A recursive model."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
        return {"$ref": "#/$defs/Node", "$defs": {"Node": node}}

    @classmethod
    def model_validate(cls, value: Any) -> Node:
        return cls()


def test_a_recursive_model_is_an_output_but_not_part_of_another_type() -> None:
    assert "$defs" in Output.of(Node).schema
    with pytest.raises(ConversionError, match="is recursive"):
        Output.of(list[Node])
