"""The provider with agents that misbehave: the cases of its specification, and every kind of error."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from typing import Any

import pytest
from conftest import Stage, wait_for

from agentline import Agentline
from agentline.provider import GeminiCliProvider, ProviderError, ProviderResult

INIT = '{"type":"init","session_id":"s","model":"auto"}'
ANSWER = '{"type":"message","role":"assistant","content":"All done. 4","delta":true}'
DONE = '{"type":"result","status":"success","stats":{"total_tokens":3,"input_tokens":2,"output_tokens":1}}'
FAILED = '{"type":"result","status":"error","stats":{"total_tokens":3}}'


def uses(tool: str, id: str, path: str) -> str:
    parameters = {"file_path": path, "content": "x", "old_string": "a", "new_string": "b"}
    return json.dumps({"type": "tool_use", "tool_name": tool, "tool_id": id, "parameters": parameters})


def worked(id: str) -> str:
    return json.dumps({"type": "tool_result", "tool_id": id, "status": "success"})


def events(stage: Stage, *lines: str) -> Stage:
    """Uses an agent that prints these events. A line that is not JSON is a shell command."""
    commands = [f"cat <<'END'\n{line}\nEND" if line.startswith("{") else line for line in lines]
    return stage.script("\n".join(commands))


def generate(stage: Stage, config: dict[str, Any] | None = None, **more: Any) -> ProviderResult:
    # These agents support only `stream-json`, with one process per prompt.
    config = {"surface": "stream-json", "max_retries": 0, **(config or {})}
    with GeminiCliProvider(config, binary=stage.binary, env=stage.env) as provider:
        return provider.generate("What is 2+2?", {"project_root": stage.workspace}, **more)


def error_of(stage: Stage, config: dict[str, Any] | None = None, **more: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        generate(stage, config, **more)
    return caught.value


def warned(result: ProviderResult, code: str) -> list[str]:
    return [one.message for one in result.warnings if one.code == code]


def test_mixed_message_and_tool_use(stage: Stage) -> None:
    result = generate(stage.fault("ok"))
    assert (result.response, result.files) == ("I will write it.All done. 4", {"hello.txt": None})
    assert result.denied == () and (stage.workspace / "hello.txt").read_text() == "hi there\n"


def test_multiple_write_file(stage: Stage) -> None:
    events(
        stage,
        INIT,
        uses("write_file", "1", "a.txt"),
        uses("write_file", "2", "sub/b.txt"),
        "mkdir sub; echo a > a.txt; echo b > sub/b.txt",
        worked("2"),
        worked("1"),
        ANSWER,
        DONE,
    )
    assert list(generate(stage).files) == ["a.txt", "sub/b.txt"]


def test_multiple_replace(stage: Stage) -> None:
    for name in ("a.txt", "b.txt", "same.txt", "other.txt"):
        (stage.workspace / name).write_text("old\n")
    events(
        stage,
        INIT,
        uses("replace", "1", "a.txt"),
        "echo new > a.txt",
        worked("1"),
        uses("replace", "2", "b.txt"),
        "echo new > b.txt",
        worked("2"),
        uses("replace", "3", "same.txt"),
        worked("3"),
        ANSWER,
        DONE,
    )
    assert list(generate(stage).files) == ["a.txt", "b.txt", "same.txt"]


def test_failed_tool_calls_are_not_tracked(stage: Stage) -> None:
    failed = '{"type":"tool_result","tool_id":"1","status":"error","error":{"type":"unknown","message":"no"}}'
    result = generate(events(stage, INIT, uses("write_file", "1", "a.txt"), failed, ANSWER, DONE))
    assert result.files == {}


def test_a_file_that_no_tool_reported_causes_a_warning(stage: Stage) -> None:
    result = generate(stage.fault("failed_but_wrote"))
    expected = ["these files changed during the run, but no tool reported them: hello.txt"]
    assert result.files == {} and warned(result, "files_unknown") == expected


def test_a_file_that_was_never_written_is_not_listed(stage: Stage) -> None:
    result = generate(stage.fault("success_lie"))
    expected = ["a tool reported that it wrote these files, but they do not exist: hello.txt"]
    assert result.files == {} and warned(result, "files_missing") == expected


def test_malformed_lines_are_skipped_and_a_warning_shows_a_sample(stage: Stage) -> None:
    result = generate(stage.fault("garbage_between"))
    assert (result.response, list(result.files)) == ("I will write it.All done. 4", ["hello.txt"])
    (warning,) = warned(result, "malformed_lines")
    assert warning.startswith("Malformed JSON lines: ")
    assert "Empty GEMINI.md created. Now analyzing the project" in warning
    assert "analyzing the project to populate it" not in warning


def test_timeout(stage: Stage) -> None:
    # The engine passes its default with every call; what the user configured has priority.
    error = error_of(stage.fault("hang_mid_text"), {"timeout": 4.5}, response_timeout=600)
    assert error.kind == "timeout" and "the timeout of 4.5 s" in error.message and error.hint == "raise `timeout`"
    assert error.outcome is not None and error.outcome.text, "the text received so far is kept"
    assert (error.verdict, error.phase) == ("timed_out", "budget")
    stage.assert_no_processes()
    assert "the timeout of 0.7 s" in error_of(stage, response_timeout=0.7).message


@pytest.mark.parametrize("how", ["exit 41", "result with 401", "message on stderr"])
def test_auth_errors_say_how_to_sign_in(stage: Stage, how: str) -> None:
    if how == "exit 41":
        stage.fault("exit_code", code=41)
    elif how == "result with 401":
        stage.fault("exit_code_with_result", code=145)
    else:
        stage.script("echo 'Please set an Auth method in your settings.json' >&2; exit 1")
    error = error_of(stage)
    assert error.kind == "authentication" and error.verdict == "not_authenticated"
    assert error.message.startswith("Gemini CLI authentication error. Set GEMINI_API_KEY, or ")
    assert "auth login" not in str(error), "there is no such command"


def test_words_such_as_login_and_author_are_not_a_sign_in_error(stage: Stage) -> None:
    error = error_of(stage.script("echo 'the author used a login shell' >&2; exit 1"))
    assert (error.kind, error.message) == ("failed", "Gemini CLI failed (exit 1): the author used a login shell")


def test_cancelled_reported_as_success(stage: Stage) -> None:
    record = (
        '{"id":"m1","type":"gemini","content":"","toolCalls":'
        '[{"id":"1","name":"write_file","args":{"file_path":"a.txt"},"status":"cancelled"}]}'
    )
    (stage.workspace / "a.txt").write_text("as it was\n")
    events(
        stage,
        "id=0f0f0f0f-1111-4111-8111-111111111111",
        'chats="$GEMINI_CLI_HOME/.gemini/tmp/ws/chats"; mkdir -p "$chats"; pwd -P > "$chats/../.project_root"',
        """printf '{"type":"init","session_id":"%s","model":"auto"}\\n' "$id" """,
        uses("write_file", "1", "a.txt"),
        worked("1"),
        f"cat > \"$chats/session-2026-01-01T00-00-0f0f0f0f.jsonl\" <<'END'\n{record}\nEND",
        ANSWER,
        DONE,
    )
    result = generate(stage)
    assert (result.response, result.files) == ("All done. 4", {})


def test_error_events(stage: Stage) -> None:
    def event(severity: str, message: str) -> str:
        return json.dumps({"type": "error", "severity": severity, "message": message})

    # A warning is reported and does not end the run.
    result = generate(events(stage, INIT, event("warning", "something odd"), ANSWER, DONE))
    assert result.response == "All done. 4" and warned(result, "agent") == ["something odd"]
    error = error_of(events(stage, INIT, event("error", "it broke"), FAILED, "exit 1"))
    assert error.message == "Gemini CLI failed (exit 1): it broke"
    error = error_of(events(stage, INIT, event("error", "The response was blocked due to safety."), FAILED, "exit 1"))
    assert error.kind == "blocked" and error.message.startswith("Gemini CLI gave no answer: ")


@pytest.mark.parametrize(
    ("fault", "response"),
    [("unknown_events", "with All done. 4"), ("split_character", "🦀 é 漢"), ("crlf", "All done. 4"), ("empty_answer", "")],
)
def test_unusual_but_valid_answers(stage: Stage, fault: str, response: str) -> None:
    assert generate(stage.fault(fault)).response == response


@pytest.mark.parametrize(
    ("code", "kind", "start", "stderr"),
    [
        (42, "failed", "Gemini CLI failed (exit 42): ", "No input provided via stdin"),
        (52, "failed", "Gemini CLI failed (exit 52): ", "Error in settings.json"),
        (53, "limit_reached", "Gemini CLI reached a limit: ", "Reached max session turns"),
        (55, "untrusted", "Gemini CLI does not trust the workspace: ", "not running in a trusted"),
        (127, "not_found", "Gemini CLI not found. Install from: https://github.com/", "npm i -g @google/gemini-cli"),
        (130, "cancelled", "Gemini CLI was cancelled: ", "Operation cancelled."),
        (173, "rate_limited", "Gemini CLI was rate limited: ", "HTTP status 429"),
    ],
)
def test_exit_codes_determine_the_kind_of_error(stage: Stage, code: int, kind: str, start: str, stderr: str) -> None:
    error = error_of(stage.fault("exit_code", code=code))
    assert error.kind == kind and error.message.startswith(start) and stderr in error.message
    assert error.outcome is not None and error.outcome.agent_exit_code == code


def test_other_exit_codes_are_reported_with_stderr(stage: Stage) -> None:
    assert error_of(stage.script("echo boom >&2; exit 3")).message == "Gemini CLI failed (exit 3): boom"
    silent = error_of(stage.script("exit 0")).message
    assert silent.startswith("Gemini CLI failed (exit 0): the agent exited without a result")


def test_denied_tools_are_reported_with_the_answer(stage: Stage) -> None:
    error = {"type": "tool_not_registered", "message": 'Tool "write_file" not found.'}
    refused = json.dumps({"type": "tool_result", "tool_id": "1", "status": "error", "error": error})
    result = generate(events(stage, INIT, uses("write_file", "1", "a.txt"), refused, ANSWER, DONE))
    assert (result.response, result.files, result.denied[0].tool) == ("All done. 4", {}, "Write")


def test_the_environment_is_passed_and_pass_env_restricts_it(stage: Stage) -> None:
    stage.env["ODD_VARIABLE"] = "seen "
    command = """printf '{"type":"message","role":"assistant","content":"%s","delta":true}\\n' "$ODD_VARIABLE" """
    events(stage, INIT, command, ANSWER, DONE)
    assert generate(stage).response == "seen All done. 4"
    with pytest.warns(UserWarning):
        result = generate(stage, {"pass_env": [], "unknown_key": "x"})
    assert result.response == "All done. 4" and len(warned(result, "unknown_key")) == 1


def test_limits_of_the_configuration_apply(stage: Stage) -> None:
    error = error_of(stage.fault("many_tools", count=50), {"max_tool_calls": 3})
    assert error.kind == "limit_reached" and error.message.startswith("Gemini CLI reached a limit: ")


def test_a_cancelled_task_ends_the_agent(stage: Stage) -> None:
    async def main() -> None:
        stage.fault("hang_with_children", pid_file="/dev/null")
        with GeminiCliProvider({"surface": "stream-json"}, binary=stage.binary, env=stage.env) as provider:
            task = asyncio.create_task(provider.generate_async("hi", {"project_root": stage.workspace}))
            while len(stage.living()) < 3:
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while provider._client().pool_status().active:
                await asyncio.sleep(0.02)

    asyncio.run(main())


def test_a_task_cancelled_during_the_start_leaves_no_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, go_on = threading.Event(), threading.Event()
    streams: list[Any] = []

    async def main() -> None:
        stage.fault("hang_with_children", pid_file="/dev/null")
        provider = GeminiCliProvider({"surface": "stream-json"}, binary=stage.binary, env=stage.env)
        start = provider._start

        def wait_and_start(*arguments: Any) -> Any:
            reached.set()
            assert go_on.wait(60)
            streams.append(start(*arguments))
            return streams[0]

        monkeypatch.setattr(provider, "_start", wait_and_start)
        task = asyncio.create_task(provider.generate_async("hi", {"project_root": stage.workspace}))
        await asyncio.to_thread(reached.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        while not streams:
            await asyncio.sleep(0.02)
        # A run that is not cancelled would hang with its agent.
        outcome = await asyncio.wait_for(asyncio.to_thread(streams[0].outcome), 90)
        assert outcome.verdict == "cancelled"
        provider.close()
        with pytest.raises(ProviderError, match="the provider is closed"):
            provider.generate("hi")

    asyncio.run(main())


# Without `surface`, the provider uses a warm agent. The fake agent executes the prompt as a script.


def test_one_warm_agent_serves_many_calls(stage: Stage, agentline: Agentline) -> None:
    provider = GeminiCliProvider({"quiet_period_ms": 0}, client=agentline)
    context = {"project_root": stage.workspace, "phase": "plan"}
    result = provider.generate("say I will. \ntool write_file a.txt hi\nsay Done.", context)
    assert (result.response, result.files) == ("I will.Done.", {"a.txt": None})
    result = provider.generate("tool write_file b.txt hi\nsay Again.", context)
    assert (result.response, result.files) == ("Again.", {"b.txt": None})
    assert len(agentline.pool_status().processes) == 1
    assert asyncio.run(provider.generate_async("say later", context)).response == "later"
    provider.close()
    assert agentline.is_alive, "a client that was passed in is not closed"


def test_working_directory_prompt_file_and_system_prompt(stage: Stage, agentline: Agentline) -> None:
    (stage.workspace / "prompts").mkdir()
    (stage.workspace / "other").mkdir()
    (stage.workspace / "prompts" / "plan.md").write_text("say from the file")
    provider = GeminiCliProvider({"quiet_period_ms": 0}, client=agentline)
    root = {"project_root": stage.workspace}
    assert provider.generate("cwd", root).response.endswith("/ws")
    elsewhere = GeminiCliProvider({"quiet_period_ms": 0, "working_dir": stage.workspace / "other"}, client=agentline)
    assert elsewhere.generate("cwd", root).response.endswith("/other"), "the configuration takes precedence"
    response = provider.generate("", {**root, "prompt_file": "prompts/plan.md"}).response
    assert "prompts/plan.md" in response or response == "from the file"
    sent = json.loads(provider.generate("echo_prompt", root, "Be brief.").response)
    assert "Be brief.\n\necho_prompt" in json.dumps(sent).replace("\\n", "\n")


def test_a_provider_replaces_a_host_that_died(stage: Stage) -> None:
    with GeminiCliProvider({"quiet_period_ms": 0}, binary=stage.binary, env=stage.acp().env) as provider:
        context = {"project_root": stage.workspace}
        assert provider.generate("say one", context).response == "one"
        client = provider._client()
        os.kill(client.pid, signal.SIGKILL)
        wait_for(lambda: not client.is_alive)
        assert provider.generate("say two", context).response == "two"
    with pytest.raises(ProviderError, match="exited unexpectedly"):
        GeminiCliProvider(client=client).generate("say three")
