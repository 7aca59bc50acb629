"""exec_command and write_stdin: commands in sessions. The way of a command is in `command_call`."""

from __future__ import annotations

from posixpath import join, normpath
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Raw, Struct

from treadle.agent.tools.patch_tool import patch_in_command, run_patch
from treadle.agent.tools.tool import Tool, ToolCall
from treadle.tools.specs import flag, function_spec, number, text

SandboxPermissions: TypeAlias = Literal["use_default", "require_escalated"]
_Milliseconds: TypeAlias = Annotated[int, Meta(ge=0)]
_Count: TypeAlias = Annotated[int, Meta(ge=0)]

_YIELD: Final = number("Milliseconds to wait for output before you get what there is.")
_MAX_OUTPUT: Final = number("Most tokens of output to return. What is more is cut out of the middle.")


class ExecCommandArguments(Struct, frozen=True, kw_only=True):
    cmd: str
    workdir: str | None = None
    shell: str | None = None
    login: bool = True
    tty: bool = False
    yield_time_ms: _Milliseconds | None = None
    max_output_tokens: _Count | None = None
    sandbox_permissions: SandboxPermissions = "use_default"
    justification: str | None = None
    prefix_rule: tuple[str, ...] | None = None


class WriteStdinArguments(Struct, frozen=True, kw_only=True):
    session_id: int
    chars: str = ""
    yield_time_ms: _Milliseconds | None = None
    max_output_tokens: _Count | None = None


class ExecCommand(Tool):
    """Not exclusive: what a command changes is known to nobody before, and models run many of them side by side."""

    name = "exec_command"
    needs_environment = True
    spec: Raw = function_spec(
        name,
        "Runs a shell command. Returns its output and exit code, or a session ID when it still runs after the wait: "
        "then look again, or send input, with write_stdin.",
        {
            "cmd": text("The command line for the shell."),
            "workdir": text("Directory to run it in. Default: the working directory of the turn."),
            "shell": text("Path of the shell. Default: the user's shell."),
            "login": flag("Whether the shell reads the user's profile (-l). Default: true."),
            "tty": flag("Gives the command a terminal. Needed to send it input later. Default: false."),
            "yield_time_ms": _YIELD,
            "max_output_tokens": _MAX_OUTPUT,
            "sandbox_permissions": text(
                "`require_escalated` asks the user to let the command run outside of the sandbox. Default: "
                "`use_default`.",
                words=("use_default", "require_escalated"),
            ),
            "justification": text(
                "Only with `require_escalated`: one short question to the user that says what the command is for."
            ),
            "prefix_rule": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Only with `require_escalated`: first words of the command that the user may allow from "
                'now on, such as ["npm", "test"]. As narrow as is useful.',
            },
        },
        required=("cmd",),
    )

    async def run(self, call: ToolCall) -> str:
        given = call.arguments(ExecCommandArguments)
        found = patch_in_command(given.cmd)
        if found is not None:
            patch, cd = found
            cwd = call.turn.thread.settings.cwd
            return await run_patch(call, patch, normpath(join(cwd, given.workdir or "", cd or "")))
        # Late: what runs a command is loaded with the first one, and by servers only.
        from treadle.agent.tools.command_call import CommandCall

        return await CommandCall(call.turn, call.id, given).run()


class WriteStdin(Tool):
    name = "write_stdin"
    needs_environment = True
    spec: Raw = function_spec(
        name,
        "Sends characters to a command that runs in a session, and returns what it wrote since you last looked.",
        {
            "session_id": number("The session ID that exec_command gave."),
            "chars": text("Characters to send, line ends included. Empty or left out: only look."),
            "yield_time_ms": _YIELD,
            "max_output_tokens": _MAX_OUTPUT,
        },
        required=("session_id",),
    )

    async def run(self, call: ToolCall) -> str:
        # Late, as above.
        from treadle.agent.tools.command_call import write_stdin

        return await write_stdin(call.turn, call.arguments(WriteStdinArguments))
