"""The command line: `treadle COMMAND`. `main` finds the command in the table and gives it its words.

A command's module is imported when the command is used. Commands for people are click commands (`user_commands`).
Servers are started by other programs and must start quickly, so they load neither click nor rich: their module has
argparse's `add_arguments` and a `run`, which `server_command` calls.

Each command group is a subpackage: `exec`, `chat`, `threads`, `run` (agent programs), `setup` (keys, settings, models),
`checkup` (the doctor); `turn` renders a turn on a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from treadle.cli.streams import OutputFailed, failed, finish, prepare
from treadle.internal_names import internal_name


class CommandEntry(NamedTuple):
    """A command: the module that has it, one line that says what it does, and its name in the module."""

    module: str
    summary: str
    attribute: str = "command"


USE: Final = {
    "exec": CommandEntry("treadle.cli.exec.exec_command", "run one turn here and show what happens"),
    "chat": CommandEntry("treadle.cli.chat.chat_command", "talk with the agent in the terminal"),
    "resume": CommandEntry(
        "treadle.cli.chat.chat_command", "go on in a thread in the terminal, by its id or name", "resume"
    ),
    "fork": CommandEntry("treadle.cli.chat.chat_command", "go on in a copy of a thread in the terminal", "fork"),
    "review": CommandEntry("treadle.cli.exec.exec_command", "have changes of the project reviewed", "review"),
    "queue": CommandEntry(
        "treadle.cli.queue_command", "leave a message for a thread, which gets it with its next turn"
    ),
    "threads": CommandEntry(
        "treadle.cli.threads.threads_command", "list, show, search, export, archive and delete conversations"
    ),
    "run": CommandEntry(
        "treadle.cli.run.run_command", "run any agent program once: codex, claude, opencode, pi or our own"
    ),
    "engines": CommandEntry(
        "treadle.cli.run.engines", "show which agent programs are installed, their versions and logins"
    ),
    "projects": CommandEntry(
        "treadle.cli.run.projects_command", "list, add and remove projects: folders with short names"
    ),
    "models": CommandEntry(
        "treadle.cli.setup.provider_status", "list the models of a provider, with context size and price", "models"
    ),
}
SERVE: Final = {
    "app-server": CommandEntry(
        "treadle.cli.app_server", "store threads and run turns for clients, in the protocol of codex"
    ),
    "exec-server": CommandEntry("treadle.cli.exec_server", "run commands for clients, here or on other machines"),
    "mcp-server": CommandEntry("treadle.cli.mcp_program", "run agents for MCP clients, as tools for a model"),
}
LOOK_AFTER: Final = {
    "login": CommandEntry(
        "treadle.cli.setup.login_command", "store the key of a provider, or show which providers have one", "login"
    ),
    "logout": CommandEntry("treadle.cli.setup.login_command", "forget the key of a provider", "logout"),
    "config": CommandEntry("treadle.cli.setup.config_command", "make, show, change and check config.toml"),
    "mcp": CommandEntry("treadle.cli.setup.mcp_command", "list, show, add and remove MCP servers"),
    "environments": CommandEntry(
        "treadle.cli.setup.environments_command", "list, add, try and remove machines that threads can work on"
    ),
    "skills": CommandEntry("treadle.cli.setup.skills_command", "list, make and check skills, turn them on and off"),
    "hooks": CommandEntry("treadle.cli.setup.hooks_command", "list, trust and try the hooks of a project and your own"),
    "store": CommandEntry(
        "treadle.cli.setup.store_command", "back up the threads, delete old ones, free space on the disk"
    ),
    "doctor": CommandEntry("treadle.cli.checkup.doctor", "try out Treadle and every installed agent program, offline"),
    "completion": CommandEntry("treadle.cli.completion", "print what makes a shell complete the words of `treadle`"),
    "version": CommandEntry("treadle.cli.user_commands", "say which version this is, and of which protocol", "version"),
}

SECTIONS: Final = {"use": USE, "serve": SERVE, "look after": LOOK_AFTER}
COMMANDS: Final = USE | SERVE | LOOK_AFTER

_OPTIONS_BEFORE: Final = frozenset(
    [
        *("-c", "--config", "-m", "--model", "-s", "--sandbox", "-C", "--cd", "-p", "--profile", "-i", "--image"),
        *("-a", "--ask-for-approval", "--approval", "--add-dir", "--enable", "--disable", "--local-provider"),
    ]
)
_FLAGS_BEFORE: Final = frozenset(
    ["--oss", "--dangerously-bypass-approvals-and-sandbox", "--yolo", "--strict-config", "--debug"]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `treadle` script; returns the exit code."""
    prepare()
    words = _command_first(list(sys.argv[1:] if argv is None else argv))
    try:
        # Only what is needed: a server must not pay for what commands for people are made of.
        if words and words[0] in SERVE:
            from treadle.cli.server_command import run_server

            return finish(run_server(words[0], words[1:]))
        from treadle.cli.user_commands import run_command

        return finish(run_command(words))
    except SystemExit as end:  # argparse, after its help or its complaint; click, after a completion
        return finish(end.code if isinstance(end.code, int) else 0)
    except OutputFailed as error:
        return failed(error)


