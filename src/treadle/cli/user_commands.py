"""Commands for people: click commands with the options, the help and the errors that all of them share.

`ROOT` is `treadle` itself. It finds its commands in the table and imports one when it is used. The smallest,
`treadle version`, is here too.
"""

from __future__ import annotations

import difflib
import shlex
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from importlib import import_module
from typing import Any, Final

import click

from treadle._version import PROTOCOL_VERSION, __version__
from treadle.cli import COMMANDS, SECTIONS, SERVE
from treadle.cli.problem import Problem, report
from treadle.cli.streams import INTERRUPTED, REFUSED, write, write_stderr
from treadle.cli.terminal import is_terminal
from treadle.errors import needs_linux

# Clients of codex take the first number for its version, so ours comes second.
VERSION_LINE: Final = f"codex-cli {PROTOCOL_VERSION} (treadle {__version__}, which speaks its protocol)"
# Wide enough for a line of prose, whatever the terminal has.
_WIDTH: Final = 100
_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": _WIDTH}


class UserCommand(click.Command):
    """A command whose help ends with its exit codes and examples, and whose callback returns the exit code."""

    def __init__(
        self,
        name: str | None,
        *,
        more: str = "",
        exit_codes: Mapping[int, str] | None = None,
        examples: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(name, **{"context_settings": _SETTINGS, **kwargs})
        self.more = more
        self.exit_codes: dict[int, str] = dict(exit_codes or {})
        self.examples: tuple[str, ...] = tuple(examples)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """An option that was given without its value must not take the next option for it."""
        rest = super().parse_args(ctx, args)
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        names = {name for option in options for name in option.opts}
        for option in options:
            given = ctx.params.get(option.name or "")
            for value in given if isinstance(given, tuple) else (given,):
                if value in names or (isinstance(value, str) and value.startswith("--")):
                    name = option.opts[0]
                    raise click.BadOptionUsage(name, f"{name} needs a value, and {value} is an option", ctx)
        return rest

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        def wanted(ctx: click.Context, param: click.Parameter, value: bool) -> None:
            if value and not ctx.resilient_parsing:
                _write_help(ctx)
                ctx.exit()

        option = super().get_help_option(ctx)
        if option is not None:
            option.help = "show this and exit"
            option.callback = wanted
        return option

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        for paragraph in self.more.split("\n\n"):
            if "\n " in paragraph:  # a list, as its author wrote it
                formatter.write(f"\n{textwrap.indent(paragraph, '  ')}\n")
            elif paragraph:
                text = textwrap.fill(paragraph, formatter.width - 2, initial_indent="  ", subsequent_indent="  ")
                formatter.write(f"\n{text}\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        codes = "\n".join(f"{code:<4} {meaning}" for code, meaning in self.exit_codes.items())
        for title, text in (("Exit codes", codes), ("Examples", "\n".join(self.examples))):
            if text:
                formatter.write(f"\n{title}:\n{textwrap.indent(text, '  ')}\n")


class Shortcut(UserCommand):
    """A command of its own name for `COMMAND WORD …`: what is typed behind it, stands behind that word.

    Args:
        name: What people type.
        target: The command.
        word: Its first word.
        metavar: What may follow.
        examples: Lines that can be copied.
    """

    def __init__(self, name: str, target: UserCommand, word: str, metavar: str, examples: Sequence[str]) -> None:
        [words] = [param for param in target.params if isinstance(param, click.Argument)]
        argument = copy(words)
        argument.metavar = metavar
        options = [param for param in target.params if param is not words]
        summary = COMMANDS[name].summary
        super().__init__(
            name,
            params=[argument, *options],
            callback=target.callback,
            help=_sentence(summary),
            short_help=summary,
            more=f"The same as `treadle {target.name} {word}`.",
            exit_codes=target.exit_codes,
            examples=examples,
        )
        self.target = target
        self.word = word

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return self.target.parse_args(ctx, [self.word, *args])


class UserGroup(UserCommand, click.Group):
    """A command with commands of its own, such as `treadle threads`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if self.get_command(ctx, word) is None and not word.startswith("-"):
            known = self.list_commands(ctx)
            near = difflib.get_close_matches(word, known, n=1)
            do = f"{ctx.command_path} {near[0]}" if near else f"{ctx.command_path} --help"
            if ctx.command is ROOT:
                do += f"; or treadle -- {shlex.quote(word)}, if it is what you want to say to the agent"
            why = f"the commands are {', '.join(known)}"
            raise Problem(f"there is no command {word!r}", why=why, do=do, code=REFUSED)
        return super().resolve_command(ctx, args)


def user_command(
    name: str,
    *,
    summary: str | None = None,
    more: str = "",
    exit_codes: Mapping[int, str] | None = None,
    examples: Sequence[str] = (),
    config: bool = True,
    kind: type[UserCommand] = UserCommand,
) -> Callable[[Callable[..., int]], UserCommand]:
    """Make a command of a function that returns the exit code.

    Args:
        name: The word that people type.
        summary: One line that says what it does. A command of the table has it there.
        more: What else to know, shown verbatim.
        exit_codes: Each code and what it means.
        examples: Lines that can be copied.
        config: Whether it takes `-c KEY=VALUE`, given to the function as `config_overrides`.
        kind: The class of the command.
    """

    def make(function: Callable[..., int]) -> UserCommand:
        described = _sentence(COMMANDS[name].summary if summary is None else summary)
        made = click.command(
            name,
            cls=kind,
            help=described,
            short_help=summary,
            more=more,
            exit_codes=exit_codes,
            examples=examples,
        )(function)
        if config:
            made.params.append(
                click.Option(
                    ["-c", "--config", "config_overrides"],
                    metavar="KEY=VALUE",
                    multiple=True,
                    help="a setting that goes before those of config.toml; may be given again",
                )
            )
        made.params.append(_debug_option())
        return made

    return make


def _debug_option() -> click.Option:
    return click.Option(["--debug"], is_flag=True, expose_value=False, help="show the traceback of an error")


color_option: Final = click.option(
    "--color",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    show_default=True,
    help="colours; auto is on a terminal, unless NO_COLOR is set",
)


def user_group(name: str, *, more: str = "", examples: Sequence[str] = ()) -> Callable[[Callable[..., Any]], UserGroup]:
    """Make a command of the table that has commands of its own. Add them with `add_command`."""
    described = _sentence(COMMANDS[name].summary)
    return click.group(name, cls=UserGroup, help=described, more=more, examples=examples)


def run_command(words: Sequence[str]) -> int:
    """Run what was typed; gives the exit code. The one place where an error of a command is written."""
    own = list(words)[: list(words).index("--") if "--" in words else len(words)]
    name = own[0] if own and own[0] in COMMANDS else None
    try:
        code = ROOT.main(args=list(words), prog_name="treadle", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as asked:  # a group without a command: its help is the answer
        write_stderr(asked.format_message())
        return REFUSED
    except click.Abort:  # Ctrl-C, or the end of standard input at a question
        return INTERRUPTED
    except Exception as error:
        return report(name, _of_click(error), debug="--debug" in own, words=own)
    return code if isinstance(code, int) else 0


# --- treadle itself ---


class _Root(UserGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in SERVE:
            return _Server(cmd_name)
        if cmd_name not in COMMANDS:
            return None
        entry = COMMANDS[cmd_name]
        try:
            found = getattr(import_module(entry.module), entry.attribute)
        except (ImportError, AttributeError):
            if (missing := needs_linux(f"treadle {cmd_name}")) is None:
                raise
            raise Problem(missing, code=REFUSED) from None
        assert isinstance(found, click.Command)
        return found

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # From the table: no command is imported to be listed.
        formatter.write("Run coding agents from Python: on your own models, with your own clients, on any machine.\n\n")
        formatter.write("Usage: treadle COMMAND [OPTIONS]\n")
        width = max(map(len, COMMANDS))
        for title, entries in SECTIONS.items():
            formatter.write(f"\n{click.style(title, bold=True)}\n")
            for name, entry in entries.items():
                formatter.write(f"  {name:{width}}  {entry.summary}\n")
        formatter.write('\n`treadle COMMAND --help` tells more. First time here? `treadle exec "look around"`\n')


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        write(sys.stdout, f"{VERSION_LINE}\n")
        ctx.exit()


@click.pass_context
def _without_a_command(ctx: click.Context) -> int:
    if ctx.invoked_subcommand is None:
        _write_help(ctx)
        ctx.exit(REFUSED)
    return 0


ROOT: Final = _Root(
    "treadle",
    callback=_without_a_command,
    invoke_without_command=True,
    params=[
        click.Option(
            ["-V", "--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="say which version this is",
        ),
        _debug_option(),
    ],
)


class _Server(click.Command):
    """A server as click sees it, to complete and to describe its options. Its words are read by its own parser."""

    def __init__(self, name: str) -> None:
        from treadle.cli.server_command import server_parser  # a completion may want it

        options: list[click.Parameter] = [
            click.Option(
                [*action.option_strings, action.dest],
                help=action.help,
                is_flag=action.nargs == 0,
                type=click.Choice([str(choice) for choice in action.choices]) if action.choices else None,
            )
            for action in server_parser(name)._actions
            if action.option_strings and "--help" not in action.option_strings
        ]
        super().__init__(name, params=options, help=_sentence(SERVE[name].summary), context_settings=_SETTINGS)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.args = list(args)
        return ctx.args

    def invoke(self, ctx: click.Context) -> int:
        from treadle.cli.server_command import run_server  # `main` runs servers without click

        assert self.name is not None
        return run_server(self.name, ctx.args)


def _of_click(error: Exception) -> Exception:
    """A complaint of click about the words as a `Problem`; any other error as it is."""
    if not isinstance(error, click.ClickException):
        return error
    ctx = getattr(error, "ctx", None)
    path = "treadle" if ctx is None else ctx.command_path
    do = f"{path} --help"
    if isinstance(error, click.NoSuchOption):
        near = difflib.get_close_matches(error.option_name, error.possibilities or (), n=1)
        do = f"did you mean {near[0]}? `{do}` lists the options" if near else f"`{do}` lists the options"
        return Problem(f"there is no option {error.option_name}", why=f"{path} does not know it", do=do, code=REFUSED)
    message = error.format_message().rstrip(".")
    message = f"{message[:1].lower()}{message[1:]}"
    if isinstance(error, click.BadParameter) and error.param is not None and error.message:
        named = error.param.opts[-1] if isinstance(error.param, click.Option) else f"the {error.param.name}"
        return Problem(f"{named} cannot be used as it is given", why=error.message.rstrip("."), do=do, code=REFUSED)
    usage = None if ctx is None else ctx.get_usage()
    return Problem(message, why=usage, do=do, code=REFUSED)


def _write_help(ctx: click.Context) -> None:
    """Write the help as all output is written: click would end with 1, as after a failure, when the reader has
    gone."""
    text = ctx.get_help()
    write(sys.stdout, f"{text if is_terminal(sys.stdout) else click.unstyle(text)}\n")


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


# --- treadle version ---


@user_command("version", config=False, examples=("treadle version", "treadle version --json"))
@click.option("--json", "as_json", is_flag=True, help="as one JSON object")
def version(as_json: bool) -> int:
    # No other command needs them here.
    import platform

    import msgspec

    facts = {"treadle": __version__, "protocol": f"codex {PROTOCOL_VERSION}", "python": platform.python_version()}
    if as_json:
        write(sys.stdout, msgspec.json.encode(facts).decode() + "\n")
    else:
        write(sys.stdout, "".join(f"{name:9} {fact}\n" for name, fact in facts.items()))
    return 0
