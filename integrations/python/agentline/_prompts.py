"""Prompts of an adapter: a template of sections, bound to dataclasses, rendered to text."""

from __future__ import annotations

import dataclasses
import string
import textwrap
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .tools import Tool, collect_tools

OutputT = TypeVar("OutputT")


@dataclass(frozen=True)
class MarkdownSection:
    """A section of a prompt: a heading, a text with `${names}`, and functions that the agent may call."""

    title: str
    key: str
    template: str
    tools: tuple[Tool | Callable[..., Any], ...] = ()


@dataclass
class PromptTemplate(Generic[OutputT]):
    """A named list of sections. `PromptTemplate[CodeReview](…)` or `output_type=` sets the type of the answer."""

    ns: str
    key: str
    sections: tuple[MarkdownSection, ...]
    name: str | None = None
    output_type: Any = None

    @property
    def answer(self) -> Any:
        """The type of the answer. `None` means plain text."""
        if self.output_type is not None:
            return self.output_type
        args = typing.get_args(getattr(self, "__orig_class__", None))
        return args[0] if args and not isinstance(args[0], TypeVar) and args[0] is not str else None


@dataclass(frozen=True)
class Rendered:
    """A rendered prompt with its tools."""

    text: str
    tools: dict[str, Tool]


class Prompt(Generic[OutputT]):
    """A template with its parameters."""

    def __init__(self, template: PromptTemplate[OutputT], *params: Any) -> None:
        self.template = template
        for one in params:
            if not dataclasses.is_dataclass(one) or isinstance(one, type):
                raise TypeError(f"prompt parameters must be dataclass instances, got {one!r}")
        self.params = params

    def bind(self, *params: Any) -> Prompt[OutputT]:
        """Returns the prompt with additional parameters. Later values override earlier ones of the same name."""
        return Prompt(self.template, *self.params, *params)

    @property
    def ns(self) -> str:
        """The namespace of the template."""
        return self.template.ns

    @property
    def key(self) -> str:
        """The key of the template within its namespace."""
        return self.template.key

    @property
    def name(self) -> str:
        """The name of the prompt in events and errors."""
        return self.template.name or f"{self.ns}/{self.key}"

    @property
    def output_type(self) -> Any:
        """The type of the answer. `None` means plain text."""
        return self.template.answer

    def render(self) -> Rendered:
        """Returns the text and the tools. Raises `ValueError` if a `${name}` has no value."""
        values = {one.name: getattr(params, one.name) for params in self.params for one in dataclasses.fields(params)}
        parts = []
        for number, section in enumerate(self.template.sections, 1):
            try:
                text = string.Template(textwrap.dedent(section.template).strip()).substitute(values)
            except KeyError as exc:
                raise ValueError(f"`${{{exc.args[0]}}}` has no value; bind a dataclass with that field") from None
            parts.append(f"## {number}. {section.title}\n\n{text}".rstrip())
        return Rendered("\n\n".join(parts), collect_tools(one for section in self.template.sections for one in section.tools))
