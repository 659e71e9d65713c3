"""The environment of the examples: the real Gemini CLI, a scripted model on loopback, a private home and workspace.

Your own program needs none of this: without `demo()`, the agent uses your environment, your home directory and your
sign-in.
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
    workspace: str
    model: str


@contextlib.contextmanager
def demo(script: Path | None = None) -> Iterator[Stage]:
    """Replaces the environment until the block ends. The model answers with the demo's script, or with `script`."""
    command = [os.environ.get("AGENTLINE_BIN", "agentline"), "demo", "--serve", *([str(script)] if script else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None and serving.stdin is not None
        line = serving.stdout.readline()
        if not line:
            raise SystemExit("`agentline demo --serve` failed")
        served, before = json.loads(line), dict(os.environ)
        # The program `agentline` is still the one of this environment.
        kept = {name: before[name] for name in ("AGENTLINE_BIN",) if name in before}
        try:
            os.environ.clear()
            os.environ.update({**served["env"], **kept})
            yield Stage(served["workspace"], served["model"])
        finally:
            os.environ.clear()
            os.environ.update(before)
            serving.stdin.close()
