"""Finds the program `agentline`: the argument first, then AGENTLINE_BIN, then PATH."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from .errors import BinaryNotFound


def find_binary(binary: str | os.PathLike[str] | None, env: Mapping[str, str]) -> str:
    """Returns the absolute path of the program. On Windows, the file extension may be omitted."""
    for source, named in (("binary=", binary), ("AGENTLINE_BIN", env.get("AGENTLINE_BIN"))):
        if named:
            name = os.path.expanduser(os.fspath(named))
            found = shutil.which(name, path=env.get("PATH"))
            if found is None:
                raise BinaryNotFound(f"{source} names a program that was not found: {name}")
            return os.path.abspath(found)
    found = shutil.which("agentline", path=env.get("PATH"))
    if found is None:
        raise BinaryNotFound("the program `agentline` was not found on PATH")
    return os.path.abspath(found)
