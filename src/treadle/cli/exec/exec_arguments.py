"""The command line of `treadle exec`, compatible with `codex exec`: its options and what they mean.

It owns the names of the options and how they combine. Codex options that would promise something that Treadle does not
do are rejected with an explanation; those that make no difference here are accepted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from msgspec import Struct

from treadle.arguments import text_problem
from treadle.cli.completion import complete_models, complete_profiles, complete_words
from treadle.cli.problem import Problem
from treadle.cli.streams import REFUSED
from treadle.cli.turn_input import Seconds, read_prompt, read_schema, readable_images, working_folder
from treadle.cli.user_commands import UserCommand, color_option, user_command
from treadle.cli.workplace import environment_option
from treadle.protocol.app.turns import (
    BaseBranchReviewTarget,
    CommitReviewTarget,
    CustomReviewTarget,
    ReviewTarget,
    UncommittedChangesReviewTarget,
)

_MORE: Final = """\
`treadle exec resume ID [PROMPT]` goes on in a thread, `resume --last` in the most recent one; `fork` does so in a copy.
`treadle exec review` has changes reviewed: --uncommitted, --base, --commit, or what a prompt says. What is piped in is
appended to the prompt; with - or without one, the prompt is read from standard input.

On a terminal everything is shown, and you are asked for what needs an approval. Otherwise standard output gets the
answer alone, standard error the rest; with --json it gets events as `codex exec --json` prints them."""
_EXIT_CODES: Final = {
    0: "done",
    1: "the turn failed or was stopped at a question, there is no such thread, or the model cannot be used",
    2: "wrong usage or configuration",
    124: "the time of --timeout was up",
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
model_option: Final = click.option(
    "-m",
    "--model",
    metavar="NAME",
    help="the model to use instead of the configured one",
    shell_complete=complete_models,
)
sandbox_option: Final = click.option(
    "-s",
    "--sandbox",
    type=click.Choice(SANDBOXES),
    help="what commands may do (default: as configured, else read-only)",
)
bypass_option: Final = click.option(
    "--dangerously-bypass-approvals-and-sandbox",
    "--yolo",
    "bypass",
    is_flag=True,
    help="the same as --sandbox danger-full-access --approval never",
)
profile_option: Final = click.option(
    "-p",
    "--profile",
    metavar="NAME",
    help="a table [profiles.NAME] of config.toml",
    shell_complete=complete_profiles,
)
# A policy that Codex had once; settings take it for this one too.
_ON_FAILURE: Final = "on-failure"
# The advice for options whose promise we would not hold.
_REFUSED: Final = {
    "oss": "name the server: -c model_provider=ollama (or lmstudio, or vllm)",
    "local_provider": "name the server: -c model_provider=ollama",
    "approve_for_me": "choose what may be done with --sandbox",
    "worktree": "git worktree add DIR, then --cd DIR",
    "ignore_user_config": "set TREADLE_HOME to a folder without config.toml",
}


class ExecRequest(Struct, frozen=True, kw_only=True):
    """What was asked for on the command line. `resume` is an id or a name, or empty for the most recent thread; with
    `fork`, the turn is on a copy of it. With a `review` there is no prompt."""

    cwd: str
    environment: str | None = None
    directory: str | None = None
    """Where to work in the environment; without it, where that says."""
    prompt: str | None = None
    resume: str | None = None
    fork: bool = False
    review: ReviewTarget | None = None
    timeout: float | None = None
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
    cd: str | None = None
    environment: str | None = None
    model: str | None = None
    image: tuple[str, ...] = ()
    output_schema: str | None = None
    ephemeral: bool = False
    thread_source: str | None = None
    last: bool = False
    everywhere: bool = False
    uncommitted: bool = False
    base: str | None = None
    commit: str | None = None
    title: str | None = None
    timeout: float | None = None
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
        # As click knows it: with an `--image` in front of every file that one was followed by.
        given: list[str] = []
        taking = False
        for place, word in enumerate(args):
            if word == "--":
                return super().parse_args(ctx, [*given, *args[place:]])
            if word in ("-i", "--image"):
                taking = True
            elif taking and (not word.startswith("-") or word == "-"):
                given += ["--image", word]
            else:
                taking = False
                given.append(word)
        if taking and args[-1] in ("-i", "--image"):
            given.append(args[-1])  # click reports the missing file
        return super().parse_args(ctx, given)


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
        click.argument("words", nargs=-1, metavar="[PROMPT]", type=click.UNPROCESSED, shell_complete=complete_words),
        # the thread
        option("-C", "--cd", metavar="DIR", type=click.Path(), help="where to work (default: here)"),
        environment_option,
        model_option,
        option(
            "-i",
            "--image",
            metavar="FILE",
            multiple=True,
            type=click.Path(),
            help="a picture for the prompt; may be given again, and several with commas between them",
        ),
        option("--output-schema", metavar="FILE", type=click.Path(), help="a JSON Schema that the answer has to fit"),
        option("--ephemeral", is_flag=True, help="do not store the thread"),
        option("--thread-source", metavar="SOURCE", help="what a new thread is said to come from"),
        option("--last", is_flag=True, help="with resume or fork: the most recent thread of the directory"),
        option("--all", "everywhere", is_flag=True, help="with --last: of any directory"),
        option("--uncommitted", is_flag=True, help="with review: what is staged, unstaged and untracked"),
        option("--base", metavar="BRANCH", help="with review: what would be merged into this branch"),
        option("--commit", metavar="SHA", help="with review: what this commit changes"),
        option("--title", metavar="TITLE", help="with --commit: what the commit is called"),
        option("--timeout", metavar="S", type=Seconds(), help="stop the turn after so many seconds"),
        # what it may do
        sandbox_option,
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
        bypass_option,
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
        profile_option,
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
    given = [*arguments.config_overrides, *profile_override(arguments.profile)]
    given += [f"features.{name}=true" for name in arguments.enable]
    return given + [f"features.{name}=false" for name in arguments.disable]


def profile_override(profile: str | None) -> list[str]:
    """The setting that `--profile` stands for."""
    return [] if profile is None else [f"profile={_toml(profile)}"]


def more_roots(arguments: ExecArguments, configured: Sequence[str]) -> list[str]:
    """`--add-dir` as a setting, on top of what is configured."""
    if not arguments.add_dir:
        return []
    roots = [*configured, *(os.path.abspath(folder) for folder in arguments.add_dir)]
    return [f"sandbox_workspace_write.writable_roots={_toml(roots)}"]


def _toml(value: object) -> str:
    """Texts and lists of them are written alike in JSON and in TOML."""
    return json.dumps(value, ensure_ascii=False)


def exec_request(arguments: ExecArguments) -> ExecRequest:
    """Raises `Problem` with what cannot be done, before anything is."""
    for name, do in _REFUSED.items():
        if getattr(arguments, name):
            what, why = f"--{name.replace('_', '-')} is not offered", "codex has it, and Treadle does not"
            raise Problem(what, why=why, do=do, code=REFUSED)
    images, words = _images(arguments.image, arguments.words)
    word = words[0] if words and words[0] in ("resume", "fork", "review") else ""
    resume, prompt = _thread_and_prompt(word, words, last=arguments.last)
    review = _review(arguments, prompt) if word == "review" else None
    for name in ("uncommitted", "base", "commit", "title"):
        if word != "review" and getattr(arguments, name):
            do = f"treadle exec review --{name} …"
            raise Problem(f"--{name} goes with review", do=do, code=REFUSED)
    _check_texts(arguments, resume)
    if word == "resume" and arguments.ephemeral:
        why = "one that is resumed is stored already"
        raise Problem("--ephemeral is for a new thread", why=why, do="leave one of the two out", code=REFUSED)
    sandbox, approval = arguments.sandbox, arguments.approval
    if arguments.full_auto and sandbox is None:
        sandbox = "workspace-write"
    if approval == _ON_FAILURE:
        approval = "on-request"
    if arguments.bypass:
        sandbox, approval = "danger-full-access", approval or "never"
    return ExecRequest(
        cwd=working_folder(arguments.cd or "." if arguments.environment is None else "."),
        environment=arguments.environment,
        directory=None if arguments.environment is None else arguments.cd,
        prompt=prompt,
        resume=resume,
        fork=word == "fork",
        review=review,
        timeout=arguments.timeout,
        everywhere=arguments.everywhere,
        images=images,
        output_schema=read_schema(arguments.output_schema),
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
        "--environment": (arguments.environment, arguments.cd if arguments.environment else None),
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
    return readable_images(paths), words


def _thread_and_prompt(word: str, words: Sequence[str], *, last: bool) -> tuple[str | None, str | None]:
    """The thread to resume or to copy, if any, and the prompt."""
    if word not in ("resume", "fork"):
        if last:
            do = 'treadle exec resume --last "…"'
            raise Problem("--last goes with resume and fork", why="a new thread has no last one", do=do, code=REFUSED)
        return None, _only(words[1:] if word else words)
    words = words[1:]
    if last:
        return "", _only(words)
    if not words or not words[0]:
        do = f'treadle exec {word} ID "…", or treadle exec {word} --last "…"'
        raise Problem("which thread?", why=f"there is no id behind {word}", do=do, code=REFUSED)
    return words[0], _only(words[1:])


def _review(arguments: ExecArguments, prompt: str | None) -> ReviewTarget:
    """What is reviewed, of which there is one."""
    found: dict[str, ReviewTarget] = {}
    if arguments.uncommitted:
        found["--uncommitted"] = UncommittedChangesReviewTarget()
    if arguments.base is not None:
        found["--base"] = BaseBranchReviewTarget(branch=arguments.base)
    if arguments.commit is not None:
        found["--commit"] = CommitReviewTarget(sha=arguments.commit, title=arguments.title)
    if prompt is not None:
        found["a prompt"] = CustomReviewTarget(instructions=read_prompt(prompt, command="review", appended=False))
    if len(found) != 1:
        what = f"{' and '.join(found)} do not go together" if found else "what is to be reviewed?"
        do = "one of --uncommitted, --base BRANCH, --commit SHA, or a prompt that says it"
        raise Problem(what, do=do, code=REFUSED)
    if arguments.title is not None and arguments.commit is None:
        raise Problem("--title goes with --commit", do="--commit SHA --title TITLE", code=REFUSED)
    for name in ("image", "output_schema"):
        if getattr(arguments, name):
            option = f"--{name.replace('_', '-')}"
            raise Problem(f"{option} does not go with review", why="a reviewer has a form of its own", code=REFUSED)
    return found.popitem()[1]


def _only(words: Sequence[str]) -> str | None:
    if len(words) > 1:
        why = f"the prompt is one argument, and there is also {words[1]!r}"
        raise Problem("there are too many words", why=why, do='put quotes around it: treadle exec "…"', code=REFUSED)
    return words[0] if words else None
