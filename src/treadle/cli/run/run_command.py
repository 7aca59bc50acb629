"""`treadle run "…"`: one run of any engine, shown as it happens.

It owns the process: which stream gets what, signals, the exit code. Only the answer goes to standard output, the rest
to standard error: drawn if that is a terminal, else as lines. With `--json`, events go to standard output.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from treadle._version import __version__
from treadle.cli.completion import complete_projects, completing
from treadle.cli.own_process import start_logging, stop_signals
from treadle.cli.problem import Problem
from treadle.cli.run.run_plan import RunArguments, RunPlan, folder_of, read_plan, runner_of
from treadle.cli.run.run_view import LineView, LiveView, RunView, advice, failure_reason, stderr_lines, usage
from treadle.cli.streams import FAILED, REFUSED, TIMED_OUT, write, write_bytes, write_stderr
from treadle.cli.terminal import Colors, is_terminal, wants_color
from treadle.cli.turn_input import Seconds, answer_file, write_answer
from treadle.cli.user_commands import UserCommand, color_option, user_command
from treadle.errors import needs_linux
from treadle.pages.safe_text import printable
from treadle.runners.engine import RunOptions
from treadle.runners.engine_registry import engine_names
from treadle.runners.progress import elapsed
from treadle.runners.run_events import CompletedEvent, Event
from treadle.runners.runner import Run, Runner
from treadle.runners.status import LastError, LastErrors, find_program
from treadle.secrets import secrets_in

if TYPE_CHECKING:
    from treadle.cli.run.run_approver import RunApprover

_NAME: Final = "run"
FORMAT: Final = 1
"""The version of what `--json` prints: another one when a program that reads it would have to change."""
_MORE: Final = """\
The answer goes to standard output, everything else to standard error. What stands behind `--` is for the engine. An
engine that can ask before it uses a tool, as claude does, asks you if there is a terminal; else it is refused."""


class _RunCommand(UserCommand):
    """What stands behind `--` is for the engine."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:place])
        ctx.params["further"] = tuple(args[place + 1 :])
        return rest


@user_command(
    _NAME,
    kind=_RunCommand,
    more=_MORE,
    exit_codes={
        0: "done",
        1: "the run failed",
        2: "wrong usage, or the engine is not installed",
        124: "the time of --timeout or --idle-timeout was up",
        130: "stopped by Ctrl-C (143 by SIGTERM)",
    },
    examples=(
        'treadle run "explain what this project does"',
        'treadle run --engine claude "fix the failing test"',
        'treadle run "/codex look for dead code"',
        'treadle run --resume codex:0199a213-81c0-7800-8aa1-bbab2a035a53 "and now the tests"',
        'treadle run --project web --branch fix-login "write the missing test"',
        'git diff | treadle run --engine claude "write a commit message" > message.txt',
        """treadle run --engine codex --json "list the risks" | jq -r 'select(.type == "completed").answer'""",
        'treadle run --engine codex "tidy up" -- --sandbox workspace-write',
    ),
)
@click.argument("prompt", required=False, metavar="[PROMPT] [-- WORD...]")
@click.option(
    "-e",
    "--engine",
    metavar="NAME",
    help="codex, claude, opencode, pi, treadle, … (default: $TREADLE_ENGINE, else ours)",
    shell_complete=completing(engine_names),
)
@click.option(
    "-r", "--resume", metavar="SESSION", help="go on in a session: ENGINE:ID, an ID, or the line that a run ended with"
)
@click.option("-m", "--model", metavar="NAME", help="the engine's name for the model")
@click.option("--effort", metavar="WORD", help="how hard it thinks, in the engine's own words")
@click.option("-C", "--cd", metavar="DIR", type=click.Path(), help="where to work (default: here)")
@click.option(
    "-P", "--project", metavar="NAME", help="work in this project of projects.toml", shell_complete=complete_projects
)
@click.option("-b", "--branch", metavar="NAME", help="on this branch of it, in a worktree of its own")
@click.option(
    "-i",
    "--image",
    metavar="FILE",
    multiple=True,
    type=click.Path(),
    help="a picture for the prompt; may be given again",
)
@click.option("--output-schema", metavar="FILE", type=click.Path(), help="a JSON Schema that the answer has to fit")
@click.option(
    "-o",
    "--output-last-message",
    metavar="FILE",
    type=click.Path(),
    help="also write the answer to this file when done",
)
@click.option("--timeout", metavar="S", type=Seconds(), help="stop it after so many seconds")
@click.option("--idle-timeout", metavar="S", type=Seconds(), help="stop it after so many seconds of silence")
@click.option("--json", "as_json", is_flag=True, help="print its events, one JSON object per line, and nothing else")
@color_option
def command(**values: Any) -> int:
    if (missing := needs_linux(f"treadle {_NAME}")) is not None:
        raise Problem(missing, code=REFUSED)
    start_logging("error")
    arguments = RunArguments(**values)
    plan = read_plan(arguments)
    if plan.notice is not None:
        write_stderr(f"treadle {_NAME}: {printable(plan.notice)}")
    return asyncio.run(_Program(arguments, plan).run())


