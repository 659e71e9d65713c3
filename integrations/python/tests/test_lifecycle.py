"""How a client ends: by `close()`, by Ctrl-C, or because the host or the program dies. No process remains, no call hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import Stage, wait_for

import agentline
from agentline import Agentline, AgentlineError, BinaryNotFound, ClientClosed, HostDied, connect
from agentline._wire import Host


def test_close_stops_all_runs_and_processes(stage: Stage) -> None:
    client = stage.acp().client()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            client.run("say up\nrun sleep 600")
        except AgentlineError as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_for(lambda: client.pool_status().active == 3)
    client.close()
    client.close()
    for thread in threads:
        thread.join(60)
    assert len(failed) == 3 and not any(thread.is_alive() for thread in threads)
    stage.assert_no_processes()
    with pytest.raises(ClientClosed):
        client.run("say x")
    with pytest.raises(ClientClosed):
        client.pool_status()


def test_calls_raise_when_the_host_dies(stage: Stage) -> None:
    with stage.acp().client() as client:
        conversation = client.session()
        stream = client.stream("say up\nrun sleep 600")
        next(event for event in stream if event.type == "tool_use")
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(HostDied) as caught:
            stream.outcome()
        assert caught.value.exit_code == -signal.SIGKILL and caught.value.hint
        for call in (lambda: client.run("say x"), client.pool_status, lambda: conversation.prompt("say x"), client.session):
            with pytest.raises(HostDied):
                call()
        assert not client.is_alive
        conversation.close()
    stage.assert_no_processes()


def test_a_program_without_the_host_command_is_reported_with_its_stderr(stage: Stage) -> None:
    fake = stage.folder / "agentline"
    fake.write_text("#!/bin/sh\necho 'no such command: host' >&2\nexit 2\n")
    fake.chmod(0o755)
    with pytest.raises(HostDied) as caught:
        connect(fake, env=stage.env)
    assert "no such command: host" in str(caught.value) and caught.value.exit_code == 2


def test_lines_that_are_not_messages_are_ignored(stage: Stage) -> None:
    fake = stage.folder / "agentline"
    hello = '{"jsonrpc":"2.0","id":1,"result":{"protocol":1,"future":true}}'
    fake.write_text(f"#!/bin/sh\nread line\necho garbage\necho '[]'\necho '{{}}'\necho '{hello}'\ncat >/dev/null\n")
    fake.chmod(0o755)
    with Agentline(fake, env=stage.env) as client:
        assert client.server["future"] is True


def test_the_program_is_found_by_argument_variable_and_path(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.acp()
    with Agentline(env=stage.env) as client:
        assert client.is_alive, "AGENTLINE_BIN of this program"
    monkeypatch.delenv("AGENTLINE_BIN")
    with Agentline(env={**stage.env, "AGENTLINE_BIN": stage.binary}) as client:
        assert client.is_alive
    bin = stage.folder / "bin"
    bin.mkdir()
    (bin / "agentline").symlink_to(stage.binary)
    with Agentline(env={**stage.env, "PATH": f"{bin}{os.pathsep}{stage.env['PATH']}"}) as client:
        assert client.is_alive
    for options in ({"binary": "/nonexistent/agentline"}, {}):
        with pytest.raises(BinaryNotFound) as caught:
            Agentline(**options, env={**stage.env, "PATH": "/nonexistent"})
        assert "AGENTLINE_BIN" in (caught.value.hint or "")


PROGRAM = """
import sys, agentline
client = agentline.Agentline(sys.argv[1], defaults={"permission_mode": "bypass", "pass_env": ["*"]})
def on_event(event):
    if event.type == "tool_use":
        print("ready", flush=True)
try:
    client.run("say up\\nrun sleep 600", on_event=on_event)
except KeyboardInterrupt:
    print("interrupted", client.pool_status().active, flush=True)
    if sys.argv[2] == "close":
        client.close()
