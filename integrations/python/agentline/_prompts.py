"""Prompts of an adapter: a template of sections, bound to dataclasses and resources, rendered to text."""

from __future__ import annotations

import contextlib
import dataclasses
import string
import textwrap
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from .tools import Tool, collect_tools

OutputT = TypeVar("OutputT")
ResourceT = TypeVar("ResourceT")


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


@runtime_checkable
class Filesystem(Protocol):
    """A resource of a prompt: the files that the agent works on."""

    @property
    def root(self) -> str:
        """The absolute path of the workspace."""


@dataclass(frozen=True)
class HostFilesystem:
    """A directory of this machine as the file system of a prompt. Evaluations without `cwd` use it as the workspace."""

    root: str


class PromptResources:
    """The resources of a prompt. `with prompt.resources:` enters those that are context managers, and exits them at the
    end."""

    def __init__(self, resources: Mapping[type[Any], Any]) -> None:
        self._resources = dict(resources)
        self._stack: contextlib.ExitStack | None = None

    def get(self, kind: type[ResourceT]) -> ResourceT:
        """Returns the resource that was bound for this type. Raises `KeyError` if there is none."""
        found: ResourceT = self._resources[kind]
        return found

    def get_optional(self, kind: type[ResourceT]) -> ResourceT | None:
        """Returns the resource that was bound for this type, or `None`."""
        return self._resources.get(kind)

    @property
    def is_entered(self) -> bool:
        """Whether a `with` block uses the resources."""
        return self._stack is not None

    def __enter__(self) -> PromptResources:
        if self._stack is not None:
            raise RuntimeError("the resources of this prompt are already in use")
        with contextlib.ExitStack() as stack:
            for resource in self._resources.values():
                if hasattr(resource, "__enter__") and hasattr(resource, "__exit__"):
                    stack.enter_context(resource)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.__exit__(kind, error, trace)


class Prompt(Generic[OutputT]):
    """A template with its parameters and resources."""

    def __init__(
        self, template: PromptTemplate[OutputT], *params: Any, resources: Mapping[type[Any], Any] | None = None
    ) -> None:
        self.template = template
        for one in params:
            if not dataclasses.is_dataclass(one) or isinstance(one, type):
                raise TypeError(f"prompt parameters must be dataclass instances, got {one!r}")
        self.params = params
        self._bound = dict(resources or {})
        #: The resources, for tools and for the `with` block around an evaluation.
        self.resources = PromptResources(self._bound)

    def bind(self, *params: Any, resources: Mapping[type[Any], Any] | None = None) -> Prompt[OutputT]:
        """Returns the prompt with additional parameters and resources. Later values override earlier ones of the same
        name."""
        return Prompt(self.template, *self.params, *params, resources={**self._bound, **(resources or {})})

    def filesystem(self) -> Filesystem | None:
        """Returns the file system among the resources, if any."""
        return next((one for one in self._bound.values() if isinstance(one, Filesystem)), None)

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

    def render(self, *, session: Any = None) -> Rendered:
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
