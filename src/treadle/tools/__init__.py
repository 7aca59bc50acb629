"""What tools are made of, without threads: command sessions, the patch language, images, specifications, arguments.

The tools themselves are in `treadle.agent.tools`. Nothing is loaded before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.internal_names import internal_name


def __getattr__(name: str) -> object:
    return internal_name(__name__, name)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.tools.command.command_actions import command_actions
    from treadle.tools.command.command_output import CommandReport, HeadTail, Taken, first_bytes, last_bytes
    from treadle.tools.command.command_output import new_chunk_id, report_text, tokens
    from treadle.tools.command.command_sessions import CommandSession, CommandSessions, CommandSpec, MAX_AGGREGATED
    from treadle.tools.command.command_sessions import MAX_DELTA, MAX_DELTA_BYTES
    from treadle.tools.command.command_shell import asked, shell_argv, shown
    from treadle.tools.command.safety import commands_in, is_known_safe
    from treadle.tools.patch.grammar import Kind, parse
    from treadle.tools.patch.planner import unified
    from treadle.tools.specs import ToolInputError, WEB_TOOLS, built_in_names, dynamic_spec, function_spec
    from treadle.tools.specs import parse_arguments
    from treadle.tools.view_image import LoadedImage, MAX_IMAGE_BYTES, load_image
    from treadle.tools.web.pages import KnownRobots, WebClient, WebFailure, WebPage, read_address
    from treadle.tools.web.readable import MAX_HTML, decoded, plain, readable, untrusted
    from treadle.tools.web.robots import read_robots
    from treadle.tools.web.search import is_within, read_results, results_text, search_url
