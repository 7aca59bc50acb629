"""The command line of `treadle exec`, compatible with `codex exec`: its options and what they mean; and `read_prompt`.

It owns the names of the options and how they combine. Codex options that would promise something that Treadle does not
do are rejected with an explanation; those that make no difference here are accepted.
"""

from __future__ import annotations

import json
import os
import select
import stat
from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from msgspec import Struct

from treadle.arguments import text_problem
from treadle.cli.problem import Problem
from treadle.cli.streams import REFUSED, write_stderr
from treadle.cli.user_commands import UserCommand, color_option, user_command

_MORE: Final = """\
`treadle exec resume ID [PROMPT]` goes on in a thread, `resume --last` in the most recent one. What is piped in is
appended to the prompt; with - or without one, the prompt is read from standard input.

On a terminal everything is shown, and you are asked for what needs an approval. Otherwise standard output gets the
answer alone, standard error the rest; with --json it gets events as `codex exec --json` prints them."""
_EXIT_CODES: Final = {
    0: "done",
    1: "the turn failed or was stopped at a question, there is no such thread, or the model cannot be used",
    2: "wrong usage or configuration",
    130: "interrupted (143 by SIGTERM); with --json: 1 (and ended by SIGTERM)",
}
_EXAMPLES: Final = (
    'treadle exec "explain what this project does"',
    'treadle exec --sandbox workspace-write "fix the failing test"',
    'git diff | treadle exec "write a commit message" > message.txt',
    'treadle exec resume --last "and now in German"',
)

SANDBOXES: Final = ("read-only", "workspace-write", "danger-full-access")
APPROVALS: Final = ("untrusted", "on-request", "never")
# A policy that Codex had once; settings take it for this one too.
_ON_FAILURE: Final = "on-failure"
_RESUME: Final = "resume"
# The advice for a command of Codex that we do not have, and for options whose promise we would not hold.
_OTHER_COMMANDS: Final = {
    "fork": "treadle exec resume ID goes on with a thread",
    "review": 'treadle exec "review the last commit"',
}
_REFUSED: Final = {
    "oss": "name the server: -c model_provider=ollama (or lmstudio, or vllm)",
    "local_provider": "name the server: -c model_provider=ollama",
    "approve_for_me": "choose what may be done with --sandbox",
    "worktree": "git worktree add DIR, then --cd DIR",
    "ignore_user_config": "set TREADLE_HOME to a folder without config.toml",
}


# What a turn takes at most; more is refused before anything is run.
MAX_BYTES: Final = 1 << 20
# After this long, a person who waits for a pipe that nobody closes gets a hint.
PATIENCE_S: Final = 2.0


class ExecRequest(Struct, frozen=True, kw_only=True):
    """What was asked for on the command line. `resume` is an id or a name, or empty for the most recent thread."""

    cwd: str
    prompt: str | None = None
    resume: str | None = None
    everywhere: bool = False
    """Whether the most recent thread may be one of another directory."""
    images: tuple[str, ...] = ()
    output_schema: Any = None
    model: str | None = None
    sandbox: str | None = None
    thread_source: str | None = None
    ephemeral: bool = False
    as_json: bool = False
    quiet: bool = False
    approval: str | None = None
    color: str = "auto"


class ExecArguments(Struct, frozen=True, kw_only=True):
    """What was typed."""

    words: tuple[str, ...] = ()
    cd: str = "."
    model: str | None = None
    image: tuple[str, ...] = ()
    output_schema: str | None = None
    ephemeral: bool = False
    thread_source: str | None = None
    last: bool = False
    everywhere: bool = False
    sandbox: str | None = None
    add_dir: tuple[str, ...] = ()
    bypass: bool = False
    full_auto: bool = False
    as_json: bool = False
    quiet: bool = False
    approval: str | None = None
    output_last_message: str | None = None
    color: str = "auto"
    profile: str | None = None
    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    strict_config: bool = False
    cyber_access_program: str | None = None
    config_overrides: tuple[str, ...] = ()
    # Of Codex, without effect here: no repository is checked, there are no rules, and hooks have to be trusted.
    skip_git_repo_check: bool = False
    ignore_rules: bool = False
    dangerously_bypass_hook_trust: bool = False
    # Of Codex, refused: see `_REFUSED`.
    oss: bool = False
    approve_for_me: bool = False
    worktree: bool = False
    ignore_user_config: bool = False
    local_provider: str | None = None


