"""Shared fixtures: a home directory, a workspace and an agent for each test, and a check for remaining processes.

`cargo test -p agentline-tests --test end_to_end clients::python` sets everything up and runs the tests. To run
them by hand, set AGENTLINE_BIN to the program, and AGENTLINE_TEST_FAKE_ACP and AGENTLINE_TEST_FAKE_GEMINI to the fake agents
that cargo built.
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

#: The defaults of every run: no quiet period, and a timeout that is long enough for a busy machine.
DEFAULTS: dict[str, Any] = {"permission_mode": "bypass", "pass_env": ["*"], "quiet_period_ms": 0, "timeout": 90}


def needed(name: str) -> str:
    """Returns a variable of the test setup. Skips the test if the variable is not set; with CI=true, fails it."""
    value = os.environ.get(name)
    if not value:
        message = f"{name} is not set; run `cargo test -p agentline-tests --test end_to_end clients::python`"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return value


class Stage:
    """The environment of one test. All its processes inherit a variable that identifies them."""

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
            "STAGE_ID": str(folder),
        }

    def acp(self) -> Stage:
        """Uses the fake ACP agent, which executes the prompt as a script."""
        self.env["GEMINI_CLI_PATH"] = needed("AGENTLINE_TEST_FAKE_ACP")
        return self

    def fault(self, name: str, **args: Any) -> Stage:
        """Uses the fake agent that runs once per prompt, with this fault."""
        self.env["GEMINI_CLI_PATH"] = needed("AGENTLINE_TEST_FAKE_GEMINI")
        self.env |= {"FAKE_AGENT_FAULT": name, "FAKE_AGENT_ARGS": json.dumps(args)}
        return self

    def script(self, body: str) -> Stage:
        """Uses a shell script as the agent. It reads the prompt first."""
        program = self.folder / "gemini"
        program.write_text(f"#!/bin/sh\ncat > /dev/null\n{body}\n")
        program.chmod(0o755)
        self.env["GEMINI_CLI_PATH"] = str(program)
        return self

    def real(self) -> Stage:
        """Uses the real Gemini CLI with the scripted model."""
        self.env["GEMINI_CLI_PATH"] = needed("AGENTLINE_TEST_GEMINI")
        self.env["GOOGLE_GEMINI_BASE_URL"] = needed("AGENTLINE_TEST_MODEL")
        (self.home / ".gemini" / "settings.json").write_text(needed("AGENTLINE_TEST_SETTINGS"))
        return self

    def options(self, **more: Any) -> dict[str, Any]:
        """Returns the arguments of a client."""
        defaults = {**DEFAULTS, **more.pop("defaults", {})}
        return {"binary": self.binary, "env": self.env, "cwd": self.workspace, "defaults": defaults, **more}

    def client(self, **more: Any) -> Agentline:
        return Agentline(**self.options(**more))

    def async_client(self, **more: Any) -> AsyncAgentline:
        return AsyncAgentline(**self.options(**more))

    def living(self) -> list[int]:
        """Returns the running processes of this test. Works on Linux only."""
        found = []
        mark = f"STAGE_ID={self.folder}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                is_ours = mark in (process / "environ").read_bytes()
                state = (process / "stat").read_text().rsplit(") ", 1)[1][:1]
            except (OSError, IndexError):
                continue
            if is_ours and state != "Z":
                found.append(int(process.name))
        return found

    def assert_no_processes(self, timeout: float = 20.0) -> None:
        """Waits until no process of this test is running."""
        until = time.monotonic() + timeout
        while left := self.living():
            assert time.monotonic() < until, f"still running: {[describe(pid) for pid in left]}"
            time.sleep(0.02)


def describe(pid: int) -> str:
    """Returns the parent, state and command line of a process, as far as it is still there."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (OSError, IndexError):
        return f"{pid} (gone)"
    return f"{pid} (parent {stat[1]}, state {stat[0]}): {command}"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.assert_no_processes()


@pytest.fixture
def agentline(stage: Stage) -> Iterator[Agentline]:
    """A client with the fake ACP agent."""
    with stage.acp().client() as client:
        yield client


def wait_for(condition: Any, timeout: float = 60.0) -> Any:
    """Waits until a condition is true, and returns its value."""
    until = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < until, "timed out waiting for a condition"
        time.sleep(0.01)
    return found
