"""What the tests share: a stage with a home, a workspace and an agent of its own, and a look at what is left running.

`cargo test -p agentline-tests --test integrations python` sets everything up and runs them. By hand: AGENTLINE_BIN names the program, and
AGENTLINE_TEST_FAKE_ACP and AGENTLINE_TEST_FAKE_GEMINI the fake agents that cargo built beside it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentline import Agentline, AsyncAgentline

#: What every run of these tests asks for: no wait for stragglers, and time enough on a busy machine.
DEFAULTS: dict[str, Any] = {"permission_mode": "bypass", "pass_env": ["*"], "quiet_period_ms": 0, "timeout": 90}


def needed(name: str) -> str:
    """A variable that the set-up gives. Where CI=true a test that cannot run fails."""
    value = os.environ.get(name)
    if not value:
        message = f"{name} is not set; run `cargo test -p agentline-tests --test integrations python`"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return value


class Stage:
    """Everything that one test needs; all processes that it leads to carry its mark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home, self.workspace = folder / "home", folder / "ws"
        for part in (self.home / ".gemini", self.workspace, folder / "tmp"):
            part.mkdir(parents=True)
        self.binary = needed("AGENTLINE_BIN")
        self.env: dict[str, str] = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(folder / "tmp"),
            "GEMINI_API_KEY": "no-key-of-anything",
            "MARK_OF_THE_TEST": str(folder),
        }

    def acp(self) -> Stage:
        """With the fake agent that speaks ACP: a prompt is the script of its own turn."""
        self.env["GEMINI_CLI_PATH"] = needed("AGENTLINE_TEST_FAKE_ACP")
        return self

    def fault(self, name: str, **args: Any) -> Stage:
        """With the fake agent that is run for one prompt, and errs in this way."""
        self.env["GEMINI_CLI_PATH"] = needed("AGENTLINE_TEST_FAKE_GEMINI")
        self.env |= {"FAKE_AGENT_FAULT": name, "FAKE_AGENT_ARGS": json.dumps(args)}
        return self

    def script(self, body: str) -> Stage:
        """With an agent that is this shell script, once it has read its prompt."""
        program = self.folder / "gemini"
        program.write_text(f"#!/bin/sh\ncat > /dev/null\n{body}\n")
        program.chmod(0o755)
        self.env["GEMINI_CLI_PATH"] = str(program)
        return self

    def real(self) -> Stage:
        """With the real Gemini CLI and the scripted model."""
        self.env["GEMINI_CLI_PATH"] = needed("AGENTLINE_TEST_GEMINI")
        self.env["GOOGLE_GEMINI_BASE_URL"] = needed("AGENTLINE_TEST_MODEL")
        (self.home / ".gemini" / "settings.json").write_text(needed("AGENTLINE_TEST_SETTINGS"))
        return self

    def options(self, **more: Any) -> dict[str, Any]:
        """The arguments of a client."""
        defaults = {**DEFAULTS, **more.pop("defaults", {})}
        return {"binary": self.binary, "env": self.env, "cwd": self.workspace, "defaults": defaults, **more}

    def client(self, **more: Any) -> Agentline:
        return Agentline(**self.options(**more))

    def async_client(self, **more: Any) -> AsyncAgentline:
        return AsyncAgentline(**self.options(**more))

    def living(self) -> list[int]:
        """Processes of this stage that live; only Linux tells."""
        found = []
        mark = f"MARK_OF_THE_TEST={self.folder}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                is_ours = mark in (process / "environ").read_bytes()
                state = (process / "stat").read_text().rsplit(") ", 1)[1][:1]
            except (OSError, IndexError):
                continue
            if is_ours and state != "Z":
                found.append(int(process.name))
        return found

    def nothing_left(self, within: float = 20.0) -> None:
        """Waits until nothing of the stage is alive."""
        until = time.monotonic() + within
        while self.living():
            assert time.monotonic() < until, f"still alive: {self.living()}"
            time.sleep(0.02)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.nothing_left()


@pytest.fixture
def agentline(stage: Stage) -> Iterator[Agentline]:
    """A client with the fake agent that speaks ACP."""
    with stage.acp().client() as client:
        yield client


def wait_for(what: Any, within: float = 60.0) -> Any:
    """Waits until something is true, and gives it."""
    until = time.monotonic() + within
    while not (found := what()):
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.01)
    return found