class ExecClickCommand(UserCommand):
    """Several files may follow one `--image`, as with Codex."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _one_image_each(args))


def _one_image_each(words: Sequence[str]) -> list[str]:
    """The words with an `--image` in front of every file that one was followed by."""
    given: list[str] = []
    taking = False
    for place, word in enumerate(words):
        if word == "--":
            return [*given, *words[place:]]
        if word in ("-i", "--image"):
            taking = True
        elif taking and (not word.startswith("-") or word == "-"):
            given += ["--image", word]
        else:
            taking = False
            given.append(word)
    if taking and words[-1] in ("-i", "--image"):
        given.append(words[-1])  # click reports the missing file
    return given


class _Approval(click.Choice[str]):
    """An approval policy; the one that Codex had once is taken too, and not advertised."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value if value == _ON_FAILURE else super().convert(value, param, ctx)


def _options() -> list[Callable[[Any], Any]]:
    """The options in the order in which the help shows them."""
    option = click.option

    def unseen(name: str) -> Callable[[Any], Any]:
        return option(name, is_flag=True, hidden=True)

    return [
        click.argument("words", nargs=-1, metavar="[PROMPT]", type=click.UNPROCESSED),
        # the thread
        option("-C", "--cd", metavar="DIR", type=click.Path(), default=".", help="where to work (default: here)"),
        option("-m", "--model", metavar="NAME", help="the model to use instead of the configured one"),
        option(
            "-i",
            "--image",
            metavar="FILE",
            multiple=True,
            type=click.Path(),
            help="a picture for the prompt; may be given again, and several with commas between them",
        ),
        option("--output-schema", metavar="FILE", type=click.Path(), help="a JSON Schema that the answer has to fit"),
        option("--ephemeral", is_flag=True, help="do not keep the thread"),
        option("--thread-source", metavar="SOURCE", help="what a new thread is said to come from"),
        option("--last", is_flag=True, help="with resume: the most recent thread of the directory"),
        option("--all", "everywhere", is_flag=True, help="with --last: of any directory"),
        # what it may do
        option(
            "-s",
            "--sandbox",
            type=click.Choice(SANDBOXES),
            help="what commands may do (default: as configured, else read-only)",
        ),
        option(
            "-a",
            "--approval",
            "--ask-for-approval",
            "approval",
            type=_Approval(APPROVALS),
            help="when you are asked, on a terminal: before any command that is not known to be harmless, before one "
            "that leaves the sandbox, or never (default: as configured, else on-request)",
        ),
        option(
            "--add-dir",
            metavar="DIR",
            multiple=True,
            type=click.Path(),
            help="with workspace-write: a directory that may be written too, such as .git for commits; may be given "
            "again",
        ),
        option(
            "--dangerously-bypass-approvals-and-sandbox",
            "--yolo",
            "bypass",
            is_flag=True,
            help="the same as --sandbox danger-full-access --approval never",
        ),
        unseen("--full-auto"),
        # what is shown
        option(
            "--json",
            "--experimental-json",
            "as_json",
            is_flag=True,
            help="print what happens as JSON, one event a line",
        ),
        option("-q", "--quiet", is_flag=True, help="show nothing but the answer and errors; ask nobody"),
        option(
            "-o",
            "--output-last-message",
            metavar="FILE",
            type=click.Path(),
            help="also write the answer to this file when the turn is done",
        ),
        color_option,
        # settings
        option("-p", "--profile", metavar="NAME", help="a table [profiles.NAME] of config.toml"),
        option("--enable", metavar="FEATURE", multiple=True, hidden=True),
        option("--disable", metavar="FEATURE", multiple=True, hidden=True),
        option("--strict-config", is_flag=True, help="refuse settings that have no effect"),
        # of Codex
        unseen("--skip-git-repo-check"),
        unseen("--ignore-rules"),
        unseen("--dangerously-bypass-hook-trust"),
        option("--cyber-access-program", type=click.Choice(("standard", "daybreak_blue", "daybreak_red")), hidden=True),
        unseen("--oss"),
        unseen("--approve-for-me"),
        unseen("--worktree"),
        unseen("--ignore-user-config"),
        option("--local-provider", metavar="NAME", hidden=True),
    ]


