"""The stage of the examples: the real Gemini CLI, a scripted model on loopback, a home and a workspace of their own.

Your own program needs none of this: it leaves `host_env=` out, and the agent has your home and your sign-in.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Stage:
    env: dict[str, str]
    workspace: str
    model: str


@contextlib.contextmanager
def demo(script: Path | None = None) -> Iterator[Stage]:
    """Keeps the stage until the block is left. Every prompt gets the demo's answers, or those of a script."""
    command = [os.environ.get("AGENTLINE_BIN", "agentline"), "demo", "--serve", *([str(script)] if script else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None and serving.stdin is not None
        line = serving.stdout.readline()
        if not line:
            raise SystemExit("`agentline demo --serve` could not set the stage")
        told = json.loads(line)
        try:
            yield Stage(told["env"], told["workspace"], told["model"])
        finally:
            serving.stdin.close()
