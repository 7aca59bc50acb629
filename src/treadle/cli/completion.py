"""`treadle completion`: the script with which a shell completes commands, options, thread ids and engines."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from treadle.cli.exit_codes import REFUSED
from treadle.cli.people import ROOT
from treadle.cli.people import command as people_command
from treadle.cli.problem import Problem
from treadle.cli.streams import write

SHELLS: Final = ("bash", "zsh", "fish")
_MORE: Final = """\
Load it from the file that your shell reads at its start:
  bash   echo 'eval "$(treadle completion bash)"' >> ~/.bashrc
  zsh    echo 'eval "$(treadle completion zsh)"' >> ~/.zshrc
  fish   treadle completion fish > ~/.config/fish/completions/treadle.fish"""


@people_command(
    "completion", config=False, more=_MORE, examples=('eval "$(treadle completion bash)"', "treadle completion fish")
)
@click.argument("shell", required=False, type=click.Choice(SHELLS))
def command(shell: str | None) -> int:
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if chosen not in SHELLS:
        raise Problem(
            "which shell?",
            why=f"$SHELL is {chosen or 'empty'}, which is none of {', '.join(SHELLS)}",
            do="treadle completion bash",
            code=REFUSED,
        )
    found = get_completion_class(chosen)
    assert found is not None, "click knows these three"
    write(sys.stdout, found(ROOT, {}, "treadle", "_TREADLE_COMPLETE").source() + "\n")
    return 0
