"""The workflow provider: a prompt in; the whole answer and the files that the agent wrote out.

    from agentline.provider import GeminiCliProvider

    with GeminiCliProvider({"model": "gemini-2.5-pro", "timeout": 300}) as provider:
        provider.validate()
        result = provider.generate("Write the missing tests.", {"project_root": "/srv/project"})
        print(result.response, list(result.files))

The words and tables are those of docs/providers.md. One host is kept for all calls, so that only the first waits for the
agent's start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar

from ._lookups import AgentInfo
from ._provider_result import VERDICTS, Gathered, ProviderResult, failed, keys_for_flags, missing, with_stderr
from .client import Agentline, Stream
from .errors import AgentlineError, BinaryNotFound, RunFailed, UsageError
from .events import Finished
from .outcome import Notice, Outcome
from .settings import ALIASES, Path, RunSettings

#: The settings that engines offer; every other key of docs/configuration.md is accepted too.
CONFIG_KEYS = ("model", "sandbox", "approval_mode", "include_directories", "allowed_tools", "working_dir", "timeout")
DEFAULT_TIMEOUT_S = 600
MODES = frozenset({"default", "auto_edit", "yolo", "plan"})
#: Other names of modes that are known.
OTHER_MODES = frozenset("accept-edits acceptEdits bypass bypassPermissions suggest full_auto auto deny prompt".split())
#: What a run takes beside its keys and an engine may set.
BESIDE = frozenset({"warm", "max_retries"})


class ProviderError(AgentlineError):
    """Why a call gave no answer. `kind` is for programs, `message` and `hint` for people."""

    def __init__(self, message: str, *, kind: str = "failed", hint: str | None = None, outcome: Outcome[Any] | None = None) -> None:
        error = outcome.error if outcome else None
        verdict = outcome.verdict if outcome else None
        super().__init__(message, hint=hint, verdict=verdict, phase=error.phase if error else "request", outcome=outcome)
        self.kind = kind


class ConfigurationError(ProviderError, ValueError):
    """The configuration or the call is wrong; nothing was started."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, kind="configuration", hint=hint)


