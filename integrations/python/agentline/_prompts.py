"""Prompts of an adapter: a template of sections, bound to dataclasses, rendered to text."""

from __future__ import annotations

import dataclasses
import string
import textwrap
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .tools import Tool, gather

OutputT = TypeVar("OutputT")


@dataclass(frozen=True)
class MarkdownSection:
    """A part of a prompt: a heading, a text with `${names}`, and functions that the agent may call for it."""

    title: str
    key: str
    template: str
    tools: tuple[Tool | Callable[..., Any], ...] = ()


@dataclass
class PromptTemplate(Generic[OutputT]):
    """Sections under a name. `PromptTemplate[CodeReview](…)`, or `output_type=`, says what the answer must be."""

    ns: str
    key: str
    sections: tuple[MarkdownSection, ...]
    name: str | None = None
    output_type: Any = None

    @property
    def answer(self) -> Any:
        """What the answer must be; `None` is text."""
        if self.output_type is not None:
            return self.output_type
        args = typing.get_args(getattr(self, "__orig_class__", None))
        return args[0] if args and not isinstance(args[0], TypeVar) and args[0] is not str else None


@dataclass(frozen=True)
class Rendered:
    """A prompt as it is sent."""

    text: str
    tools: dict[str, Tool]


class Prompt(Generic[OutputT]):
    """A template with its parameters."""

    def __init__(self, template: PromptTemplate[OutputT], *params: Any) -> None:
        self.template = template
        for one in params:
            if not dataclasses.is_dataclass(one) or isinstance(one, type):
                raise TypeError(f"a parameter of a prompt is an instance of a dataclass, got {one!r}")
        self.params = params

    def bind(self, *params: Any) -> Prompt[OutputT]:
        """The same prompt with these dataclasses too; a later field wins."""
        return Prompt(self.template, *self.params, *params)

    @property
    def ns(self) -> str:
        """The namespace."""
        return self.template.ns

    @property
    def key(self) -> str:
        """The key in it."""
        return self.template.key

    @property
    def name(self) -> str:
        """What events and errors call it."""
        return self.template.name or f"{self.ns}/{self.key}"

    @property
    def output_type(self) -> Any:
        """What the answer must be; `None` is text."""
        return self.template.answer

    def render(self) -> Rendered:
        """The text and the tools. A name without a value is an error: nobody wants to ask about `${folder}`."""
        values = {one.name: getattr(params, one.name) for params in self.params for one in dataclasses.fields(params)}
        parts = []
        for number, section in enumerate(self.template.sections, 1):
            try:
                text = string.Template(textwrap.dedent(section.template).strip()).substitute(values)
            except KeyError as why:
                raise ValueError(f"`${{{why.args[0]}}}` has no value; bind a dataclass with that field") from None
            parts.append(f"## {number}. {section.title}\n\n{text}".rstrip())
        return Rendered("\n\n".join(parts), gather(one for section in self.template.sections for one in section.tools))
