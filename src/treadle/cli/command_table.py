"""The commands of `treadle`, as data: one line each. A command's module is imported when the command is used.

People's commands are click commands: their module has a `command`. Servers are started by other programs and must start
quickly, so their module has argparse's `add_arguments` and a `run`, and loads neither click nor rich.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Entry(NamedTuple):
    module: str
    summary: str


USE: Final = {
    "exec": Entry("treadle.cli.exec.exec_command", "run one turn here and show what happens"),
    "chat": Entry("treadle.cli.chat.chat_command", "talk with the agent in the terminal"),
    "threads": Entry(
        "treadle.cli.threads.threads_command", "list, show, search, export, archive and delete conversations"
    ),
    "run": Entry("treadle.cli.run.run_command", "run any agent program once: codex, claude, opencode, pi or our own"),
    "engines": Entry("treadle.cli.run.engines", "show which agent programs are installed, their versions and logins"),
    "models": Entry("treadle.cli.setup.list_models", "list the models of a provider, with context size and price"),
}
SERVE: Final = {
    "app-server": Entry("treadle.cli.app_server", "keep threads and run turns for clients, in the protocol of codex"),
    "exec-server": Entry("treadle.cli.exec_server", "run commands for clients, here or on other machines"),
}
LOOK_AFTER: Final = {
    "login": Entry("treadle.cli.setup.login_command", "keep the key of a provider, or show which providers have one"),
    "logout": Entry("treadle.cli.setup.logout", "forget the key of a provider"),
    "config": Entry("treadle.cli.setup.config_command", "make, show, change and check config.toml"),
    "doctor": Entry("treadle.cli.checkup.doctor", "try out Treadle and every installed agent program, offline"),
    "completion": Entry("treadle.cli.completion", "print what makes a shell complete the words of `treadle`"),
    "version": Entry("treadle.cli.version", "say which version this is, and of which protocol"),
}

SECTIONS: Final = {"use": USE, "serve": SERVE, "look after": LOOK_AFTER}
COMMANDS: Final = USE | SERVE | LOOK_AFTER
