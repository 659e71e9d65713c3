"""One `agentline host` process: JSON-RPC, a line a message. Threads read and write, so that nobody else ever blocks on a pipe."""

from __future__ import annotations

import collections
import itertools
import json
import logging
import os
import queue
import subprocess
import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from ._schema import plain
from .errors import AgentlineError, BinaryNotFound, ClientClosed, HostDied, Problem, RequestFailed, RunFailed, UsageError
from .outcome import Outcome

log = logging.getLogger("agentline")

#: How long the host may take to end in order, and then after it was asked by a signal.
GRACE_S = 20.0
AFTER_SIGNAL_S = 5.0
#: How many lines of its standard error are kept.
STDERR_LINES = 40
#: How long a program may take to say that it is agentline.
GREETING_S = 30.0


class Listener(Protocol):
    """Who hears what the host says about one run. Called by the reading thread: it must not wait for anything."""

    def told(self, method: str, params: Mapping[str, Any]) -> None:
        """A notification."""

    def asked(self, method: str, params: Mapping[str, Any], reply: Reply) -> None:
        """A question, which must be answered once."""


class Reply:
    """The answer to a question of the host. Only the first counts."""

    def __init__(self, host: Host, id: Any) -> None:
        self._host, self._id = host, id
        self._lock = threading.Lock()
        self._given = False

    def result(self, value: Any) -> None:
        """Answers. A value that is no JSON is told as an error."""
        self._give({"result": value})

    def error(self, message: str) -> None:
        """Says that there is no answer."""
        self._give({"error": {"code": -32000, "message": message}})

    def _give(self, body: dict[str, Any]) -> None:
        with self._lock:
            if self._given:
                return
            self._given = True
        head = {"jsonrpc": "2.0", "id": self._id}
        try:
            line = encode({**head, **body})
        except (UsageError, TypeError, ValueError) as why:
            line = encode({**head, "error": {"code": -32000, "message": f"the answer is not JSON: {why}"}})
        self._host.put(line)