class GeminiCliProvider:
    """Gemini CLI as a response provider. Other agents: a subclass with another `agent`, or the key `agent`."""

    agent: ClassVar[str] = "gemini"
    #: What engines know it by.
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
        self._given, self._own = client, None if client else _Lazy(binary, env)
        self._card: AgentInfo | None = None

    def validate(self) -> None:
        """Checks that the agent's program is here. No agent is started."""
        agentline = self._client()
        if agentline.detect(self._agent) is None:
            raise ProviderError(missing(self._about(), ""), kind="not_found", hint="run `agentline doctor`")

    def generate(
        self,
        prompt: str,
        context: Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
        connection_timeout: float | None = None,
        response_timeout: float | None = None,
    ) -> ProviderResult:
        """Has the agent answer a prompt, and waits for it.

        Args:
            prompt: What is asked; not sent where the context has a `prompt_file`, which the agent is told to read.
            context: `project_root` and `prompt_file`; anything else may stand beside them.
            system_prompt: Put before the prompt with a blank line.
            connection_timeout: Seconds until the agent first says something.
            response_timeout: Seconds for the whole call.
        """
        with self._begin(prompt, context, system_prompt, connection_timeout, response_timeout) as stream:
            return self._follow(stream)

    async def generate_async(
        self,
        prompt: str,
        context: Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
        connection_timeout: float | None = None,
        response_timeout: float | None = None,
    ) -> ProviderResult:
        """The same for programs with an event loop; a task that is cancelled meanwhile ends the agent's run."""
        ask = (prompt, context, system_prompt, connection_timeout, response_timeout)
        stream = await asyncio.to_thread(self._begin, *ask)
        try:
            return await asyncio.to_thread(self._follow, stream)
        except asyncio.CancelledError:
            stream.cancel()
            raise

    @classmethod
    def get_metadata(cls) -> dict[str, Any]:
        """What the provider is, under the keys that engines read."""
        return {
            "name": cls.name,
            "description": f"{cls.title} AI agent via subprocess",
            "requires_config": False,
            "config_keys": list(CONFIG_KEYS),
            "default_response_timeout": DEFAULT_TIMEOUT_S,
            "fs_ability": "local-write",
        }

    def close(self) -> None:
        """Ends the host, unless it was given."""
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> GeminiCliProvider:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def _agent(self) -> str:
        return str(self.config.get("agent", self.agent))

    def _client(self) -> Agentline:
        if self._given is not None:
            return self._given
        assert self._own is not None
        try:
            return self._own.get()
        except BinaryNotFound as why:
            raise ProviderError(why.message, kind="not_found", hint=why.hint) from why

    def _about(self) -> AgentInfo:
        if self._card is None:
            found = [one for one in self._client().agents() if self._agent in (one.id, *one.aliases)]
            self._card = found[0] if found else AgentInfo(id=self._agent, title=self.title)
        return self._card

    def _validate_config(self) -> tuple[Notice, ...]:
        """Raises what is wrong with the configuration, all at once; what is not known is a warning."""
        wrong = []
        timeout = self.config.get("timeout")
        if isinstance(timeout, (int, float)) and timeout <= 0:
            wrong.append("timeout must be > 0")
        mode = self.config.get("approval_mode")
        if mode is not None and mode not in MODES | OTHER_MODES:
            wrong.append(f"approval_mode must be one of {sorted(MODES)}, got: {mode!r}")
        for key in ("include_directories", "allowed_tools"):
            value = self.config.get(key)
            if value is not None and not isinstance(value, (list, tuple)):
                wrong.append(f"{key} must be a list, got: {type(value).__name__}")
        if wrong:
            raise ConfigurationError("\n".join(wrong))
        known = RunSettings.__annotations__.keys() | ALIASES | BESIDE
        unknown = sorted(key for key in self.config if snake(key) not in known and key not in known)
        for key in unknown:
            warnings.warn(f"unknown config key ignored: {key!r}", UserWarning, stacklevel=3)
        for key in unknown:
            del self.config[key]
        return tuple(Notice("unknown_key", f"`{key}` is not known and was ignored") for key in unknown)

    def _begin(
        self,
        prompt: str,
        context: Mapping[str, Any] | None,
        system_prompt: str | None,
        connection_timeout: float | None,
        response_timeout: float | None,
    ) -> Stream[Any]:
        settings: dict[str, Any] = {"permission_mode": "bypass", "pass_env": ["*"], "timeout": DEFAULT_TIMEOUT_S}
        # Another name of a key stands for it; both would be a contradiction.
        for key, names in (("permission_mode", ("approval_mode", "yolo")), ("timeout", ("timeout_ms",))):
            if any(name in self.config for name in names):
                del settings[key]
        settings |= {key: value for key, value in self.config.items() if value is not None}
        settings["agent"] = self._agent
        if response_timeout is not None:
            settings.pop("timeout_ms", None)
            settings["timeout"] = response_timeout
        if connection_timeout is not None:
            settings["startup_timeout"] = connection_timeout
        if system_prompt is not None:
            settings["system_prompt"] = system_prompt
        root, file = (_text(context or {}, key) for key in ("project_root", "prompt_file"))
        if root is not None and not any(key in settings for key in ("working_dir", "cwd")):
            settings["working_dir"] = root
        workspace = settings.get("working_dir", settings.get("cwd"))
        if file is not None:
            settings["prompt_file"] = _find(file, workspace, root)
        asked = None if file is not None else prompt
        agentline = self._client()
        try:
            return agentline.stream(asked or "", extra=settings)
        except AgentlineError as why:
            raise self._error(why) from why

    def _follow(self, stream: Stream[Any]) -> ProviderResult:
        gathered = Gathered()
        outcome: Outcome[Any] | None = None
        try:
            for event in stream:
                if isinstance(event, Finished):
                    outcome = event.outcome
                else:
                    gathered.take(event)
        except AgentlineError as why:
            raise self._error(why) from why
        assert outcome is not None
        error = self._failure(outcome)
        if error is not None:
            raise error
        return gathered.finish(outcome, self._notices)

    def _error(self, why: AgentlineError) -> ProviderError:
        """An error of a call that did not come to an outcome."""
        if isinstance(why, ProviderError):
            return why
        if isinstance(why, UsageError):
            return ConfigurationError(why.message, keys_for_flags(why.hint))
        if isinstance(why, RunFailed):
            return self._failure(why.outcome) or ProviderError(why.message, outcome=why.outcome)
        return ProviderError(f"{self._agent}: {why.message}", hint=why.hint)

    def _failure(self, outcome: Outcome[Any]) -> ProviderError | None:
        """The error in an outcome; none when there is an answer, be it an empty one."""
        error = outcome.error
        if error is None or outcome.ok:
            return None
        # Whether nothing is enough is for the engine to say; part of an answer is not nothing.
        if outcome.verdict == "empty" and error.kind == "empty" and not outcome.text.strip():
            return None
        card, said = self._about(), error.message
        kind, words = VERDICTS.get(outcome.verdict, ("failed", ""))
        if kind == "not_found":
            message = missing(card, said)
        elif kind == "authentication":
            hint = card.sign_in_hint
            message = f"{card.title} authentication error. {hint[:1].upper()}{hint[1:]}\n{outcome.stderr_tail or said}"
        elif words:
            message = with_stderr(f"{card.title} {words}: {said}", outcome)
        elif error.kind == "no_result" and outcome.agent_exit_code == 127:
            kind, message = "not_found", with_stderr(missing(card, ""), outcome)
        else:
            interrupted = error.kind == "no_result" and outcome.agent_exit_code == 130
            kind, message = "cancelled" if interrupted else "failed", failed(card, outcome, said)
        hint_of = None if kind == "authentication" else keys_for_flags(error.hint)
        return ProviderError(message, kind=kind, hint=hint_of, outcome=outcome)


class _Lazy:
    """A client that is started when it is first needed."""

    def __init__(self, binary: Path | None, env: Mapping[str, str] | None) -> None:
        self._binary, self._env = binary, env
        self._lock = threading.Lock()
        self._client: Agentline | None = None

    def get(self) -> Agentline:
        with self._lock:
            # One that died is replaced: an engine keeps its providers for days.
            if self._client is None or not self._client.is_alive:
                self._client = Agentline(self._binary, env=self._env)
            return self._client

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()


def snake(key: str) -> str:
    """A key as it stands in the table: `apiKey` and `api-key` are `api_key`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).replace("-", "_").lower()


def _text(context: Mapping[str, Any], key: str) -> str | None:
    value = context.get(key)
    if value is None:
        return None
    with contextlib.suppress(TypeError):
        return os.fsdecode(value)
    raise ConfigurationError(f"{key} must be a string", "pass the path as a string")


def _find(file: str, workspace: Any, root: str | None) -> str:
    """The engine names its file from the project, the agent from where it works; mostly that is the same."""
    places = [os.path.join(os.path.abspath(place), file) for place in (workspace or ".", root) if place is not None]
    return next((place for place in places if os.path.isfile(place)), places[0])


__all__ = ["CONFIG_KEYS", "ConfigurationError", "GeminiCliProvider", "ProviderError", "ProviderResult"]
