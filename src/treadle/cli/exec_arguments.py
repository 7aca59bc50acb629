"""The command line of `treadle exec`, compatible with `codex exec`: its options and what they mean.

It owns the names of the options and how they combine. Codex options that would promise something that Treadle does not
do are rejected with an explanation; those that make no difference here are accepted.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from treadle.errors import TreadleError

_USAGE: Final = """\
treadle exec [OPTIONS] [PROMPT]
       treadle exec [OPTIONS] resume [ID | --last] [PROMPT]"""

_MORE: Final = """\
On a terminal everything is shown. Otherwise standard output gets the answer alone, standard error the rest;
with --json it gets events as `codex exec --json` prints them.

exit codes:
  0 done   1 the turn failed, there is no such thread, or the model cannot be used   2 wrong usage or configuration
  130 interrupted (143 by SIGTERM); with --json: 1 (and ended by SIGTERM)

examples:
  treadle exec "explain what this project does"
  treadle exec --sandbox workspace-write "fix the failing test"
  git diff | treadle exec "write a commit message" > message.txt
  treadle exec resume --last "and now in German"
"""

SANDBOXES: Final = ("read-only", "workspace-write", "danger-full-access")
_RESUME: Final = "resume"
# What is said by a word of Codex that we do not have, and by one that we would not keep.
_OTHER_COMMANDS: Final = {
    "fork": "`exec fork` is not offered; `exec resume ID` goes on with a thread",
    "review": '`exec review` is not offered; say what to review, as in `treadle exec "review the last commit"`',
}
_REFUSED: Final = {
    "oss": "--oss is not offered; name the server, as in -c model_provider=ollama (or lmstudio, or vllm)",
    "local_provider": "--local-provider is not offered; name the server, as in -c model_provider=ollama",
    "approve_for_me": "--approve-for-me is not offered: nobody reviews; choose what may be done with --sandbox",
    "worktree": "--worktree is not offered; make one with `git worktree add DIR` and give it with --cd",
    "ignore_user_config": "--ignore-user-config is not offered; set TREADLE_HOME to a folder without config.toml",
}


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
    color: str = "auto"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage, parser.epilog = _USAGE, _MORE
    parser.add_argument(
        "words",
        nargs="*",
        metavar="PROMPT",
        help="what to do; what is piped in is appended to it. - or nothing: read it from standard input",
    )
    _add_thread(parser)
    _add_permissions(parser)
    _add_output(parser)
    _add_settings(parser)
    _add_without_effect(parser)


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Options may stand anywhere, also between `resume`, the id and the prompt; after `--` there are none."""
    words = list(words)
    end = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_intermixed_args(words[:end])
    arguments.words = [*(arguments.words or ()), *words[end + 1 :]]
    return arguments


def _add_thread(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-C", "--cd", metavar="DIR", default=".", help="where to work (default: here)")
    parser.add_argument("-m", "--model", help="the model to use instead of the configured one")
    parser.add_argument(
        "-i",
        "--image",
        metavar="FILE",
        action="extend",
        nargs="+",
        default=[],
        help="a picture for the prompt; may be given again, and several with commas between them",
    )
    parser.add_argument("--output-schema", metavar="FILE", help="a JSON Schema that the answer has to fit")
    parser.add_argument("--ephemeral", action="store_true", help="do not keep the thread")
    parser.add_argument("--thread-source", metavar="SOURCE", help="what a new thread is said to come from")
    parser.add_argument("--last", action="store_true", help="resume the most recent thread of the directory")
    parser.add_argument("--all", action="store_true", help="with --last: of any directory")


def _add_permissions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-s", "--sandbox", choices=SANDBOXES, help="what commands may do (default: as configured, else read-only)"
    )
    parser.add_argument(
        "--add-dir",
        metavar="DIR",
        action="append",
        default=[],
        help="with workspace-write: a directory that may be written too; may be given again",
    )
    parser.add_argument(
        "--dangerously-bypass-approvals-and-sandbox",
        "--yolo",
        dest="bypass",
        action="store_true",
        help="the same as --sandbox danger-full-access",
    )
    parser.add_argument("--full-auto", action="store_true", help=argparse.SUPPRESS)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", "--experimental-json", action="store_true", help="print what happens as JSON, one event a line"
    )
    parser.add_argument(
        "-o", "--output-last-message", metavar="FILE", help="also write the answer to this file when the turn is done"
    )
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colours (default: %(default)s)"
    )


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-p", "--profile", metavar="NAME", help="a table [profiles.NAME] of config.toml")
    parser.add_argument("--enable", metavar="FEATURE", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--disable", metavar="FEATURE", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--strict-config", action="store_true", help="refuse settings that have no effect")


