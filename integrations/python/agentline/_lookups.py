"""Requests about agents, saved sessions and the pool: the method, its parameters, and a function that reads the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Generic, TypeVar

from .settings import Path

T = TypeVar("T")


@dataclass(frozen=True)
class Lookup(Generic[T]):
    """A request to the host."""

    method: str
    params: Mapping[str, Any]
    read: Callable[[Any], T]


@dataclass(frozen=True)
class Model:
    """A model that an agent offers."""

    id: str
    name: str = ""


@dataclass(frozen=True)
class Capabilities:
    """The features of an agent. `source` says whether the agent itself reported them."""

    agent: str
    models: tuple[Model, ...] = ()
    supports_models: bool = False
    supports_slash_commands: bool = False
    supports_thinking: bool = False
    supports_web_search: bool = False
    source: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class AgentInfo:
    """An agent that agentline supports."""

    id: str
    title: str
    program: str = ""
    package: str = ""
    home_page: str = ""
    pinned: str = ""
    min_node: int | None = None
    sign_in_hint: str = ""
    aliases: tuple[str, ...] = ()
    surfaces: tuple[str, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class SavedSession:
    """A session that an agent saved."""

    id: str
    agent: str = ""
    project: str | None = None
    title: str | None = None
    model: str | None = None
    started: datetime | None = None
    updated: datetime | None = None
    prompts: int | None = None
    answers: int | None = None
    tool_calls: int | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class LoadedSession:
    """A saved session with its messages, in the unified format or in Claude's."""

    session: SavedSession
    messages: tuple[Mapping[str, Any], ...]
    damage: Any = None


@dataclass(frozen=True)
class SearchResult:
    """A session that matches a search. `raw` has the matches."""

    session: SavedSession
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class PoolStatus:
    """The warm agents, and the number of active and waiting runs."""

    processes: tuple[Mapping[str, Any], ...]
    active: int
    waiting: int
    allowed: int
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


def agents() -> Lookup[tuple[AgentInfo, ...]]:
    return Lookup("agents", {}, lambda rows: tuple(_agent(row) for row in rows))


def detect(agent: str | None) -> Lookup[str | None]:
    return Lookup("detect", {"agent": agent}, lambda found: found.get("path"))


def capabilities(agent: str | None) -> Lookup[Capabilities]:
    return Lookup("capabilities", {"agent": agent}, _capabilities)


def sessions(
    agent: str | None, project: Path | None, since: datetime | None, until: datetime | None, limit: int | None
) -> Lookup[tuple[SavedSession, ...]]:
    params = _query(agent, project, since, until, limit)
    return Lookup("sessions/list", params, lambda found: tuple(_session(one) for one in found.get("sessions") or ()))


def search(
    words: str | Sequence[str],
    agent: str | None,
    project: Path | None,
    since: datetime | None,
    until: datetime | None,
    limit: int | None,
    regex: bool,
    case_sensitive: bool,
    context_lines: int,
) -> Lookup[tuple[SearchResult, ...]]:
    params = _query(agent, project, since, until, limit) | {
        "words": [words] if isinstance(words, str) else list(words),
        "regex": regex,
        "case_sensitive": case_sensitive,
        "context_lines": context_lines,
    }

    def read(found: Mapping[str, Any]) -> tuple[SearchResult, ...]:
        return tuple(SearchResult(_session(one), raw=one) for one in found.get("results") or ())

    return Lookup("sessions/search", params, read)


def load(
    session: str | None, agent: str | None, project: Path | None, view: str, order: str | None, context: bool
) -> Lookup[LoadedSession]:
    params = {"session": session, "agent": agent, "project": project, "view": view, "order": order, "context": context}

    def read(found: Mapping[str, Any]) -> LoadedSession:
        return LoadedSession(_session(found.get("session") or {}), tuple(found.get("messages") or ()), found.get("damage"))

    return Lookup("sessions/load", params, read)


def pool_status() -> Lookup[PoolStatus]:
    def read(found: Mapping[str, Any]) -> PoolStatus:
        runs, pool = found.get("runs") or {}, found.get("pool") or {}
        counts = {name: int(runs.get(name, 0)) for name in ("active", "waiting", "allowed")}
        return PoolStatus(processes=tuple(pool.get("processes") or ()), **counts, raw=found)

    return Lookup("pool/status", {}, read)


def configure_pool(settings: Mapping[str, Any]) -> Lookup[None]:
    return Lookup("pool/configure", settings, lambda _: None)


def prewarm(runs: int, settings: Mapping[str, Any]) -> Lookup[int]:
    return Lookup("pool/prewarm", {**settings, "runs": runs}, lambda found: int(found.get("ready", 0)))


def validate(settings: Mapping[str, Any]) -> Lookup[None]:
    return Lookup("validate", settings, lambda _: None)


def cancel(run: str) -> Lookup[bool]:
    return Lookup("cancel", {"run": run}, lambda found: bool(found.get("found")))


def _query(
    agent: str | None, project: Path | None, since: datetime | None, until: datetime | None, limit: int | None
) -> dict[str, Any]:
    return {"agent": agent, "project": project, "since": _ms(since), "until": _ms(until), "limit": limit}


def _ms(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp() * 1000)


def _agent(row: Mapping[str, Any]) -> AgentInfo:
    info = row.get("card") or {}
    known = AgentInfo.__dataclass_fields__.keys() - {"raw", "aliases", "surfaces"}
    named = {name: value for name, value in info.items() if name in known and value is not None}
    named |= {name: tuple(info.get(name) or ()) for name in ("aliases", "surfaces")}
    return AgentInfo(**{"id": "", "title": "", **named}, raw=row)


def _capabilities(found: Mapping[str, Any]) -> Capabilities:
    known = Capabilities.__dataclass_fields__.keys() - {"raw", "models"}
    named = {name: value for name, value in found.items() if name in known and value is not None}
    models = tuple(Model(str(one.get("id", "")), str(one.get("name", ""))) for one in found.get("models") or ())
    return Capabilities(**{"agent": "", **named}, models=models, raw=found)


def _session(found: Mapping[str, Any]) -> SavedSession:
    """Reads a session. Its fields are at the top level or under `info`, depending on the method."""
    facts = {**(found.get("info") or {}), **{key: value for key, value in found.items() if value is not None}}
    known = SavedSession.__dataclass_fields__.keys() - {"raw", "started", "updated"}
    named = {name: value for name, value in facts.items() if name in known and value is not None}
    named |= {name: _time(facts.get(name)) for name in ("started", "updated")}
    return SavedSession(**{"id": "", **named}, raw=found)


def _time(ms: Any) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, timezone.utc) if isinstance(ms, (int, float)) else None