def _command_first(words: list[str]) -> list[str]:
    """The words with the command before its options: SDKs, and callers of Codex, give options before the command. The
    command knows which of them it takes.

    Words without a command are said in a chat, as with Codex, if they cannot be a mistyped command: because there is
    a space in them, or because `--` stands before them.
    """
    place = 0
    while place < len(words) and words[place].startswith("-"):
        name, value, _ = words[place].partition("=")
        if name in _FLAGS_BEFORE or (name in _OPTIONS_BEFORE and value):
            place += 1
        elif name in _OPTIONS_BEFORE and place + 1 < len(words):
            place += 2
        else:
            break
    if place < len(words) and words[place] in COMMANDS:
        return [words[place], *words[:place], *words[place + 1 :]]
    if place < len(words) and (words[place] == "--" or (words[place][0:1] != "-" and len(words[place].split()) > 1)):
        return ["chat", *words]
    return words


def __getattr__(name: str) -> object:
    return internal_name(__name__, name)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.cli.chat.chat_input import ChatCompleter, Entered, MAX_ENTRIES, MAX_ENTRY_BYTES, MessageHistory
    from treadle.cli.chat.chat_input import SLASH_COMMANDS, UnknownCommand, mention, message_of, parse_command
    from treadle.cli.chat.chat_input import prompt_arguments, prompt_commands, unfinished_mention
    from treadle.cli.chat.chat_session import ChatMessage, ChatSession, MAX_WAITING, ThreadOptions, UserAnswer
    from treadle.cli.chat.chat_thread import ChatThread, sandbox_words, status_line
    from treadle.cli.chat.chat_view import ServerQuestions
    from treadle.cli.chat.desktop import Attention, QUIET_S, copy
    from treadle.cli.chat.git_changes import GitChanges
    from treadle.cli.chat.picker import Choice, MAX_CHOICES, PickList, Picker, threads_to_pick
    from treadle.cli.chat.screen import CLOSED, ChatScreen, KeyQuestion, Option
    from treadle.cli.chat.slash_actions import IMPLEMENT, MAX_LISTED, SlashActions
    from treadle.cli.chat.terminal_output import painted
    from treadle.cli.checkup.checks import Check, check_database, check_home, check_python
    from treadle.cli.checkup.doctor import PlainReport, check_lines, styled_check
    from treadle.cli.checkup.trials import check_sandbox
    from treadle.cli.early_initialize import answer_initialize
    from treadle.cli.exec.exec_arguments import ExecArguments, ExecRequest, exec_command, exec_request, more_roots
    from treadle.cli.exec.exec_arguments import overrides, warnings
    from treadle.cli.exec.exec_events import ExecEvents, JsonLines
    from treadle.cli.in_process import server_of
    from treadle.cli.mcp_events import approval_elicitation, decision_of, form_answers, form_elicitation
    from treadle.cli.mcp_sessions import McpSessions
    from treadle.cli.mcp_threads import ThreadTools
    from treadle.cli.own_process import STOP, stop_signals
    from treadle.cli.problem import Problem, problem_of
    from treadle.cli.run.engines import engine_row, rich_lines
    from treadle.cli.run.run_plan import PlanError, RunArguments, RunPlan, read_plan, read_resume, runner_of
    from treadle.cli.run.run_view import LineView, RUNNING_LINES, RunRenderer, advice, failure_reason, stderr_lines
    from treadle.cli.run.run_view import usage
    from treadle.cli.server_command import listener_token, server_parser
    from treadle.cli.setup.config_init import InitialSettings, config_text
    from treadle.cli.setup.provider_status import models_table
    from treadle.cli.streams import OutputFailed
    from treadle.cli.terminal import Colors, file_address, make_console
    from treadle.cli.thread_choice import all_threads, find_threads, newest_threads, several_meant, thread_to_resume
    from treadle.cli.threads.markdown_page import MarkdownPage, embedded, fenced, quoted, span
    from treadle.cli.threads.page_output import export_file, page_pieces
    from treadle.cli.threads.text_page import TextPage, markdown_for
    from treadle.cli.threads.thread_library import Redaction, ThreadLibrary, redaction_for
    from treadle.cli.threads.thread_list import Hit, Row, as_json, hits_in_lines, plain_snippet, tab_lines, table
    from treadle.cli.turn.approval_question import Question, approval_question
    from treadle.cli.turn.live_turn import TerminalApprover
    from treadle.cli.turn.output_view import OutputLines
    from treadle.cli.turn.plain_turn import PlainTurn
    from treadle.cli.turn.rich_blocks import diff_rows, drawn_change, file_text, finished_part, markdown, note, signed
    from treadle.cli.turn.turn_header import TurnHeader
    from treadle.cli.turn.turn_renderer import FAILED_TAIL, TurnRenderer
    from treadle.cli.turn_input import PromptError, read_prompt
    from treadle.cli.user_commands import ROOT, UserCommand, run_command, user_command