def _add_without_effect(parser: argparse.ArgumentParser) -> None:
    """There is no check of repositories, nobody to approve anything, and there are no rules or hooks."""
    for name in ("--skip-git-repo-check", "--ignore-rules", "--dangerously-bypass-hook-trust"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-a", "--ask-for-approval", metavar="POLICY", help=argparse.SUPPRESS)
    programs = ("standard", "daybreak_blue", "daybreak_red")
    parser.add_argument("--cyber-access-program", choices=programs, help=argparse.SUPPRESS)
    for name in ("--oss", "--approve-for-me", "--worktree", "--ignore-user-config"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--local-provider", metavar="NAME", help=argparse.SUPPRESS)


def warnings(arguments: argparse.Namespace) -> list[str]:
    """What the user should know about options that were taken."""
    said = []
    if arguments.full_auto:
        said.append("--full-auto is an old name; use --sandbox workspace-write")
    if arguments.cyber_access_program not in (None, "standard"):
        said.append(f"--cyber-access-program {arguments.cyber_access_program} is not sent to the provider")
    return said


def overrides(arguments: argparse.Namespace) -> list[str]:
    """The settings that the options stand for, after those that `-c` gives."""
    given = list(arguments.config_overrides)
    if arguments.profile is not None:
        given.append(f"profile={_toml(arguments.profile)}")
    given += [f"features.{name}=true" for name in arguments.enable]
    return given + [f"features.{name}=false" for name in arguments.disable]


def more_roots(arguments: argparse.Namespace, configured: Sequence[str]) -> list[str]:
    """`--add-dir` as a setting, on top of what is configured."""
    if not arguments.add_dir:
        return []
    roots = [*configured, *(os.path.abspath(folder) for folder in arguments.add_dir)]
    return [f"sandbox_workspace_write.writable_roots={_toml(roots)}"]


def _toml(value: object) -> str:
    """Texts and lists of them are written alike in JSON and in TOML."""
    return json.dumps(value, ensure_ascii=False)


def read_request(arguments: argparse.Namespace) -> ExecRequest:
    """Raises `TreadleError` with what cannot be done, before anything is."""
    for name, said in _REFUSED.items():
        if getattr(arguments, name):
            raise TreadleError(said)
    images, words = _images(arguments.image, arguments.words)
    resume, prompt = _thread_and_prompt(words, last=arguments.last)
    if resume is not None and arguments.ephemeral:
        raise TreadleError("--ephemeral is for a new thread; one that is resumed is kept already")
    if not os.path.isdir(arguments.cd):
        raise TreadleError(f"{arguments.cd} is no directory; give one with --cd")
    return ExecRequest(
        cwd=os.path.abspath(arguments.cd),
        prompt=prompt,
        resume=resume,
        everywhere=arguments.all,
        images=images,
        output_schema=_schema(arguments.output_schema),
        model=arguments.model,
        sandbox=_sandbox(arguments),
        thread_source=arguments.thread_source,
        ephemeral=arguments.ephemeral,
        as_json=arguments.json,
        color=arguments.color,
    )


def _images(given: Sequence[str], words: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """Several files may follow one `--image`. A last one that is no file was meant as the prompt."""
    if not words and len(given) > 1 and not os.path.exists(given[-1]):
        given, words = given[:-1], [given[-1]]
    paths = [path for word in given for path in word.split(",") if path]
    return tuple(os.path.abspath(path) for path in paths), words


def _thread_and_prompt(words: Sequence[str], *, last: bool) -> tuple[str | None, str | None]:
    """The thread to resume, if any, and the prompt."""
    if words and words[0] in _OTHER_COMMANDS:
        raise TreadleError(_OTHER_COMMANDS[words[0]])
    if not words or words[0] != _RESUME:
        if last:
            raise TreadleError("--last goes with resume, as in `treadle exec resume --last`")
        return None, _only(words)
    words = words[1:]
    if last:
        return "", _only(words)
    if not words or not words[0]:
        raise TreadleError("which thread? Give its id, as in `treadle exec resume ID`, or --last for the most recent")
    return words[0], _only(words[1:])


def _only(words: Sequence[str]) -> str | None:
    if len(words) > 1:
        raise TreadleError(f"the prompt is one argument; put quotes around it (there is also {words[1]!r})")
    return words[0] if words else None


def _sandbox(arguments: argparse.Namespace) -> str | None:
    if arguments.bypass:
        return "danger-full-access"
    sandbox: str | None = arguments.sandbox
    return "workspace-write" if sandbox is None and arguments.full_auto else sandbox


def _schema(path: str | None) -> Any:
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise TreadleError(f"the schema {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise TreadleError(f"the schema {path} is no JSON: {error}") from None
