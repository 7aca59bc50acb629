"""Write the generated parts of `docs/command-line.md`: each command, its options and exit codes.

python -m scripts.make_command_line            # write them
python -m scripts.make_command_line --check    # say whether they are up to date
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Final

import click
from scripts.page_parts import REPOSITORY, main

from treadle.cli import SECTIONS, SERVE
from treadle.cli.server_command import server_parser
from treadle.cli.user_commands import ROOT, Shortcut

TARGET: Final = REPOSITORY / "docs" / "command-line.md"
# Every command has them; the page says so once.
EVERYWHERE: Final = frozenset({"--help", "--debug"})


def parts() -> dict[str, str]:
    """What is generated, by the name of its place on the page."""
    found = {"overview": _overview()}
    for section in SECTIONS:
        found[section.replace(" ", "-")] = "\n\n".join(part for part in _section(section) if part)
    return found


def command_paths() -> Iterator[tuple[str, click.Command, click.Context]]:
    """All commands, those of groups included, by what people type."""
    root = click.Context(ROOT, info_name="treadle")
    for section in SECTIONS.values():
        for name in section:
            found = ROOT.get_command(root, name)
            assert found is not None
            yield from _with_its_own(found, click.Context(found, info_name=name, parent=root))


def _with_its_own(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    yield ctx.command_path, command, ctx
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            own = command.get_command(ctx, name)
            assert own is not None
            yield from _with_its_own(own, click.Context(own, info_name=name, parent=ctx))


def _overview() -> str:
    rows = [
        f"| {section} | [`treadle {name}`](#treadle-{name}) | {_cell(entry.summary)} |"
        for section, entries in SECTIONS.items()
        for name, entry in entries.items()
    ]
    return "\n".join(["| | command | |", "|---|---|---|", *rows])


def _section(section: str) -> Iterator[str]:
    for path, command, ctx in command_paths():
        if path.split()[1] in SECTIONS[section]:
            yield f"#{'#' * len(path.split())} {path}"
            usage = re.sub(r"\s+", " ", command.get_usage(ctx).removeprefix("Usage: "))
            yield f"`{usage}`\n\n{command.help}"
            yield from _paragraphs(getattr(command, "more", ""))
            name = ctx.info_name or ""
            if not isinstance(command, Shortcut):  # it has the options of another
                yield _table("option", list(_server_rows(name) if name in SERVE else _rows(command, ctx)))
            codes = getattr(command, "exit_codes", {})
            yield _table("exit code", [f"| {code} | {_cell(meaning)} |" for code, meaning in codes.items()])


def _paragraphs(more: str) -> Iterator[str]:
    for paragraph in more.split("\n\n"):
        if "\n " in paragraph:  # a list, as its author wrote it
            yield f"```text\n{paragraph}\n```"
        elif paragraph:
            yield " ".join(paragraph.split())


def _table(head: str, rows: list[str]) -> str:
    return "\n".join([f"| {head} | |", "|---|---|", *rows]) if rows else ""


def _server_rows(name: str) -> Iterator[str]:
    parser = server_parser(name)
    formatter = parser._get_formatter()
    for action in parser._actions:
        if action.help != argparse.SUPPRESS and not EVERYWHERE & set(action.option_strings):
            value = f" {action.metavar}" if action.metavar else ""
            words = ", ".join(f"`{word}`" for word in action.choices or ())
            text = formatter._expand_help(action) + (f": {words}" if words else "")
            yield f"| `{', '.join(action.option_strings)}{value}` | {_cell(text)} |"


def _rows(command: click.Command, ctx: click.Context) -> Iterator[str]:
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is None or not record[1] or EVERYWHERE & set(param.opts):
            continue
        names, text = record
        if isinstance(param.type, click.Choice):
            names = names.partition(" [")[0]
            # A metavar leaves out what is only taken for the sake of others.
            choices = param.metavar.strip("[]").split("|") if param.metavar else param.type.choices
            words = ", ".join(f"`{word}`" for word in choices)
            text = f"{text.partition('  [default')[0]}: {words}"
        yield f"| `{names}` | {_cell(text)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    raise SystemExit(main(TARGET, parts()))
