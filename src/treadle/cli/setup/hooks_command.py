"""`treadle hooks`: lists the hooks that apply in a directory, trusts them, and tries out those of an event.

What is listed is what a thread there would find. A hook runs only once it is trusted, here as well.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import click
import msgspec
from msgspec import to_builtins

from treadle.cli.problem import Problem
from treadle.cli.streams import FAILED, REFUSED, write, write_json, write_stderr
from treadle.cli.terminal import is_terminal
from treadle.cli.turn_input import working_folder
from treadle.cli.user_commands import user_command, user_group
from treadle.config import Config, find_home, load_config, write_values
from treadle.execution import Environment
from treadle.hooks.hook_events import EVENTS, HookInput
from treadle.hooks.hook_files import HookPlace, HookSet, read_hook_files, with_settings
from treadle.hooks.hook_outputs import HookOutcome
from treadle.hooks.hook_runner import run_hook
from treadle.hooks.hook_settings import Hook
from treadle.hooks.python_hooks import load_plug_ins
from treadle.pages.figures import plural
from treadle.pages.safe_text import printable, printable_line
from treadle.protocol.app.config import ConfigEdit
from treadle.server.methods.hook_methods import metadata

_CD: Final = click.option("-C", "--cd", metavar="DIR", type=click.Path(), default=".", help="where (default: here)")
_TRUST: Final = {
    "managed": "runs",
    "trusted": "trusted",
    "untrusted": "NOT TRUSTED, does not run",
    "modified": "CHANGED since it was trusted, does not run",
}


@user_group(
    "hooks",
    more="A hook is a command that is run when something happens in a thread: before a call of the model, say, which "
    "it can refuse. It runs outside of the sandbox, so nothing of a file runs before you have trusted it.",
    examples=("treadle hooks list", "treadle hooks trust", "treadle hooks test PreToolUse"),
)
def command() -> int:
    return 0


def _find(cd: str, overrides: Sequence[str]) -> tuple[str, Config, HookSet]:
    folder = working_folder(cd)
    config = load_config(find_home(os.environ), overrides=overrides).config
    found = with_settings(read_hook_files(HookPlace(folder, config.permissions().sandbox, str(config.home))), config)
    if config.hooks.plug_ins:
        plugged = load_plug_ins(config.hooks.plug_ins)
        found = HookSet((*found.hooks, *plugged.hooks), (*found.warnings, *plugged.warnings))
    for warning in found.warnings:
        write_stderr(printable_line(f"warning: {warning}"))
    return folder, config, found


def _lines(hook: Hook) -> list[str]:
    on = f" for {hook.matcher}" if hook.matcher not in (None, "", "*") else ""
    state = _TRUST[hook.trust] if hook.enabled else "switched off"
    lines = [f"{hook.event}{on}: {hook.name}", f"  {state}", f"  {hook.key}"]
    if hook.problem is not None:
        lines.insert(1, f"  cannot run: {hook.problem}")
    return [printable_line(line) for line in lines]


# --- list ------------------------------------------------------------------------------------------------------------


@user_command(
    "list",
    summary="list the hooks that apply in a directory",
    exit_codes={0: "listed", 2: "wrong usage, or the settings cannot be used"},
    examples=("treadle hooks list", "treadle hooks list --json | jq -r '.[].command'"),
)
@_CD
@click.option("--json", "as_json", is_flag=True, help="as a JSON list, as hooks/list has them")
def list_(cd: str, as_json: bool, config_overrides: tuple[str, ...]) -> int:
    folder, _, found = _find(cd, config_overrides)
    if as_json:
        write_json([to_builtins(metadata(hook)) for hook in found.hooks])
        return 0
    blocks = ["\n".join(_lines(hook)) for hook in found.hooks] or [printable_line(f"No hooks apply in {folder}.")]
    write(sys.stdout, "\n\n".join(blocks) + "\n")
    return 0


# --- trust -----------------------------------------------------------------------------------------------------------


@user_command(
    "trust",
    summary="let hooks run that you have looked at",
    more="Without a KEY, which `treadle hooks list` shows, it is about all hooks that are waiting for it. Trust is for "
    "what the file says of a hook. The program that it starts may change: keep it where the agent cannot write.",
    exit_codes={0: "they are trusted", 1: "not everything was", 2: "wrong usage, or the settings cannot be used"},
    examples=("treadle hooks trust", "treadle hooks trust --yes --cd /srv/project"),
)
@click.argument("keys", nargs=-1, metavar="[KEY...]")
@_CD
@click.option("-y", "--yes", is_flag=True, help="do not ask")
def trust(keys: tuple[str, ...], cd: str, yes: bool, config_overrides: tuple[str, ...]) -> int:
    folder, config, found = _find(cd, config_overrides)
    known = {hook.key: hook for hook in found.hooks}
    if unknown := [key for key in keys if key not in known]:
        raise Problem(f"there is no hook {printable_line(unknown[0])}", do="treadle hooks list", code=FAILED)
    waiting = [
        hook for hook in found.hooks if hook.trust in ("untrusted", "modified") and (not keys or hook.key in keys)
    ]
    if not waiting:
        write(sys.stdout, printable_line(f"No hook in {folder} waits to be trusted.") + "\n")
        return 0
    for hook in waiting:
        write_stderr("\n".join(_lines(hook)) + "\n")
    if not yes:
        if not is_terminal(sys.stdin):
            raise Problem("nobody can be asked here", do="treadle hooks trust --yes", code=REFUSED)
        if not click.confirm("They run with all your rights. Trust them?", default=False, err=True):
            return FAILED
    state = {hook.key: {"trusted_hash": hook.hash} for hook in waiting}
    write_values(config.home, [ConfigEdit(key_path="hooks.state", value=state, merge_strategy="upsert")])
    write(sys.stdout, f"Trusted {plural(len(waiting), 'hook')}.\n")
    return 0


# --- test ------------------------------------------------------------------------------------------------------------


@user_command(
    "test",
    summary="run the hooks of an event, and show what they say",
    more="Their input is made up; --input replaces members of it, by their names. Hooks that are tools of an "
    "MCP server fail here.",
    exit_codes={0: "nothing was refused", 1: "a hook has refused, or failed", 2: "wrong usage"},
    examples=(
        "treadle hooks test PreToolUse",
        """treadle hooks test PreToolUse --input '{"tool_input": {"command": "rm -rf build"}}'""",
    ),
)
@click.argument("event", type=click.Choice(list(EVENTS)), metavar="EVENT")
@_CD
@click.option("--input", "given", metavar="JSON", default="{}", help="members of the input of the hooks")
def test(event: str, cd: str, given: str, config_overrides: tuple[str, ...]) -> int:
    folder, config, found = _find(cd, config_overrides)
    made = _input(event, folder, config, given)
    matching = [hook for hook in found.hooks if hook.suits(made)]
    if not matching:
        write(sys.stdout, f"No hook is called for {event} with this input.\n")
        return 0

    async def run_all() -> dict[str, HookOutcome]:
        async with await Environment.connect() as environment:

            async def here() -> Environment:
                return environment

            running = {hook.key: run_hook(hook, made, here) for hook in matching if hook.runs}
            return dict(zip(running, await asyncio.gather(*running.values()), strict=True))

    outcomes = asyncio.run(run_all())
    code = 0
    for hook in matching:
        outcome = outcomes.get(hook.key)
        lines = _lines(hook)[:1]
        if outcome is None:
            lines.append(f"  not run: {_TRUST[hook.trust] if hook.enabled else 'switched off'}")
        else:
            lines += [f"  {outcome.status}", *(f"  {entry.kind}: {printable(entry.text)}" for entry in outcome.entries)]
            said = {name: value for name, value in to_builtins(outcome.result).items() if value not in (None, False)}
            lines += [f"  {name}: {printable(str(value))}" for name, value in said.items()]
            code = FAILED if outcome.status != "completed" else code
        write(sys.stdout, "\n".join(lines) + "\n")
    return code


def _input(event: str, folder: str, config: Config, given: str) -> HookInput:
    made: dict[str, Any] = {
        "session_id": "test",
        "cwd": folder,
        "turn_id": "test",
        "model": config.model,
        "permission_mode": "default",
        "source": "startup",
        "prompt": "hello",
        "tool_name": "Bash",
        "tool_input": {"command": "true"},
        "tool_use_id": "call_test",
        "tool_response": "",
        "trigger": "manual",
        "status": "completed",
        "error": None,
        "token_usage": None,
        "stop_hook_active": False,
        "last_assistant_message": "done",
    }
    try:
        members = msgspec.json.decode(given.encode(), type=dict[str, Any])
        return msgspec.convert({**made, **members, "hook_event_name": event}, EVENTS[event])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise Problem("--input cannot be used", why=printable_line(str(error)), code=REFUSED) from None


for _each in (list_, trust, test):
    command.add_command(_each)
