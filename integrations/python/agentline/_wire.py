"""One `agentline host` process: JSON-RPC with one message per line. Dedicated threads do all pipe I/O, so callers never block."""

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

from ._schema import to_jsonable
from .errors import AgentlineError, BinaryNotFound, ClientClosed, HostDied, Problem, RequestFailed, RunFailed, UsageError, join_hints
from .outcome import Outcome

log = logging.getLogger("agentline")

#: How long the host may take to shut down after `shutdown`, and then after a signal.
SHUTDOWN_TIMEOUT_S = 20.0
SIGNAL_TIMEOUT_S = 5.0
#: How many lines of the host's stderr are kept.
STDERR_LINES = 40
#: How long a program may take to answer `initialize`.
INITIALIZE_TIMEOUT_S = 30.0


class Listener(Protocol):
    """Receives the host's messages about one run. Called on the reader thread, so it must not block."""

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Handles a notification."""

    def on_request(self, method: str, params: Mapping[str, Any], reply: Reply) -> None:
        """Handles a request, which must be answered exactly once."""


class Reply:
    """The reply to a request from the host. Only the first reply is sent."""

    def __init__(self, host: Host, id: Any) -> None:
        self._host, self._id = host, id
        self._lock = threading.Lock()
        self._sent = False

    def result(self, value: Any) -> None:
        """Sends a result. A value that JSON cannot represent becomes an error."""
        self._send({"result": value})

    def error(self, message: str) -> None:
        """Sends an error."""
        self._send({"error": {"code": -32000, "message": message}})

    def _send(self, body: dict[str, Any]) -> None:
        with self._lock:
            if self._sent:
                return
            self._sent = True
        head = {"jsonrpc": "2.0", "id": self._id}
        try:
            line = encode({**head, **body})
        except (UsageError, TypeError, ValueError) as exc:
            line = encode({**head, "error": {"code": -32000, "message": f"the answer cannot be serialized to JSON: {exc}"}})
        self._host.send_line(line)


class Host:
    """A running `agentline host`."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], cwd: str | None) -> None:
        # A separate process group, so that Ctrl-C reaches only this program, which then stops its runs.
        process_options: dict[str, Any] = {"process_group": 0}
        if os.name == "nt":
            process_options = {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
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
                **process_options,
            )
        except OSError as exc:
            raise BinaryNotFound(f"{command[0]} cannot be started: {exc.strerror}") from exc
        self._program, self._owner = command[0], os.getpid()
        _hosts.add(self)
        #: Why the process was killed before it answered `initialize`.
        self._startup_error: str | None = None
        self._initialized = False
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._pending: dict[int, Future[Any]] = {}
        self._listeners: dict[str, Listener] = {}
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr: collections.deque[str] = collections.deque(maxlen=STDERR_LINES)
        self._closing = False
        self._closed_by: AgentlineError | None = None
        self._threads = [
            threading.Thread(target=work, name=f"agentline-{name}", daemon=True)
            for name, work in (("write", self._write), ("stderr", self._read_stderr), ("read", self._read))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        """The id of the host process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the host accepts requests."""
        return self._closed_by is None and not self._closing

    def initialize(self, params: Mapping[str, Any], timeout: float = INITIALIZE_TIMEOUT_S) -> Future[Any]:
        """Sends the first request. A program that does not answer it in time is killed."""
        future = self.request("initialize", params)

        def give_up() -> None:
            self._startup_error = f"{self._program} did not answer within {timeout:g} s"
            self._process.kill()

        timer = threading.Timer(timeout, give_up)
        timer.daemon = True

        def answered(_: Future[Any]) -> None:
            timer.cancel()
            self._initialized = True

        timer.start()
        future.add_done_callback(answered)
        return future

    def request(self, method: str, params: Mapping[str, Any]) -> Future[Any]:
        """Sends a request. The future always completes: it fails if the host exits. It cannot be cancelled."""
        if os.getpid() != self._owner:
            # A fork does not copy the reader and writer threads.
            raise ClientClosed("the client belongs to the parent process of this fork", "create a new client after the fork")
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        request_id = next(self._ids)
        line = encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        with self._lock:
            if self._closed_by is not None or self._closing:
                raise _copy_error(self._closed_by or ClientClosed())
            self._pending[request_id] = future
        self.send_line(line)
        return future

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Sends a notification."""
        self.send_line(encode({"jsonrpc": "2.0", "method": method, "params": params}))

    def send_line(self, line: bytes) -> None:
        """Queues a line for the writer thread."""
        self._outgoing.put(line)

    def add_listener(self, run: str, listener: Listener) -> None:
        """Registers the listener of a run. Raises `UsageError` if a run with this name is in progress."""
        with self._lock:
            if self._listeners.setdefault(run, listener) is not listener:
                problem = Problem("run", f"a run named `{run}` is already in progress", "give each run a unique name")
                raise UsageError(str(problem), (problem,))

    def remove_listener(self, run: str) -> None:
        """Removes the listener of a finished run."""
        with self._lock:
            self._listeners.pop(run, None)

    def close(self, timeout: float = SHUTDOWN_TIMEOUT_S) -> None:
        """Stops the host and every process that it started, and waits for them. Safe to call again."""
        if os.getpid() != self._owner:
            return
        if not self._initialized:
            self._process.kill()
        with self._lock:
            first, self._closing = not self._closing, True
        if first:
            self.notify("shutdown", {})
            self._outgoing.put(None)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            try:
                self._process.wait(SIGNAL_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(SIGNAL_TIMEOUT_S)

    def _replace_pipes(self, replacement: int) -> None:
        """Replaces the pipes to the host with another file descriptor."""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None and not stream.closed:
                os.dup2(replacement, stream.fileno(), inheritable=False)

    def _write(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            while (line := self._outgoing.get()) is not None:
                stdin.write(line)
                if self._outgoing.empty():
                    stdin.flush()
            stdin.close()
        except (OSError, ValueError):
            # The host has exited; the reader thread fails all pending requests.
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
                    self._dispatch(json.loads(line))
                except Exception:  # One invalid message must not stop the reader.
                    log.exception("cannot handle a message from the host")
        self._on_exit()

    def _dispatch(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        method, params = message.get("method"), message.get("params")
        if method is None:
            self._on_response(message)
            return
        params = params if isinstance(params, dict) else {}
        with self._lock:
            listener = self._listeners.get(str(params.get("run")))
        if "id" not in message:
            if listener is not None:
                listener.on_notification(method, params)
            return
        reply = Reply(self, message["id"])
        if listener is None:
            reply.error(f"this run has no handler for `{method}`")
            return
        try:
            listener.on_request(method, params, reply)
        except Exception as exc:
            reply.error(f"{type(exc).__name__}: {exc}")
            raise

    def _on_response(self, message: Mapping[str, Any]) -> None:
        request_id = message.get("id")
        with self._lock:
            future = self._pending.pop(request_id, None) if isinstance(request_id, int) else None
        if future is None:
            if message.get("error"):
                log.warning("the host rejected a message: %s", message["error"])
        elif "error" in message:
            future.set_exception(read_error(message["error"]))
        else:
            future.set_result(message.get("result"))

    def _on_exit(self) -> None:
        """Fails all pending requests after the host has closed its stdout."""
        try:
            code: int | None = self._process.wait(SIGNAL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._outgoing.put(None)
        self._threads[1].join(SIGNAL_TIMEOUT_S)
        tail = "\n".join(self._stderr)
        with self._lock:
            if self._closing:
                self._closed_by = ClientClosed()
            else:
                stderr = f": {tail}" if tail else ""
                message = self._startup_error or f"agentline host exited unexpectedly (exit {code}){stderr}"
                program = None if self._initialized else self._program
                self._closed_by = HostDied(message, exit_code=code, stderr_tail=tail, program=program)
            pending, self._pending = list(self._pending.values()), {}
            self._listeners.clear()
        for future in pending:
            future.set_exception(_copy_error(self._closed_by))


#: All hosts of this process.
_hosts: weakref.WeakSet[Host] = weakref.WeakSet()


def _after_fork() -> None:
    """Releases the pipes in a forked child process, which would otherwise keep the host alive after the parent exits."""
    null = os.open(os.devnull, os.O_RDWR)
    for host in list(_hosts):
        host._replace_pipes(null)
    os.close(null)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _copy_error(error: AgentlineError) -> AgentlineError:
    """Copies an error for another caller, so that two callers do not share one traceback."""
    if isinstance(error, HostDied):
        return HostDied(error.message, exit_code=error.exit_code, stderr_tail=error.stderr_tail, program=error.program)
    return ClientClosed()


def encode(message: Mapping[str, Any]) -> bytes:
    """Serializes a message to one line. Raises `UsageError` if a value cannot be expressed in JSON or UTF-8."""
    try:
        text = json.dumps(message, default=to_jsonable, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8") + b"\n"
    except (TypeError, ValueError, RecursionError) as exc:
        problem = _find_invalid_key(message, exc)
        raise UsageError(str(problem), (problem,)) from exc


def _find_invalid_key(message: Mapping[str, Any], exc: Exception) -> Problem:
    """Returns the problem with the key of a request that cannot be serialized."""
    params = message.get("params")
    for key, value in params.items() if isinstance(params, Mapping) else ():
        try:
            json.dumps({key: value}, default=to_jsonable, ensure_ascii=False, allow_nan=False).encode("utf-8")
        except (TypeError, ValueError, RecursionError):
            hint = "only `tools`, `permission`, `check` and `on_event` accept functions; check the name" if callable(value) else None
            return Problem(str(key), f"cannot be sent as JSON: {exc}", hint)
    return Problem("", f"cannot be sent as JSON: {exc}")


def read_error(error: Any) -> AgentlineError:
    """Converts a JSON-RPC error to an exception."""
    error = error if isinstance(error, dict) else {}
    message, code = str(error.get("message", "the host returned an error")), int(error.get("code", 0))
    data = error.get("data") if isinstance(error.get("data"), dict) else {}
    assert isinstance(data, dict)
    rows = [row for row in data.get("problems") or () if isinstance(row, dict)]
    problems = tuple(Problem(str(r.get("key", "")), str(r.get("message", "")), r.get("hint")) for r in rows)
    # The host's message repeats the hints, which are separate fields here.
    text = "\n".join(str(one) for one in problems) or message
    if code in (-32602, -32600):
        return UsageError(text, problems or (Problem("", message),))
    if isinstance(data.get("outcome"), dict):
        return RunFailed.of(Outcome.of(data["outcome"]))
    return RequestFailed(text, code, data, join_hints(problems))