class _Program:
    def __init__(self, arguments: RunArguments, plan: RunPlan) -> None:
        self._arguments = arguments
        self._plan = plan
        self._secrets = secrets_in(os.environ, arguments.config_overrides)
        self._colors = Colors(wants_color(arguments.color, sys.stderr, os.environ))
        self._target = answer_file(arguments.output_last_message)
        self._approver: RunApprover | None = None
        self._signal = 0  # the one that asked it to stop
        self._began = time.monotonic()

    async def run(self) -> int:
        cwd = await folder_of(self._plan, self._arguments.cd)
        runner = runner_of(self._plan, self._arguments, cwd)
        view = self._view()
        if runner.engine.answer is not None and isinstance(view, LiveView) and is_terminal(sys.stdin):
            from treadle.cli.run.run_approver import RunApprover  # rich takes 60 ms: loaded when somebody can be asked

            self._approver = RunApprover(runner.engine.name, cwd, view, lambda: run.cancel())
        run = runner.run(self._plan.prompt, self._plan.resume, RunOptions(approve=self._approver))
        try:
            with stop_signals(self._stopping(run, view)):
                async with aclosing(run):
                    async for event in run:
                        view.show(event)
                        if isinstance(event, CompletedEvent):
                            completed = event
                            break
                    else:
                        raise AssertionError("a run ends with its CompletedEvent")
        finally:
            view.close()
        if self._signal and not completed.ok:
            self._end(runner, completed)
            return 128 + self._signal
        if not completed.ok and find_program(runner.engine, os.environ) is None:
            engine, why = runner.engine, failure_reason(completed, self._secrets)
            raise Problem(f"{engine.name} is not installed", why=why, do=engine.install, code=REFUSED)
        error = None if completed.ok else LastError(failure_reason(completed, self._secrets), time.time())
        LastErrors().keep(completed.engine, error)
        if completed.ok:
            self._answer(completed)
        else:
            name = completed.engine
            write_stderr(self._colors.red(f"✗ {name} failed: {failure_reason(completed, self._secrets)}"))
            if completed.answer:
                write_stderr(printable(completed.answer))
            lines = stderr_lines(run.stderr, self._secrets)
            if lines:
                write_stderr(self._colors.dim(f"  the last of what {name} wrote to its standard error:"))
                for line in lines:
                    write_stderr(f"{self._colors.dim('  |')} {line}")
            write_stderr(f"  {advice(completed, run.ending, run.stderr)}")
        self._end(runner, completed)
        if completed.ok:
            return 0
        return FAILED if run.ending is None or run.ending.limit is None else TIMED_OUT

    # --- showing ---

    def _view(self) -> RunView:
        if self._arguments.as_json:
            return _JsonView(lambda: self._signal != 0)
        if is_terminal(sys.stderr):
            return LiveView(sys.stderr, self._plan.engine, color=self._arguments.color)
        color = wants_color(self._arguments.color, sys.stderr, os.environ)
        return LineView(lambda line: write_stderr(line.removesuffix("\n")), color=color)

    def _answer(self, completed: CompletedEvent) -> None:
        if self._target is not None:
            write_answer(self._target, completed.answer)
        if self._arguments.as_json:
            return
        answer = completed.answer
        if sys.stdout is not None and sys.stdout.isatty():
            answer = printable(answer)
            if is_terminal(sys.stderr):
                write_stderr("")  # the lines of what was done are just above
        write(sys.stdout, answer if answer.endswith("\n") else f"{answer}\n")

    def _end(self, runner: Runner, completed: CompletedEvent) -> None:
        """How long it took and what it used, and on a line of its own how to go on."""
        if self._arguments.as_json:
            return
        how = "done" if completed.ok else "stopped" if self._signal else "failed"
        facts = [f"{how} in {elapsed(time.monotonic() - self._began)}", usage(completed.usage)]
        write_stderr(self._colors.dim(f"{completed.engine} · {' · '.join(fact for fact in facts if fact)}"))
        if completed.resume is not None:
            write_stderr(self._colors.dim(runner.format_resume(completed.resume).strip("`")))

    # --- stopping ---

    def _stopping(self, run: Run, view: RunView) -> Callable[[int], None]:
        """The first Ctrl-C asks the engine to stop, the second one leaves at once."""
        loop = asyncio.get_running_loop()

        def stop() -> None:
            view.note(f"stopping {self._plan.engine}… press Ctrl-C again to leave at once")
            run.cancel()

        def requested(number: int) -> None:
            if self._signal:
                view.close()
                if self._approver is not None:
                    self._approver.close()
                os._exit(128 + number)  # the helper process sees it and kills what is left
            self._signal = number
            loop.call_soon_threadsafe(stop)

        return requested


class _JsonView:
    """Events for a program, behind a line that says in which version of the format they are."""

    def __init__(self, unwanted: Callable[[], bool]) -> None:
        self._unwanted = unwanted
        self._encoder = msgspec.json.Encoder()
        write_bytes(self._encoder.encode({"type": "run", "version": FORMAT, "treadle": __version__}) + b"\n", unwanted)

    def show(self, event: Event) -> None:
        write_bytes(self._encoder.encode(event) + b"\n", self._unwanted)

    def note(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass
