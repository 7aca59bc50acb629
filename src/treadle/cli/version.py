"""`treadle version`, and the line of `treadle --version`."""

from __future__ import annotations

import platform
import sys
from typing import Final

import click
import msgspec

from treadle._version import PROTOCOL_VERSION, __version__
from treadle.cli.people import command as people_command
from treadle.cli.streams import write

# Clients of codex take the first number for its version, so ours comes second.
VERSION_LINE: Final = f"codex-cli {PROTOCOL_VERSION} (treadle {__version__}, which speaks its protocol)"


@people_command("version", config=False, examples=("treadle version", "treadle version --json"))
@click.option("--json", "as_json", is_flag=True, help="as one JSON object")
def command(as_json: bool) -> int:
    facts = {"treadle": __version__, "protocol": f"codex {PROTOCOL_VERSION}", "python": platform.python_version()}
    if as_json:
        write(sys.stdout, msgspec.json.encode(facts).decode() + "\n")
    else:
        write(sys.stdout, "".join(f"{name:9} {fact}\n" for name, fact in facts.items()))
    return 0