print("end", flush=True)
"""


ASYNC_PROGRAM = """
import asyncio, sys, agentline
async def main():
    async with agentline.AsyncAgentline(sys.argv[1], defaults={"permission_mode": "bypass", "pass_env": ["*"]}) as client:
        def on_event(event):
            if event.type == "tool_use":
                print("ready", flush=True)
        try:
            await client.run("say up\\nrun sleep 600", on_event=on_event)
        except asyncio.CancelledError:
            print("interrupted", (await client.pool_status()).active, flush=True)
            raise
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("end", flush=True)
"""


@pytest.mark.parametrize("how", ["close", "forget", "async"])
def test_ctrl_c_stops_the_run_and_the_program_ends(stage: Stage, how: str) -> None:
    program = start(stage.acp(), how)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    os.kill(program.pid, signal.SIGINT)
    out, _ = program.communicate(timeout=60)
    # The run had ended when the exception was raised, and the host ends with the program even without `close()`.
    assert out.splitlines() == ["interrupted 0", "end"]
    assert program.returncode == 0
    stage.assert_no_processes()


def test_all_processes_end_when_the_program_is_killed(stage: Stage) -> None:
    program = start(stage.acp(), "killed")
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    assert len(stage.living()) >= 4
    program.kill()
    program.wait()
    program.stdout.close()
    stage.assert_no_processes()


def start(stage: Stage, how: str) -> subprocess.Popen[str]:
    package = str(Path(agentline.__file__).parents[1])
    # A shell without job control starts programs with SIGINT ignored, so the handler is restored here.
    return subprocess.Popen(
        [sys.executable, "-c", ASYNC_PROGRAM if how == "async" else PROGRAM, stage.binary, how],
        env={**stage.env, "PYTHONPATH": package},
        cwd=stage.workspace,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def test_a_garbage_collected_client_stops_its_host(stage: Stage) -> None:
    client = stage.acp().client()
    client.run("say x")
    assert stage.living()
    del client
    stage.assert_no_processes()


def test_a_garbage_collected_stream_stops_its_run(stage: Stage) -> None:
    with stage.acp().client() as client:
        stream = client.stream("say up\nrun sleep 600")
        next(event for event in stream if event.type == "tool_use")
        del stream
        wait_for(lambda: client.pool_status().active == 0)


def test_a_slow_reader_receives_a_long_answer_completely(stage: Stage) -> None:
    with stage.acp().client() as client:
        stream = client.stream("chunks 2000 word{n} \nbig 3000000")
        time.sleep(1)
        text = "".join(event.text for event in stream if event.type == "text")  # type: ignore[attr-defined]
        assert text == stream.outcome().text and "word2000" in text and len(text) > 3_000_000


FORKED = """
import os, sys
from agentline import Agentline, ClientClosed
client = Agentline(sys.argv[1], defaults={"permission_mode": "bypass", "pass_env": ["*"], "timeout": 90})
client.run("say up")
if os.fork() == 0:
    try:
        client.run("say x")
    except ClientClosed as error:
        print(error.hint, flush=True)
    sys.stdin.read()
    client.close()
    os._exit(0)
for event in client.stream("run sleep 600"):
    if event.type == "tool_use":
        print("running", flush=True)
"""


def test_a_forked_process_cannot_use_the_client_and_does_not_keep_its_host_alive(stage: Stage) -> None:
    program = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKED, stage.acp().binary],
        env={**stage.env, "PYTHONPATH": str(Path(agentline.__file__).parents[1])},
        cwd=stage.workspace,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None and program.stdout is not None
    lines = {program.stdout.readline(), program.stdout.readline()}
    assert lines == {"create a new client after the fork\n", "running\n"}
    program.kill()
    program.wait()
    # Only the forked process is left.
    wait_for(lambda: len(stage.living()) == 1)
    program.stdin.close()
    program.stdout.close()
    stage.assert_no_processes()


def test_a_program_that_is_not_agentline_is_reported(stage: Stage) -> None:
    program = stage.folder / "other"

    def other(body: str) -> str:
        program.write_text(body)
        program.chmod(0o755)
        return str(program)

    with pytest.raises(HostDied, match="unrecognized subcommand") as caught:
        Agentline(other("#!/bin/sh\necho unrecognized subcommand >&2; exit 2\n"), env=stage.env)
    assert "other --version" in (caught.value.hint or "")
    with pytest.raises(BinaryNotFound, match="cannot be started: Exec format error"):
        Agentline(other("\x7fELF"), env=stage.env)
    with pytest.raises(agentline.UsageError, match="is not a directory"):
        Agentline(stage.binary, env=stage.env, cwd=stage.folder / "nowhere")
    host = Host([other("#!/bin/sh\nexec sleep 600\n"), "host"], env=stage.env, cwd=None)
    with pytest.raises(HostDied, match="did not answer within 0.2 s"):
        host.initialize({}, timeout=0.2).result(60)
    host.close()
