"""`treadle chat`: its options and what they mean. `program` runs it."""

from __future__ import annotations

import os
import sys
from typing import Final

import click
from msgspec import Struct

from treadle.cli.problem import Problem
from treadle.cli.streams import REFUSED
from treadle.cli.terminal import is_terminal
from treadle.cli.user_commands import user_command

_MORE: Final = """\
A session in the terminal: you say something, the agent works, you see what it does and can add to it meanwhile. With
PROMPT that is said first. `treadle chat resume ID` goes on in a thread, by its id or name, `resume --last` in the most
recent one of the directory; the threads are those of `treadle exec`, too.

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
    "treadle chat resume --last",
)
_SANDBOXES: Final = ("read-only", "workspace-write", "danger-full-access")
_POLICIES: Final = ("untrusted", "on-request", "never")


class ChatRequest(Struct, frozen=True, kw_only=True):
    """The options of the command line. `resume` is an id or a name, or empty for the most recent thread."""

    cwd: str
    moved: bool = False
    """Whether `cwd` was given: a thread that is resumed moves there then."""
    prompt: str | None = None
    resume: str | None = None
    images: tuple[str, ...] = ()
    model: str | None = None
    sandbox: str | None = None
    approvals: str | None = None
    more_roots: tuple[str, ...] = ()
    config_overrides: tuple[str, ...] = ()


@user_command("chat", more=_MORE, exit_codes=_EXIT_CODES, examples=_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[PROMPT]", type=click.UNPROCESSED)
@click.option("--last", is_flag=True, help="with resume: the most recent thread of the directory")
@click.option("-C", "--cd", metavar="DIR", type=click.Path(), help="where to work (default: here)")
@click.option("-m", "--model", metavar="NAME", help="the model to use instead of the configured one")
@click.option("-i", "--image", metavar="FILE", multiple=True, type=click.Path(), help="a picture for the first message")
@click.option(
    "-s",
    "--sandbox",
    type=click.Choice(_SANDBOXES),
    help="what commands may do (default: as configured, else read-only)",
)
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
    type=click.Choice(_POLICIES),
    help="when you are asked (default: as configured, else on-request)",
)
def command(
    words: tuple[str, ...],
    last: bool,
    cd: str | None,
    model: str | None,
    image: tuple[str, ...],
    sandbox: str | None,
    add_dir: tuple[str, ...],
    approvals: str | None,
    config_overrides: tuple[str, ...],
) -> int:
    resume, prompt = thread_and_prompt(words, last=last)
    if cd is not None and not os.path.isdir(cd):
        raise Problem(f"{cd} is no directory", do="give one that exists with --cd", code=REFUSED)
    request = ChatRequest(
        cwd=os.path.abspath(cd or "."),
        moved=cd is not None,
        prompt=prompt,
        resume=resume,
        images=tuple(map(_picture, image)),
        model=model,
        sandbox=sandbox,
        approvals=approvals,
        more_roots=tuple(map(os.path.abspath, add_dir)),
        config_overrides=config_overrides,
    )
    if not is_terminal(sys.stdin) or not is_terminal(sys.stdout):
        missing = "standard input" if not is_terminal(sys.stdin) else "standard output"
        why = f"{missing} is no terminal" if os.environ.get("TERM") != "dumb" else "TERM says that it is a dumb one"
        do = 'treadle exec "PROMPT" runs one turn without one'
        raise Problem("a session needs a terminal", why=why, do=do, code=REFUSED)
    from treadle.cli.chat.program import run  # prompt_toolkit takes 100 ms: loaded when somebody sits there

    return run(request)


def thread_and_prompt(words: tuple[str, ...], *, last: bool) -> tuple[str | None, str | None]:
    """The thread to resume, if any, and the first message."""
    if not words or words[0] != "resume":
        if last:
            raise Problem("--last goes with resume", do="treadle chat resume --last", code=REFUSED)
        return None, _only(words)
    words = words[1:]
    if last:
        return "", _only(words)
    if not words or not words[0]:
        raise Problem(
            "resume needs a thread",
            why="neither an id, a name nor --last was given",
            do="treadle chat resume --last, or /resume in a session for a list",
            code=REFUSED,
        )
    return words[0], _only(words[1:])


def _only(words: tuple[str, ...]) -> str | None:
    if len(words) > 1:
        raise Problem(
            "the prompt is one argument", why=f"there is also {words[1]!r}", do="put quotes around it", code=REFUSED
        )
    return words[0] if words else None


def _picture(given: str) -> str:
    if not os.access(given, os.R_OK) or not os.path.isfile(given):
        raise Problem(f"the picture {given} cannot be read", do="give a file that exists with --image", code=REFUSED)
    return os.path.abspath(given)
