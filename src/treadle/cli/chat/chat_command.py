"""`treadle chat`: its options and what they mean. `program` runs it."""

from __future__ import annotations

import os
import sys
from typing import Final

import click
from msgspec import Struct

from treadle.cli.completion import complete_words
from treadle.cli.exec.exec_arguments import (
    APPROVALS,
    bypass_option,
    model_option,
    profile_option,
    profile_override,
    sandbox_option,
)
from treadle.cli.problem import Problem
from treadle.cli.streams import REFUSED
from treadle.cli.terminal import is_terminal
from treadle.cli.user_commands import Shortcut, user_command
from treadle.cli.workplace import environment_option

_MORE: Final = """\
A session in the terminal: you say something, the agent works, you see what it does and can add to it meanwhile. With
PROMPT that is said first. `treadle chat resume` goes on in a thread that you choose from a list, `resume ID` in one by
its id or name, `resume --last` in the most recent one of the directory; `fork` does so in a copy. The threads are those
of `treadle exec`, too.

Enter sends, Alt-Enter makes a new line, @ names files, / lists commands, Esc interrupts, Ctrl-D leaves."""
_EXIT_CODES: Final = {
    0: "you left",
    1: "there is no such thread, the model cannot be used, or the server is gone",
    2: "wrong usage or configuration, or no terminal",
    129: "the terminal was closed (143: ended by SIGTERM)",
}
_EXAMPLES: Final = (
    "treadle chat",
    'treadle chat --sandbox workspace-write "fix the failing test"',
    "treadle chat resume",
    "treadle chat resume --last",
)


class ChatRequest(Struct, frozen=True, kw_only=True):
    """The options of the command line. `resume` is an id or a name, or empty: for the most recent thread (`last`), or
    for one that is chosen from a list. With `fork`, a copy of it is entered."""

    cwd: str
    environment: str | None = None
    directory: str | None = None
    """Where to work in the environment; without it, where that says."""
    moved: bool = False
    """Whether `cwd` was given: a thread that is resumed moves there then."""
    prompt: str | None = None
    resume: str | None = None
    last: bool = False
    fork: bool = False
    images: tuple[str, ...] = ()
    model: str | None = None
    sandbox: str | None = None
    approvals: str | None = None
    more_roots: tuple[str, ...] = ()
    config_overrides: tuple[str, ...] = ()


@user_command("chat", more=_MORE, exit_codes=_EXIT_CODES, examples=_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[PROMPT]", type=click.UNPROCESSED, shell_complete=complete_words)
@click.option("--last", is_flag=True, help="with resume or fork: the most recent thread of the directory")
@click.option("-C", "--cd", metavar="DIR", type=click.Path(), help="where to work (default: here)")
@environment_option
@model_option
@click.option("-i", "--image", metavar="FILE", multiple=True, type=click.Path(), help="a picture for the first message")
@sandbox_option
@click.option(
    "--add-dir",
    metavar="DIR",
    multiple=True,
    type=click.Path(),
    help="with workspace-write: a directory that may be written too; may be given again",
)
@click.option(
    "-a",
    "--approval",
    "--ask-for-approval",
    "approvals",
    type=click.Choice(APPROVALS),
    help="when you are asked (default: as configured, else on-request)",
)
@bypass_option
@profile_option
def command(
    words: tuple[str, ...],
    last: bool,
    cd: str | None,
    environment: str | None,
    model: str | None,
    image: tuple[str, ...],
    sandbox: str | None,
    add_dir: tuple[str, ...],
    approvals: str | None,
    bypass: bool,
    profile: str | None,
    config_overrides: tuple[str, ...],
) -> int:
    resume, prompt = thread_and_prompt(words, last=last)
    there, cd = (None, cd) if environment is None else (cd, None)
    if cd is not None and not os.path.isdir(cd):
        raise Problem(f"{cd} is no directory", do="give one that exists with --cd", code=REFUSED)
    if bypass:
        sandbox, approvals = "danger-full-access", approvals or "never"
    for each in image:
        if not os.access(each, os.R_OK) or not os.path.isfile(each):
            raise Problem(f"the picture {each} cannot be read", do="give a file that exists with --image", code=REFUSED)
    request = ChatRequest(
        cwd=os.path.abspath(cd or "."),
        environment=environment,
        directory=there,
        moved=cd is not None,
        prompt=prompt,
        resume=resume,
        last=last,
        fork=words[:1] == ("fork",),
        images=tuple(map(os.path.abspath, image)),
        model=model,
        sandbox=sandbox,
        approvals=approvals,
        more_roots=tuple(map(os.path.abspath, add_dir)),
        config_overrides=(*config_overrides, *profile_override(profile)),
    )
    if not is_terminal(sys.stdin) or not is_terminal(sys.stdout):
        missing = "standard input" if not is_terminal(sys.stdin) else "standard output"
        why = f"{missing} is no terminal" if os.environ.get("TERM") != "dumb" else "TERM says that it is a dumb one"
        do = 'treadle exec "PROMPT" runs one turn without one'
        raise Problem("a session needs a terminal", why=why, do=do, code=REFUSED)
    from treadle.cli.chat.program import run  # prompt_toolkit takes 100 ms: loaded when somebody sits there

    return run(request)


_SHORT_EXAMPLES: Final = (
    "treadle {word} 01a1e129",
    "treadle {word} --last",
    'treadle {word} --last "and now the tests"',
)
resume: Final = Shortcut(
    "resume", command, "resume", "[THREAD] [PROMPT]", [e.format(word="resume") for e in _SHORT_EXAMPLES]
)
fork: Final = Shortcut("fork", command, "fork", "[THREAD] [PROMPT]", [e.format(word="fork") for e in _SHORT_EXAMPLES])


def thread_and_prompt(words: tuple[str, ...], *, last: bool) -> tuple[str | None, str | None]:
    """The thread to resume, if any, and the first message."""
    if not words or words[0] not in ("resume", "fork"):
        if last:
            raise Problem("--last goes with resume and fork", do="treadle chat resume --last", code=REFUSED)
        return None, _only(words)
    rest = words[1:]
    if last:
        return "", _only(rest)
    return (rest[0], _only(rest[1:])) if rest else ("", None)


def _only(words: tuple[str, ...]) -> str | None:
    if len(words) > 1:
        raise Problem(
            "the prompt is one argument", why=f"there is also {words[1]!r}", do="put quotes around it", code=REFUSED
        )
    return words[0] if words else None
