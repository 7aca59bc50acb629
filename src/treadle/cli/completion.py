"""`treadle completion`, and what shells offer: threads by their ids, profiles, models and projects.

Nothing is sent anywhere and nothing is made by pressing a key. What cannot be read is not offered: a shell has no place
for a complaint.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, get_completion_class

from treadle.cli.problem import Problem
from treadle.cli.streams import REFUSED, write
from treadle.cli.user_commands import ROOT, user_command
from treadle.errors import TreadleError
from treadle.pages.safe_text import printable_line

SHELLS: Final = ("bash", "zsh", "fish")
# Threads that a shell offers where one is to be typed.
OFFERED: Final = 20
_HELP: Final = """\
Load it from the file that your shell reads at its start:
  bash   echo 'eval "$(treadle completion bash)"' >> ~/.bashrc
  zsh    echo 'eval "$(treadle completion zsh)"' >> ~/.zshrc
  fish   treadle completion fish > ~/.config/fish/completions/treadle.fish"""


@user_command(
    "completion",
    config=False,
    more=_HELP,
    examples=('eval "$(treadle completion bash)"', "treadle completion fish"),
)
@click.argument("shell", required=False, type=click.Choice(SHELLS))
def command(shell: str | None) -> int:
    chosen = shell or os.path.basename(os.environ.get("SHELL", ""))
    if chosen not in SHELLS:
        raise Problem(
            "which shell?",
            why=f"$SHELL is {chosen or 'empty'}, which is none of {', '.join(SHELLS)}",
            do="treadle completion bash",
            code=REFUSED,
        )
    add_completion_class(_Bash)
    found = get_completion_class(chosen)
    assert found is not None, "click knows these three"
    write(sys.stdout, found(ROOT, {}, "treadle", "_TREADLE_COMPLETE").source() + "\n")
    return 0


class _Bash(BashComplete):
    """Bash breaks words at colons, which names of models have: they are put together again, and of what is offered the
    part goes that bash takes for a word before."""

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' words=() response completion type value before='' i
    for ((i = 0; i <= COMP_CWORD; i++)); do
        if ((i > 0)) && [[ ${COMP_WORDS[i]} == :* || ${words[-1]} == *: ]]; then
            words[-1]+=${COMP_WORDS[i]}
        else
            words+=("${COMP_WORDS[i]}")
        fi
    done
    [[ ${words[-1]} == *:* && $COMP_WORDBREAKS == *:* ]] && before=${words[-1]%%:*}:
    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) %(complete_var)s=bash_complete $1)
    for completion in $response; do
        IFS=',' read type value <<< "$completion"
        if [[ $type == dir ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == file ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == plain ]]; then
            COMPREPLY+=("${value#"$before"}")
        fi
    done
}

complete -o nosort -F %(complete_func)s %(prog_name)s"""


# --- what is offered -------------------------------------------------------------------------------------------------


def completing(words: Callable[[], Sequence[str]]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Make a function for `shell_complete` of one that gives words: it offers those that begin with what was typed."""

    def complete(ctx: click.Context, param: click.Parameter, typed: str) -> list[str]:
        try:
            return [word for word in words() if word.startswith(typed)]
        except (TreadleError, OSError):
            return []

    return complete


def complete_threads(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """The newest threads with their titles, by short ids."""
    # Only for this: a server is loaded, in this process.
    from treadle.cli.thread_choice import SHORT, short_id
    from treadle.cli.threads.thread_library import open_library
    from treadle.config import find_home
    from treadle.pages.page import title_of
    from treadle.protocol.app.threads import Thread

    async def newest() -> list[Thread]:
        async with open_library() as library:
            return await library.newest(OFFERED, archived=ctx.command.name == "unarchive")

    try:
        threads = asyncio.run(newest()) if find_home(os.environ).is_dir() else []
    except (TreadleError, OSError):
        return []
    # Short ids, and to go on with the beginning of an id, whole ones: a shell takes only what begins as was typed.
    words = [(each, thread) for thread in threads for each in (short_id(thread.id), thread.id)]
    typed = typed.lower()
    return [
        CompletionItem(word, help=printable_line(title_of(thread)))
        for word, thread in words
        if word.startswith(typed) and (typed or len(word) == SHORT)
    ]


def complete_words(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """What may stand first in place of a prompt, and behind it a thread."""
    given: Sequence[str] = ctx.params.get(param.name or "") or ()
    if len(given) == 1 and given[0] in ("resume", "fork"):
        return complete_threads(ctx, param, typed)
    words = () if given else ("resume", "fork", "review") if ctx.command.name == "exec" else ("resume", "fork")
    return [CompletionItem(word) for word in words if word.startswith(typed)]


@completing
def complete_profiles() -> list[str]:
    from treadle.config import find_home  # only for this
    from treadle.config.home_files import read_document

    profiles = read_document(find_home(os.environ)).values.get("profiles")
    return sorted(profiles) if isinstance(profiles, dict) else []


@completing
def complete_models() -> list[str]:
    from treadle.config import find_home, load_config  # only for this
    from treadle.config.model_catalogue import models

    config = load_config(find_home(os.environ)).config
    return [*dict.fromkeys([*(model.id for model in models(config) if not model.hidden), *config.models])]


@completing
def complete_environments() -> list[str]:
    from treadle.config import find_home, load_config  # only for this

    environments = load_config(find_home(os.environ)).config.environments
    return [] if environments is None else sorted(environments.known)


@completing
def complete_projects() -> list[str]:
    from treadle.runners.projects import Projects  # only for this

    return [project.alias for project in Projects().list()]
