"""Finds the program `agentline`: by argument, by AGENTLINE_BIN, on PATH."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from .errors import BinaryNotFound


def find_binary(binary: str | os.PathLike[str] | None, env: Mapping[str, str]) -> str:
    """The full path of the program, so that Windows finds it with its ending too."""
    for source, named in (("binary=", binary), ("AGENTLINE_BIN", env.get("AGENTLINE_BIN"))):
        if named:
            name = os.path.expanduser(os.fspath(named))
            found = shutil.which(name, path=env.get("PATH"))
            if found is None:
                raise BinaryNotFound(f"the program that {source} names is not there: {name}")
            return os.path.abspath(found)
    found = shutil.which("agentline", path=env.get("PATH"))
    if found is None:
        raise BinaryNotFound("the program `agentline` was not found on PATH")
    return os.path.abspath(found)
