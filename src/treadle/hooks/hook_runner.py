"""Running one hook, and `notify`: a command with its descendants, or a Python function in this process.

Owned here are the deadline, how much a command may print, and that nothing of it is left: what it has started ends with
it. A function that is not async runs in a thread of its own; one that does not come back costs its timeout and that
thread. A quick one is waited for on the spot: the event loop stands still for a millisecond at most, and not at all for
one that took longer the last time. What a run means is `hook_outputs`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec
from msgspec import structs

from treadle.errors import ExecError
from treadle.execution.bounded_reads import Readers, read_in_thread
from treadle.execution.environment import Environment
from treadle.execution.process import Process
from treadle.execution.process_values import Evicted, ExecParams, Exited, Failed, Output, OutputStream
from treadle.hooks.hook_events import HookInput
from treadle.hooks.hook_outputs import HookOutcome, HookResult, closed, failed, outcome_of, read_output
from treadle.hooks.hook_settings import LONGEST_S, Hook, HookFunction
from treadle.llm.known_providers import key_variables
from treadle.protocol.exec import INHERIT_ALL, EnvPolicy
from treadle.tools.command.command_shell import shell_argv

logger: logging.Logger = logging.getLogger(__name__)

MAX_OUTPUT: Final = 1 << 20
# After the deadline a command is terminated, and killed after this.
GRACE_S: Final = 0.5
NOTIFY_S: Final = 60.0
MAX_NOTIFIED: Final = 100_000  # bytes: one argument of a program has at most 128 KiB
# Functions that do not come back keep their threads; with so many, no other is called.
_functions: Final = Readers(16, name="hook")
PAUSE_S: Final = 0.001
_slow: Final[set[str]] = set()  # keys of functions that took longer the last time
GiveEnvironment: TypeAlias = Callable[[], Awaitable[Environment]]
CallTool: TypeAlias = Callable[[Hook, HookInput], Awaitable[HookOutcome]]


async def run_hook(
    hook: Hook, given: HookInput, environment: GiveEnvironment, call_tool: CallTool | None = None
) -> HookOutcome:
    """Run a hook to its end. One that fails, and is to refuse then, has refused."""
    if hook.problem is not None:
        outcome = failed(hook.problem)
    elif hook.function is not None:
        outcome = await _run_function(hook, hook.function, given)
    elif hook.command is not None:
        outcome = await _run_command(hook, hook.command, given, environment)
    elif call_tool is not None:
        outcome = await call_tool(hook, given)
    else:
        outcome = failed("tools of MCP servers are not called here")
    return closed(outcome, hook.name) if outcome.error is not None and hook.refuses_on_error else outcome


async def _run_command(hook: Hook, command: str, given: HookInput, environment: GiveEnvironment) -> HookOutcome:
    """Run a command in the shell. One of the user's own gets the environment of this process, one of a project gets it
    without keys of providers, as the commands of the model do."""
    keys = tuple(key_variables()) if hook.source == "project" else ()
    try:
        ran = await _run(
            await environment(),
            shell_argv(command),
            cwd=given.cwd,
            env_policy=structs.replace(INHERIT_ALL, exclude=keys),
            data=msgspec.json.encode(given),
            seconds=min(hook.timeout_s, LONGEST_S),
        )
    except ExecError as error:
        return failed(f"hook could not be run: {error.message}")
    except TimeoutError:
        return failed(f"hook timed out after {hook.timeout_s:g}s")
    if ran is None:
        return failed(f"hook wrote more than {MAX_OUTPUT} bytes")
    return read_output(given.event, *ran)


async def _run_function(hook: Hook, function: HookFunction, given: HookInput) -> HookOutcome:
    seconds, began = min(hook.timeout_s, LONGEST_S), time.perf_counter()
    try:
        if inspect.iscoroutinefunction(function):
            async with asyncio.timeout(seconds):
                said = await function(given)
        else:
            pause = 0.0 if hook.key in _slow else PAUSE_S
            said = await read_in_thread(lambda: function(given), seconds, _functions, pause=pause)
    except TimeoutError:
        return failed(f"hook timed out after {hook.timeout_s:g}s")
    except Exception as error:
        logger.exception("the hook %s failed", hook.path)
        return failed(f"hook raised {type(error).__name__}: {error}")
    finally:
        (_slow.add if time.perf_counter() - began > PAUSE_S else _slow.discard)(hook.key)
    if said is None:
        return HookOutcome()
    if not isinstance(said, HookResult):
        return failed(f"hook returned {type(said).__name__}, not a HookResult or None")
    return outcome_of(given.event, said)


async def notify(environment: GiveEnvironment, argv: Sequence[str], cwd: str) -> str | None:
    """Run a program whose last argument is the notification; the problem, if there was one."""
    try:
        ran = await _run(await environment(), argv, cwd=cwd, env_policy=INHERIT_ALL, data=b"", seconds=NOTIFY_S)
    except ExecError as error:
        return error.message
    except TimeoutError:
        return f"it did not end within {NOTIFY_S:g} s"
    return f"it ended with exit code {ran[0]}" if ran is not None and ran[0] != 0 else None


async def _run(
    environment: Environment,
    argv: Sequence[str],
    *,
    cwd: str,
    env_policy: EnvPolicy,
    data: bytes,
    seconds: float,
) -> tuple[int, bytes, bytes] | None:
    """The exit code and the two outputs; None when it printed too much. Raises `TimeoutError` and `ExecError`."""
    params = ExecParams(process_id=f"hook-{uuid.uuid4()}", argv=argv, cwd=cwd, env_policy=env_policy, pipe_stdin=True)
    async with asyncio.timeout(seconds):
        process = await environment.start(params)

        async def feed() -> None:
            with suppress(ExecError):  # a hook need not read its input
                await process.write(data)
                await process.close_stdin()

        feeding = asyncio.ensure_future(feed())
        try:
            return await _collect(process)
        finally:
            feeding.cancel()
            await process.terminate(GRACE_S)  # with all that it has started; nobody waits for it


async def _collect(process: Process) -> tuple[int, bytes, bytes] | None:
    outputs = {stream: bytearray() for stream in OutputStream}
    async for event in process.events():
        match event:
            case Output():
                outputs[event.stream] += event.chunk
                process.log.discard(event.seq)
                if sum(map(len, outputs.values())) > MAX_OUTPUT:
                    return None
            case Exited():  # a child of it may hold its output open
                return event.exit_code, bytes(outputs[OutputStream.STDOUT]), bytes(outputs[OutputStream.STDERR])
            case Evicted():
                return None
            case Failed():
                raise ExecError(event.message)
    raise ExecError("it was lost")