def exec_command(function: Callable[[ExecArguments], int]) -> ExecClickCommand:
    """`treadle exec`, with this to run it."""

    def called(**values: Any) -> int:
        return function(ExecArguments(**values))

    for option in reversed(_options()):
        called = option(called)
    made = user_command("exec", kind=ExecClickCommand, more=_MORE, exit_codes=_EXIT_CODES, examples=_EXAMPLES)(called)
    assert isinstance(made, ExecClickCommand)
    return made


def warnings(arguments: ExecArguments) -> list[str]:
    """What the user should know about options that were taken."""
    found = []
    if arguments.full_auto:
        found.append("--full-auto is an old name; use --sandbox workspace-write")
    if arguments.approval == _ON_FAILURE:
        found.append(f"--approval {_ON_FAILURE} is no longer known; on-request is used, write that instead")
    if arguments.cyber_access_program not in (None, "standard"):
        found.append(f"--cyber-access-program {arguments.cyber_access_program} is not sent to the provider")
    return found


def overrides(arguments: ExecArguments) -> list[str]:
    """The settings that the options stand for, after those that `-c` gives."""
    given = list(arguments.config_overrides)
    if arguments.profile is not None:
        given.append(f"profile={_toml(arguments.profile)}")
    given += [f"features.{name}=true" for name in arguments.enable]
    return given + [f"features.{name}=false" for name in arguments.disable]


def more_roots(arguments: ExecArguments, configured: Sequence[str]) -> list[str]:
    """`--add-dir` as a setting, on top of what is configured."""
    if not arguments.add_dir:
        return []
    roots = [*configured, *(os.path.abspath(folder) for folder in arguments.add_dir)]
    return [f"sandbox_workspace_write.writable_roots={_toml(roots)}"]


def _toml(value: object) -> str:
    """Texts and lists of them are written alike in JSON and in TOML."""
    return json.dumps(value, ensure_ascii=False)


def read_request(arguments: ExecArguments) -> ExecRequest:
    """Raises `Problem` with what cannot be done, before anything is."""
    for name, do in _REFUSED.items():
        if getattr(arguments, name):
            raise _not_offered(f"--{name.replace('_', '-')}", do)
    images, words = _images(arguments.image, arguments.words)
    resume, prompt = _thread_and_prompt(words, last=arguments.last)
    _check_texts(arguments, resume)
    if resume is not None and arguments.ephemeral:
        why = "one that is resumed is kept already"
        raise Problem("--ephemeral is for a new thread", why=why, do="leave one of the two out", code=REFUSED)
    if not os.path.isdir(arguments.cd):
        why = "it is a file" if os.path.exists(arguments.cd) else "it does not exist"
        raise Problem(f"{arguments.cd} is no directory", why=why, do="--cd DIR with one that is there", code=REFUSED)
    sandbox, approval = arguments.sandbox, arguments.approval
    if arguments.full_auto and sandbox is None:
        sandbox = "workspace-write"
    if approval == _ON_FAILURE:
        approval = "on-request"
    if arguments.bypass:
        sandbox, approval = "danger-full-access", approval or "never"
    return ExecRequest(
        cwd=os.path.abspath(arguments.cd),
        prompt=prompt,
        resume=resume,
        everywhere=arguments.everywhere,
        images=images,
        output_schema=_schema(arguments.output_schema),
        model=arguments.model,
        sandbox=sandbox,
        thread_source=arguments.thread_source,
        ephemeral=arguments.ephemeral,
        as_json=arguments.as_json,
        quiet=arguments.quiet,
        approval=approval,
        color=arguments.color,
    )


def _check_texts(arguments: ExecArguments, resume: str | None) -> None:
    """What is sent or stored has to be text; the name of a file of this program need not."""
    sent = {
        "the name of a thread": (resume,),
        "--image": arguments.image,
        "--add-dir": arguments.add_dir,
        "--model": (arguments.model,),
        "--thread-source": (arguments.thread_source,),
    }
    for name, texts in sent.items():
        for text in texts:
            if (problem := text_problem(text or "")) is not None:
                do = "rename what is called so, or leave it out"
                raise Problem(f"{name} is no text: {text!a}", why=f"it {problem}", do=do, code=REFUSED)


