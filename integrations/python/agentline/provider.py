"""The workflow provider: takes a prompt, and returns the whole answer and the files that the agent wrote.

    from agentline.provider import GeminiCliProvider

    with GeminiCliProvider({"model": "gemini-2.5-pro", "timeout": 300}) as provider:
        provider.validate()
        result = provider.generate("Write the missing tests.", {"project_root": "/srv/project"})
        print(result.response, list(result.files))

Settings and messages are documented in docs/providers.md. All calls share one host, so only the first call waits for the
agent to start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar

from . import _lookups
from ._lookups import AgentInfo
from ._provider_result import VERDICTS, ResultBuilder, ProviderResult, failure_message, keys_for_flags, not_found_message, with_stderr
from ._run_request import to_wire
from .client import Agentline, Stream
from .errors import AgentlineError, BinaryNotFound, RunFailed, UsageError, join_class
from .events import Finished
from .outcome import Notice, Outcome
from .settings import ALIASES, Path, RunSettings, is_option, nearest

#: The settings that engines offer. Every other key of docs/configuration.md is accepted too.
CONFIG_KEYS = ("model", "sandbox", "approval_mode", "include_directories", "allowed_tools", "working_dir", "timeout")
DEFAULT_TIMEOUT_S = 600
MODES = frozenset({"default", "auto_edit", "yolo", "plan"})
#: Other accepted names of modes.
OTHER_MODES = frozenset("accept-edits acceptEdits bypass bypassPermissions suggest full_auto auto deny prompt".split())
#: Every accepted key; `warm` and `max_retries` are options of a run.
KNOWN_KEYS = RunSettings.__optional_keys__ | ALIASES | {"warm", "max_retries"}


class ProviderError(AgentlineError):
    """A call failed. `kind` is for programs, `message` and `hint` are for people.

    In a program that uses aiwf, this is also its `ProviderError`.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> ProviderError:
        return super().__new__(join_class(cls, "aiwf.domain.errors", "ProviderError"))

    def __init__(self, message: str, *, kind: str = "failed", hint: str | None = None, outcome: Outcome[Any] | None = None) -> None:
        error = outcome.error if outcome else None
        verdict = outcome.verdict if outcome else None
        super().__init__(message, hint=hint, verdict=verdict, phase=error.phase if error else "request", outcome=outcome)
        self.kind = kind


