"""The provider without an agent: configuration, metadata and the validation of calls."""

from __future__ import annotations

import sys
import types
import warnings
from typing import Any

import pytest
from conftest import Stage

from agentline import AgentlineError
from agentline.provider import ConfigurationError, GeminiCliAIProvider, GeminiCliProvider, ProviderError


def test_metadata() -> None:
    assert GeminiCliProvider.get_metadata() == {
        "name": "gemini-cli",
        "description": "Gemini CLI AI agent via subprocess",
        "requires_config": False,
        "config_keys": [
            "model",
            "sandbox",
            "approval_mode",
            "include_directories",
            "allowed_tools",
            "working_dir",
            "timeout",
        ],
        "default_response_timeout": 600,
        "fs_ability": "local-write",
    }


@pytest.mark.parametrize("config", [None, {}, {"timeout": 1}, {"timeout": "10m"}, {"approval_mode": "plan"}, {"apiKey": "k"}])
def test_a_valid_configuration_causes_no_warning(config: dict[str, Any] | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert GeminiCliProvider(config).config == (config or {})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"timeout": 0}, "timeout must be > 0"),
        ({"timeout": -1.5}, "timeout must be > 0"),
        (
            {"approval_mode": "always"},
            "approval_mode must be one of ['auto_edit', 'default', 'plan', 'yolo'], got: 'always'",
        ),
        ({"include_directories": "src"}, "include_directories must be a list, got: str"),
        ({"allowed_tools": {"a": 1}}, "allowed_tools must be a list, got: dict"),
        (
            {"timeout": 0, "allowed_tools": "x"},
            "timeout must be > 0\nallowed_tools must be a list, got: str",
        ),
    ],
)
def test_an_invalid_configuration_raises_one_error_for_all_problems(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        GeminiCliProvider(config)
    error = caught.value
    assert isinstance(error, ConfigurationError) and isinstance(error, ProviderError) and isinstance(error, AgentlineError)
    assert (error.message, error.kind, error.phase) == (message, "configuration", "request")


def test_unknown_keys_are_warned_about_and_ignored() -> None:
    with pytest.warns(UserWarning, match=r"Unknown GeminiCliProvider config keys ignored: \['another_unknown', 'unknown_key'\]"):
        provider = GeminiCliProvider({"unknown_key": "x", "another_unknown": 1, "model": "gemini-2.5-pro"})
    assert provider.config == {"model": "gemini-2.5-pro"}


@pytest.mark.parametrize(
    ("key", "meant"), [("modle", "model"), ("timout", "timeout"), ("aproval_mode", "approval_mode"), ("maxTurn", "max_turns")]
)
def test_a_misspelled_key_is_refused(key: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{key} is not a known key") as caught:
        GeminiCliProvider({key: 1})
    assert caught.value.hint == f"did you mean `{meant}`?"


@pytest.mark.parametrize(
    ("config", "key"),
    [({"max_turns": -1}, "max_turns"), ({"sandbox": 3}, "sandbox"), ({"agents": {"a": {"comand": "x"}}}, "agents.a.comand")],
)
def test_every_value_is_checked_before_the_first_call(stage: Stage, config: dict[str, Any], key: str) -> None:
    with GeminiCliProvider(config, binary=stage.binary, env=stage.acp().env) as provider:
        with pytest.raises(ConfigurationError, match=key):
            provider.validate()
    with GeminiCliProvider({"max_turns": 3, "working_dir": "src"}, binary=stage.binary, env=stage.env) as provider:
        provider.validate()


def test_errors_are_also_those_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    class EngineError(Exception):
        pass

    assert not isinstance(ProviderError("x"), EngineError)
    engine = types.ModuleType("aiwf.domain.errors")
    engine.ProviderError = EngineError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "aiwf.domain.errors", engine)
    for raised in (ProviderError("x", kind="timeout", hint="wait"), ConfigurationError("x")):
        with pytest.raises(EngineError) as caught:
            raise raised
        assert isinstance(caught.value, ProviderError) and caught.value.message == "x"
    assert type(ProviderError("x")) is type(ProviderError("y")) and isinstance(ConfigurationError("x"), ValueError)
    with pytest.raises(EngineError, match="must be > 0"):
        GeminiCliAIProvider({"timeout": 0})


def test_cli_not_found_names_the_install_url(stage: Stage) -> None:
    env = {**stage.env, "PATH": "/nonexistent", "GEMINI_CLI_PATH": "/nonexistent/gemini"}
    with GeminiCliProvider(binary=stage.binary, env=env) as provider:
        for call in (provider.validate, lambda: provider.generate("hi")):
            with pytest.raises(ProviderError) as caught:
                call()
            assert caught.value.kind == "not_found"
            assert caught.value.message.startswith(
                "Gemini CLI not found. Install from: https://github.com/google-gemini/gemini-cli\n"
                "Install with: npm i -g @google/gemini-cli (Node.js 20 or newer)"
            )


def test_a_missing_agentline_program_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTLINE_BIN", raising=False)
    with pytest.raises(ProviderError) as caught:
        GeminiCliProvider(env={"PATH": "/nonexistent"}).validate()
    assert caught.value.kind == "not_found" and "AGENTLINE_BIN" in (caught.value.hint or "")


def test_an_invalid_call_starts_no_agent(stage: Stage) -> None:
    stage.script("touch started")
    with GeminiCliProvider({"surface": "stream-json"}, binary=stage.binary, env=stage.env) as provider:
        provider.validate()
        root = {"project_root": stage.workspace}
        for prompt, context, message in (
            (" ", root, "`prompt`: is empty"),
            ("hi", {"project_root": "/nonexistent/project"}, "`/nonexistent/project` is not a directory"),
            ("hi", {**root, "prompt_file": "missing.md"}, "missing.md` cannot be read"),
            ("hi", {"project_root": 7}, "project_root must be a string"),
        ):
            with pytest.raises(ConfigurationError) as caught:
                provider.generate(prompt, context)
            assert message in caught.value.message
    assert not (stage.workspace / "started").exists()