def _images(given: Sequence[str], words: Sequence[str]) -> tuple[tuple[str, ...], Sequence[str]]:
    """Several files may follow one `--image`. A last one that is no file was meant as the prompt."""
    if not words and len(given) > 1 and not os.path.exists(given[-1]):
        given, words = given[:-1], [given[-1]]
    paths = [path for word in given for path in word.split(",") if path]
    for path in paths:
        # Refused now, before a turn is paid for; whether it is an image is seen when it is sent.
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            do = "--image FILE with a file that is there and yours to read"
            raise Problem(f"the image {path} cannot be read", why=str(error.strerror), do=do, code=REFUSED) from None
    return tuple(os.path.abspath(path) for path in paths), words


def _thread_and_prompt(words: Sequence[str], *, last: bool) -> tuple[str | None, str | None]:
    """The thread to resume, if any, and the prompt."""
    if words and words[0] in _OTHER_COMMANDS:
        raise _not_offered(f"treadle exec {words[0]}", _OTHER_COMMANDS[words[0]])
    if not words or words[0] != _RESUME:
        if last:
            do = 'treadle exec resume --last "…"'
            raise Problem("--last goes with resume", why="a new thread has no last one", do=do, code=REFUSED)
        return None, _only(words)
    words = words[1:]
    if last:
        return "", _only(words)
    if not words or not words[0]:
        do = 'treadle exec resume ID "…", or treadle exec resume --last "…"'
        raise Problem("which thread?", why="there is no id behind resume", do=do, code=REFUSED)
    return words[0], _only(words[1:])


def _only(words: Sequence[str]) -> str | None:
    if len(words) > 1:
        why = f"the prompt is one argument, and there is also {words[1]!r}"
        raise Problem("there are too many words", why=why, do='put quotes around it: treadle exec "…"', code=REFUSED)
    return words[0] if words else None


def _schema(path: str | None) -> Any:
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        do = "--output-schema FILE with a file that is there"
        raise Problem(f"the schema {path} cannot be read", why=str(error.strerror), do=do, code=REFUSED) from None
    except (ValueError, RecursionError) as error:
        do = f"python3 -m json.tool {path} shows the place"
        raise Problem(f"the schema {path} is no JSON", why=str(error), do=do, code=REFUSED) from None


def _not_offered(what: str, do: str) -> Problem:
    return Problem(f"{what} is not offered", why="codex has it, and Treadle does not", do=do, code=REFUSED)


# --- the prompt, also of `treadle run` ---


class PromptError(Problem):
    """The prompt is missing, or cannot be sent."""

    def __init__(self, what: str, why: str, do: str) -> None:
        super().__init__(what, why=why, do=do, code=REFUSED)


def read_prompt(argument: str | None, descriptor: int = 0, *, appended: bool = True, command: str = "exec") -> str:
    """`-` or nothing: standard input is the prompt. Else what is piped in is `appended` to the argument, as a block."""
    if argument is None or argument == "-":
        if os.isatty(descriptor):
            write_stderr(f"treadle {command}: reading the prompt; end it with Ctrl-D")
        prompt = _read(descriptor, command)
    else:
        piped = _read(descriptor, command) if appended and _is_piped(descriptor) else ""
        prompt = f"{argument}\n\n<stdin>\n{piped.rstrip()}\n</stdin>" if piped.strip() else argument
    if not prompt.strip():
        why = "neither the command line nor standard input has a prompt"
        raise PromptError("there is nothing to do", why, f'treadle {command} "explain this project"')
    problem = text_problem(prompt)
    if problem is not None:
        raise PromptError(
            "the prompt is no text", f"it {problem}", "write it to a file, and name the file in the prompt"
        )
    return prompt


def _is_piped(descriptor: int) -> bool:
    """Whether somebody has put something there; a terminal and /dev/null are neither."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _read(descriptor: int, command: str) -> str:
    """All of it. Bytes that are no text are replaced: the rest is still worth reading."""
    pieces: list[bytes] = []
    size = 0
    while True:
        if not os.isatty(descriptor) and not select.select([descriptor], [], [], PATIENCE_S)[0]:
            write_stderr(
                f"treadle {command}: waiting for the end of standard input; use </dev/null if there is nothing to read"
            )
        try:
            piece = os.read(descriptor, 1 << 16)
        except OSError as error:
            do = f'give the prompt as an argument: treadle {command} "…" </dev/null'
            raise PromptError("standard input cannot be read", str(error.strerror), do) from None
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BYTES:
            why = f"standard input has more than {MAX_BYTES} bytes"
            raise PromptError("the prompt is too long", why, "write it to a file, and name the file in the prompt")
    return b"".join(pieces).decode("utf-8", "replace")