class ConfigurationError(ProviderError, ValueError):
    """The configuration or the call is invalid, and nothing was started."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, kind="configuration", hint=hint)


class GeminiCliProvider:
    """Gemini CLI as a response provider. For another agent, set `agent` in a subclass or in the configuration."""

    agent: ClassVar[str] = "gemini"
    #: The name of the provider in workflow engines.
    name: ClassVar[str] = "gemini-cli"
    title: ClassVar[str] = "Gemini CLI"

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        client: Agentline | None = None,
        binary: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.config: dict[str, Any] = dict(config or {})
        self._notices = self._validate_config()
        self._shared_client, self._own_client = client, None if client else _LazyClient(binary, env)
        self._agent_info: AgentInfo | None = None

    def validate(self) -> None:
        """Checks every value of the configuration, and that the agent is installed. Does not start it."""
        agentline = self._client()
        try:
            agentline._ask(_lookups.validate({key: to_wire(value) for key, value in self._settings().items()}))
        except AgentlineError as exc:
            raise self._error(exc) from exc
        if agentline.detect(self._agent) is None:
            raise ProviderError(not_found_message(self._info(), ""), kind="not_found", hint="run `agentline doctor`")

    def generate(
        self,
        prompt: str,
        context: Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
        connection_timeout: float | None = None,
        response_timeout: float | None = None,
    ) -> ProviderResult:
        """Sends a prompt to the agent and waits for the answer.

        Args:
            prompt: The prompt. It is not sent if the context has a `prompt_file`, which the agent reads instead.
            context: `project_root` and `prompt_file`; other keys are ignored.
            system_prompt: Text that is inserted before the prompt, separated by a blank line.
            connection_timeout: The timeout for the agent's first output, in seconds.
            response_timeout: The timeout for the whole call, in seconds, unless `timeout` is configured.
        """
        with self._start(prompt, context, system_prompt, connection_timeout, response_timeout) as stream:
            return self._collect(stream)

    async def generate_async(
        self,
        prompt: str,
        context: Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
        connection_timeout: float | None = None,
        response_timeout: float | None = None,
    ) -> ProviderResult:
        """Like `generate`, as a coroutine. Cancelling the task stops the run."""
        arguments = (prompt, context, system_prompt, connection_timeout, response_timeout)
        is_cancelled = threading.Event()
        started: list[Stream[Any]] = []

        def start() -> Stream[Any]:
            stream = self._start(*arguments)
            started.append(stream)
            # A thread cannot be interrupted: a run that starts after the task was cancelled is stopped here.
            if is_cancelled.is_set():
                stream.cancel()
            return stream

        try:
            return await asyncio.to_thread(self._collect, await asyncio.to_thread(start))
        except asyncio.CancelledError:
            is_cancelled.set()
            for stream in started:
                stream.cancel()
            raise

    @classmethod
    def get_metadata(cls) -> dict[str, Any]:
        """Returns the metadata of the provider, with the keys that engines read."""
        return {
            "name": cls.name,
            "description": f"{cls.title} AI agent via subprocess",
            "requires_config": False,
            "config_keys": list(CONFIG_KEYS),
            "default_response_timeout": DEFAULT_TIMEOUT_S,
            "fs_ability": "local-write",
        }

    def close(self) -> None:
        """Stops the host, unless the client was passed to the constructor."""
        if self._own_client is not None:
            self._own_client.close()

    def __enter__(self) -> GeminiCliProvider:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def _agent(self) -> str:
        return str(self.config.get("agent", self.agent))

    def _client(self) -> Agentline:
        if self._shared_client is not None:
            return self._shared_client
        assert self._own_client is not None
        try:
            return self._own_client.get()
        except BinaryNotFound as exc:
            raise ProviderError(exc.message, kind="not_found", hint=exc.hint) from exc

    def _info(self) -> AgentInfo:
        if self._agent_info is None:
            found = [one for one in self._client().agents() if self._agent in (one.id, *one.aliases)]
            self._agent_info = found[0] if found else AgentInfo(id=self._agent, title=self.title)
        return self._agent_info

    def _validate_config(self) -> tuple[Notice, ...]:
        """Raises one error for all problems that need no host. Returns a warning for each other unknown key."""
        errors = []
        timeout = self.config.get("timeout")
        if isinstance(timeout, (int, float)) and timeout <= 0:
            errors.append("timeout must be > 0")
        mode = self.config.get("approval_mode")
        if mode is not None and mode not in MODES | OTHER_MODES:
            errors.append(f"approval_mode must be one of {sorted(MODES)}, got: {mode!r}")
        for key in ("include_directories", "allowed_tools"):
            value = self.config.get(key)
            if value is not None and not isinstance(value, (list, tuple)):
                errors.append(f"{key} must be a list, got: {type(value).__name__}")
        hints = []
        unknown = sorted(key for key in self.config if not is_option(key, KNOWN_KEYS))
        # A misspelled key would change what the agent does. The keys of an engine for other providers are no mistake.
        for key in unknown:
            if similar := nearest(key, KNOWN_KEYS):
                errors.append(f"{key} is not a known key")
                hints.append(f"did you mean `{similar}`?")
        if errors:
            raise ConfigurationError("\n".join(errors), "; ".join(hints) or None)
        if unknown:
            warnings.warn(f"Unknown {type(self).__name__} config keys ignored: {unknown}", UserWarning, stacklevel=3)
        for key in unknown:
            del self.config[key]
        return tuple(Notice("unknown_key", f"unknown key `{key}` ignored") for key in unknown)

    def _settings(self) -> dict[str, Any]:
        """Returns the settings of every call."""
        settings: dict[str, Any] = {"permission_mode": "bypass", "pass_env": ["*"], "timeout": DEFAULT_TIMEOUT_S}
        # An alias in the configuration replaces the default of its key; the host rejects both together.
        for key, names in (("permission_mode", ("approval_mode", "yolo")), ("timeout", ("timeout_ms",))):
            if any(name in self.config for name in names):
                del settings[key]
        settings |= {key: value for key, value in self.config.items() if value is not None}
        settings["agent"] = self._agent
        return settings

    def _start(
        self,
        prompt: str,
        context: Mapping[str, Any] | None,
        system_prompt: str | None,
        connection_timeout: float | None,
        response_timeout: float | None,
    ) -> Stream[Any]:
        settings = self._settings()
        # Engines pass the default of their metadata with every call, so what the user configured has priority.
        if response_timeout is not None and not self.config.keys() & {"timeout", "timeout_ms"}:
            settings["timeout"] = response_timeout
        if connection_timeout is not None:
            settings["startup_timeout"] = connection_timeout
        if system_prompt is not None:
            settings["system_prompt"] = system_prompt
        root, file = (_context_text(context or {}, key) for key in ("project_root", "prompt_file"))
        if root is not None and not any(key in settings for key in ("working_dir", "cwd")):
            settings["working_dir"] = root
        workspace = settings.get("working_dir", settings.get("cwd"))
        if file is not None:
            settings["prompt_file"] = _find_prompt_file(file, workspace, root)
        prompt_text = None if file is not None else prompt
        agentline = self._client()
        try:
            return agentline.stream(prompt_text or "", extra=settings)
        except AgentlineError as exc:
            raise self._error(exc) from exc

    def _collect(self, stream: Stream[Any]) -> ProviderResult:
        builder = ResultBuilder()
        outcome: Outcome[Any] | None = None
        try:
            for event in stream:
                if isinstance(event, Finished):
                    outcome = event.outcome
                else:
                    builder.add_event(event)
        except AgentlineError as exc:
            raise self._error(exc) from exc
        assert outcome is not None
        error = self._failure(outcome)
        if error is not None:
            raise error
        return builder.finish(outcome, self._notices)

    def _error(self, exc: AgentlineError) -> ProviderError:
        """Converts an error of the client to a provider error."""
        if isinstance(exc, ProviderError):
            return exc
        if isinstance(exc, UsageError):
            return ConfigurationError(exc.message, keys_for_flags(exc.hint))
        if isinstance(exc, RunFailed):
            return self._failure(exc.outcome) or ProviderError(exc.message, outcome=exc.outcome)
        return ProviderError(f"{self._agent}: {exc.message}", hint=exc.hint)

    def _failure(self, outcome: Outcome[Any]) -> ProviderError | None:
        """Returns the error of an outcome, or `None` if there is an answer, even an empty one."""
        error = outcome.error
        if error is None or outcome.ok:
            return None
        # The engine decides whether an empty answer is acceptable. A partial answer is an error.
        if outcome.verdict == "empty" and error.kind == "empty" and not outcome.text.strip():
            return None
        info, reason = self._info(), error.message
        kind, phrase = VERDICTS.get(outcome.verdict, ("failed", ""))
        if kind == "not_found":
            message = not_found_message(info, reason)
        elif kind == "authentication":
            hint = error.hint or info.sign_in_hint
            message = f"{info.title} authentication error. {hint[:1].upper()}{hint[1:]}\n{outcome.stderr_tail or reason}"
        elif phrase:
            message = with_stderr(f"{info.title} {phrase}: {reason}", outcome)
        elif error.kind == "no_result" and outcome.agent_exit_code == 127:
            kind, message = "not_found", with_stderr(not_found_message(info, ""), outcome)
        else:
            message = failure_message(info, outcome, reason)
        error_hint = None if kind == "authentication" else keys_for_flags(error.hint)
        return ProviderError(message, kind=kind, hint=error_hint, outcome=outcome)


class GeminiCliAIProvider(GeminiCliProvider):
    """`GeminiCliProvider` under its name in aiwf."""


class _LazyClient:
    """A client that is started when it is first needed."""

    def __init__(self, binary: Path | None, env: Mapping[str, str] | None) -> None:
        self._binary, self._env = binary, env
        self._lock = threading.Lock()
        self._client: Agentline | None = None
        self._is_closed = False

    def get(self) -> Agentline:
        with self._lock:
            if self._is_closed:
                raise ProviderError("the provider is closed", hint="create a new provider")
            # Replace a client whose host has exited: engines keep providers for days.
            if self._client is None or not self._client.is_alive:
                self._client = Agentline(self._binary, env=self._env)
            return self._client

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._client is not None:
                self._client.close()


def _context_text(context: Mapping[str, Any], key: str) -> str | None:
    value = context.get(key)
    if value is None:
        return None
    with contextlib.suppress(TypeError):
        return os.fsdecode(value)
    raise ConfigurationError(f"{key} must be a string", "pass the path as a string")


def _find_prompt_file(file: str, workspace: Any, root: str | None) -> str:
    """Resolves the prompt file against the workspace, then against the project root. Usually both are the same."""
    places = [os.path.join(os.path.abspath(place), file) for place in (workspace or ".", root) if place is not None]
    return next((place for place in places if os.path.isfile(place)), places[0])


__all__ = ["CONFIG_KEYS", "ConfigurationError", "GeminiCliAIProvider", "GeminiCliProvider", "ProviderError", "ProviderResult"]
