"""What people's commands are made of: click commands with the options, the help and the errors that all of them share.

`ROOT` is `treadle` itself. It knows its commands by the table and imports one when it is used.
"""

from __future__ import annotations

import difflib
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import click

from treadle.cli.command_table import COMMANDS, SECTIONS, SERVE
from treadle.cli.exit_codes import INTERRUPTED, REFUSED
from treadle.cli.problem import Problem, report
from treadle.cli.streams import write, write_stderr

# Wide enough for a line of prose, whatever the terminal has.
_WIDTH: Final = 100
_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": _WIDTH}


class PeopleCommand(click.Command):
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

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        return _help_option(super().get_help_option(ctx))

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

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        _write_more(self.more, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        codes = "\n".join(f"{code:<4} {meaning}" for code, meaning in self.exit_codes.items())
        for title, text in (("Exit codes", codes), ("Examples", "\n".join(self.examples))):
            if text:
                formatter.write(f"\n{title}:\n{_indented(text)}\n")


class PeopleGroup(click.Group):
    """A command with commands of its own, such as `treadle threads`."""

    def __init__(self, name: str | None, *, more: str = "", examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(name, **{"context_settings": _SETTINGS, **kwargs})
        self.more = more
        self.examples: tuple[str, ...] = tuple(examples)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        return _help_option(super().get_help_option(ctx))

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        _write_more(self.more, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            lines = "\n".join(self.examples)
            formatter.write(f"\nExamples:\n{_indented(lines)}\n")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            raise _unknown(args[0], self.list_commands(ctx), ctx.command_path)
        return super().resolve_command(ctx, args)


def command(
    name: str,
    *,
    summary: str | None = None,
    more: str = "",
    exit_codes: Mapping[int, str] | None = None,
    examples: Sequence[str] = (),
    config: bool = True,
    kind: type[PeopleCommand] = PeopleCommand,
) -> Callable[[Callable[..., int]], PeopleCommand]:
    """Makes a command of a function that returns the exit code.

    Args:
        name: The word that people type.
        summary: One line that says what it does. A command of the table has it there.
        more: What else to know, shown verbatim.
        exit_codes: Each code and what it means.
        examples: Lines that can be copied.
        config: Whether it takes `-c KEY=VALUE`, given to the function as `config_overrides`.
    """

    def make(function: Callable[..., int]) -> PeopleCommand:
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
        made.params += _shared_options(config)
        return made

    return make


def completing(words: Callable[[], Sequence[str]]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """For `shell_complete`: those of the words that begin with what was typed."""
    return lambda ctx, param, typed: [word for word in words() if word.startswith(typed)]


color_option: Final = click.option(
    "--color",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    show_default=True,
    help="colours; auto is on a terminal, unless NO_COLOR is set",
)


def group(name: str, *, more: str = "", examples: Sequence[str] = ()) -> Callable[[Callable[..., Any]], PeopleGroup]:
    """Makes a command of the table that has commands of its own. Add them with `add_command`."""
    described = _sentence(COMMANDS[name].summary)
    return click.group(name, cls=PeopleGroup, help=described, more=more, examples=examples)


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


class _Root(PeopleGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in SERVE:
            return _server(cmd_name)
        if cmd_name not in COMMANDS:
            return None
        found = import_module(COMMANDS[cmd_name].module).command
        assert isinstance(found, click.Command)
        return found

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Said from the table: no command is imported to be listed.
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
        from treadle.cli.version import VERSION_LINE  # it is made of this module

        write(sys.stdout, f"{VERSION_LINE}\n")
        ctx.exit()


@click.pass_context
def _without_a_command(ctx: click.Context) -> int:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
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
        click.Option(["--debug"], is_flag=True, expose_value=False, help="show the traceback of an error"),
    ],
)


class _Server(click.Command):
    """A server as click sees it, to complete and to describe its options. Its words are read by its own parser."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.args = list(args)
        return ctx.args

    def invoke(self, ctx: click.Context) -> int:
        from treadle.cli.server_command import run_server  # `main` runs servers without click

        assert self.name is not None
        return run_server(self.name, ctx.args)


def _server(name: str) -> click.Command:
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
    described = _sentence(SERVE[name].summary)
    return _Server(name, params=options, help=described, context_settings=_SETTINGS)


# --- what commands share ---


def _shared_options(config: bool) -> list[click.Parameter]:
    debug = click.Option(["--debug"], is_flag=True, expose_value=False, help="show the traceback of an error")
    if not config:
        return [debug]
    setting = click.Option(
        ["-c", "--config", "config_overrides"],
        metavar="KEY=VALUE",
        multiple=True,
        help="a setting that goes before those of config.toml; may be given again",
    )
    return [setting, debug]


def _of_click(error: Exception) -> Exception:
    """What click says about the words, as a `Problem`."""
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


def _unknown(word: str, known: Sequence[str], path: str) -> Problem:
    near = difflib.get_close_matches(word, known, n=1)
    do = f"{path} {near[0]}" if near else f"{path} --help"
    return Problem(f"there is no command {word!r}", why=f"the commands are {', '.join(known)}", do=do, code=REFUSED)


def _write_more(more: str, formatter: click.HelpFormatter) -> None:
    for paragraph in more.split("\n\n"):
        if "\n " in paragraph:  # a list, as its author wrote it
            formatter.write(f"\n{_indented(paragraph)}\n")
        elif paragraph:
            text = textwrap.fill(paragraph, formatter.width - 2, initial_indent="  ", subsequent_indent="  ")
            formatter.write(f"\n{text}\n")


def _help_option(option: click.Option | None) -> click.Option | None:
    if option is not None:
        option.help = "show this and exit"
    return option


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())