class Host:
    """A running `agentline host`."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], cwd: str | None) -> None:
        # A group of its own: Ctrl-C is for this program, which then stops its runs in order.
        apart: dict[str, Any] = {"process_group": 0}
        if os.name == "nt":
            apart = {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
        if cwd is not None and not os.path.isdir(cwd):
            problem = Problem("cwd", f"`{cwd}` is not a directory")
            raise UsageError(str(problem), (problem,))
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(env),
                cwd=cwd,
                **apart,
            )
        except OSError as why:
            raise BinaryNotFound(f"{command[0]} cannot be started: {why.strerror}") from why
        self._program, self._owner = command[0], os.getpid()
        _hosts.add(self)
        #: Why it was ended before it had said that it is agentline.
        self._refused: str | None = None
        self._greeted = False
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._listeners: dict[str, Listener] = {}
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr: collections.deque[str] = collections.deque(maxlen=STDERR_LINES)
        self._closing = False
        self._gone: AgentlineError | None = None
        self._threads = [
            threading.Thread(target=work, name=f"agentline-{name}", daemon=True)
            for name, work in (("write", self._write), ("stderr", self._read_stderr), ("read", self._read))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can still be asked."""
        return self._gone is None and not self._closing

    def greet(self, hello: Mapping[str, Any], within: float = GREETING_S) -> Future[Any]:
        """The first request. A program that does not answer it is not agentline, and is ended."""
        future = self.request("initialize", hello)

        def give_up() -> None:
            self._refused = f"{self._program} did not answer within {within:g} s"
            self._process.kill()

        late = threading.Timer(within, give_up)
        late.daemon = True

        def answered(_: Future[Any]) -> None:
            late.cancel()
            self._greeted = True

        late.start()
        future.add_done_callback(answered)
        return future

    def request(self, method: str, params: Mapping[str, Any]) -> Future[Any]:
        """Asks. The future never stays open: it fails when the host is gone. It cannot be cancelled."""
        if os.getpid() != self._owner:
            # The threads that speak with the host stayed behind.
            raise ClientClosed("the client belongs to the process that this one was forked from", "make a new client after the fork")
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        number = next(self._ids)
        line = encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        with self._lock:
            if self._gone is not None or self._closing:
                raise _again(self._gone or ClientClosed())
            self._waiting[number] = future
        self.put(line)
        return future

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Says something that needs no answer."""
        self.put(encode({"jsonrpc": "2.0", "method": method, "params": params}))

    def put(self, line: bytes) -> None:
        """Sends a line when the host takes it."""
        self._out.put(line)

    def listen(self, run: str, listener: Listener) -> None:
        """Has what is said about a run told to this one. Two runs of one name could not be told apart."""
        with self._lock:
            if self._listeners.setdefault(run, listener) is not listener:
                problem = Problem("run", f"a run named `{run}` is already in progress", "give each run a unique name")
                raise UsageError(str(problem), (problem,))

    def forget(self, run: str) -> None:
        """The run is over."""
        with self._lock:
            self._listeners.pop(run, None)

    def close(self, grace: float = GRACE_S) -> None:
        """Ends the host and everything that it started, and waits for it. May be called again."""
        if os.getpid() != self._owner:
            return
        if not self._greeted:
            self._process.kill()
        with self._lock:
            first, self._closing = not self._closing, True
        if first:
            self.notify("shutdown", {})
            self._out.put(None)
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            try:
                self._process.wait(AFTER_SIGNAL_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(AFTER_SIGNAL_S)

    def _let_go(self, instead: int) -> None:
        """Puts another file in the place of the pipes."""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None and not stream.closed:
                os.dup2(instead, stream.fileno(), inheritable=False)

    def _write(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            while (line := self._out.get()) is not None:
                stdin.write(line)
                if self._out.empty():
                    stdin.flush()
            stdin.close()
        except (OSError, ValueError):
            # The host is gone; the reader says so to everybody.
            pass

    def _read_stderr(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        with stream:
            for line in stream:
                text = line.decode("utf-8", "replace").rstrip()
                self._stderr.append(text)
                log.debug("agentline host: %s", text)

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        with stdout:
            for line in stdout:
                try:
                    self._take(json.loads(line))
                except Exception:  # One message that cannot be understood must not silence all others.
                    log.exception("a message of the host could not be taken")
        self._end()

    def _take(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        method, params = message.get("method"), message.get("params")
        if method is None:
            self._answered(message)
            return
        params = params if isinstance(params, dict) else {}
        with self._lock:
            listener = self._listeners.get(str(params.get("run")))
        if "id" not in message:
            if listener is not None:
                listener.told(method, params)
            return
        reply = Reply(self, message["id"])
        if listener is None:
            reply.error(f"nobody answers `{method}` for this run")
            return
        try:
            listener.asked(method, params, reply)
        except Exception as why:
            reply.error(f"{type(why).__name__}: {why}")
            raise

    def _answered(self, message: Mapping[str, Any]) -> None:
        number = message.get("id")
        with self._lock:
            future = self._waiting.pop(number, None) if isinstance(number, int) else None
        if future is None:
            if message.get("error"):
                log.warning("the host refused a message: %s", message["error"])
        elif "error" in message:
            future.set_exception(read_error(message["error"]))
        else:
            future.set_result(message.get("result"))

    def _end(self) -> None:
        """The host says nothing more: everyone who waits hears it."""
        try:
            code: int | None = self._process.wait(AFTER_SIGNAL_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._out.put(None)
        self._threads[1].join(AFTER_SIGNAL_S)
        tail = "\n".join(self._stderr)
        with self._lock:
            if self._closing:
                self._gone = ClientClosed()
            else:
                said = f": {tail}" if tail else ""
                why = self._refused or f"agentline host ended by itself (exit {code}){said}"
                self._gone = HostDied(why, exit_code=code, stderr_tail=tail, program=None if self._greeted else self._program)
            waiting, self._waiting = list(self._waiting.values()), {}
            self._listeners.clear()
        for future in waiting:
            future.set_exception(_again(self._gone))


#: Those of this process.
_hosts: weakref.WeakSet[Host] = weakref.WeakSet()


def _forked() -> None:
    """A process that was forked from this one must not hold the pipes: the host would outlive the program that it belongs to."""
    null = os.open(os.devnull, os.O_RDWR)
    for host in list(_hosts):
        host._let_go(null)
    os.close(null)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _again(error: AgentlineError) -> AgentlineError:
    """The same error for another caller: one exception must not carry the traceback of two."""
    if isinstance(error, HostDied):
        return HostDied(error.message, exit_code=error.exit_code, stderr_tail=error.stderr_tail, program=error.program)
    return ClientClosed()


def encode(message: Mapping[str, Any]) -> bytes:
    """A message as a line. What JSON or UTF-8 cannot hold is an error of the caller."""
    try:
        text = json.dumps(message, default=plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8") + b"\n"
    except (TypeError, ValueError, RecursionError) as why:
        problem = _culprit(message, why)
        raise UsageError(str(problem), (problem,)) from why


def _culprit(message: Mapping[str, Any], why: Exception) -> Problem:
    """Which key of a request it is that cannot be written."""
    params = message.get("params")
    for key, value in params.items() if isinstance(params, Mapping) else ():
        try:
            json.dumps({key: value}, default=plain, ensure_ascii=False, allow_nan=False).encode("utf-8")
        except (TypeError, ValueError, RecursionError):
            hint = "functions are given by `tools`, `permission`, `check` and `on_event`; is the name right?" if callable(value) else None
            return Problem(str(key), f"this cannot be sent as JSON: {why}", hint)
    return Problem("", f"this cannot be sent as JSON: {why}")


def read_error(error: Any) -> AgentlineError:
    """The exception for an error of JSON-RPC."""
    error = error if isinstance(error, dict) else {}
    message, code = str(error.get("message", "the host returned an error")), int(error.get("code", 0))
    data = error.get("data") if isinstance(error.get("data"), dict) else {}
    assert isinstance(data, dict)
    if code in (-32602, -32600):
        rows = [row for row in data.get("problems") or () if isinstance(row, dict)]
        problems = tuple(Problem(str(r.get("key", "")), str(r.get("message", "")), r.get("hint")) for r in rows)
        # The host's sentence repeats the hints, which stand apart here.
        said = "\n".join(str(one) for one in problems) or message
        return UsageError(said, problems or (Problem("", message),))
    if isinstance(data.get("outcome"), dict):
        return RunFailed.of(Outcome.of(data["outcome"]))
    return RequestFailed(message, code, data)
