"""Write `treadle/client/calls.py` and `async_calls.py`: one method for each RPC of the app-server, from their records.

    python -m scripts.make_calls            # write both files
    python -m scripts.make_calls --check    # say whether they are up to date

Methods that the official SDK has too keep its names and parameters; they are in `SPECIAL`. The others take the struct
of their params, and are described by a line in `ABOUT`, else by the docstring of their handler.
"""

from __future__ import annotations

import inspect
import keyword
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import structs
from scripts.make_sync import formatted
from scripts.page_parts import write

import treadle
from treadle.protocol.app import METHODS
from treadle.protocol.app.base import NoParams
from treadle.server.routes import ROUTES

FOLDER: Final = Path(treadle.__file__).parent / "client"


class Special(NamedTuple):
    """`given` are the parameters, `sent` the expression for what is sent."""

    name: str
    given: str
    sent: str
    about: str


THREAD: Final = "thread_id: str"
ONLY_THREAD: Final = '{"threadId": thread_id}'

SPECIAL: Final[dict[str, Special]] = {
    "account/login/cancel": Special(
        "account_login_cancel", "login_id: str", '{"loginId": login_id}', "Cancel an interactive login."
    ),
    "account/login/start": Special(
        "account_login_start",
        "params: LoginAccountParams | JsonObject",
        "params",
        "Log in with a key, or begin an interactive login.",
    ),
    "account/logout": Special("account_logout", "", "None", "Forget the credentials."),
    "account/read": Special(
        "account_read",
        "params: GetAccountParams | JsonObject | None = None",
        "params or {}",
        "Who is logged in.",
    ),
    "model/list": Special(
        "model_list", "include_hidden: bool = False", '{"includeHidden": include_hidden}', "The models to choose from."
    ),
    "thread/archive": Special("thread_archive", THREAD, ONLY_THREAD, "Archive a thread."),
    "thread/compact/start": Special("thread_compact", THREAD, ONLY_THREAD, "Begin to summarise a thread's history."),
    "thread/fork": Special(
        "thread_fork",
        f"{THREAD}, params: ThreadForkParams | JsonObject | None = None",
        "with_members(params, threadId=thread_id)",
        "A new thread with the history of another.",
    ),
    "thread/goal/clear": Special("thread_goal_clear", THREAD, ONLY_THREAD, "Remove the goal of a thread."),
    "thread/goal/set": Special(
        "thread_goal_set",
        f"{THREAD}, *, objective: str | None = None, status: ThreadGoalStatus | None = None",
        "without_none(threadId=thread_id, objective=objective, status=status)",
        "Give a thread a goal, or change it.",
    ),
    "thread/list": Special(
        "thread_list", "params: ThreadListParams | JsonObject | None = None", "params or {}", "Threads, page by page."
    ),
    "thread/name/set": Special(
        "thread_set_name", f"{THREAD}, name: str", '{"threadId": thread_id, "name": name}', "Name a thread."
    ),
    "thread/read": Special(
        "thread_read",
        f"{THREAD}, include_turns: bool = False",
        '{"threadId": thread_id, "includeTurns": include_turns}',
        "A thread as it is stored.",
    ),
    "thread/resume": Special(
        "thread_resume",
        f"{THREAD}, params: ThreadResumeParams | JsonObject | None = None",
        "with_members(params, threadId=thread_id)",
        "Load a stored thread.",
    ),
    "thread/start": Special(
        "thread_start", "params: ThreadStartParams | JsonObject | None = None", "params or {}", "A new thread."
    ),
    "thread/unarchive": Special("thread_unarchive", THREAD, ONLY_THREAD, "Take a thread out of the archive."),
    "turn/interrupt": Special(
        "turn_interrupt",
        f"{THREAD}, turn_id: str",
        '{"threadId": thread_id, "turnId": turn_id}',
        "End a turn that runs.",
    ),
    "turn/steer": Special(
        "turn_steer",
        f"{THREAD}, expected_turn_id: str, input: list[JsonObject] | JsonObject | str",
        '{"threadId": thread_id, "expectedTurnId": expected_turn_id, "input": input_items(input)}',
        "Add input to a turn that runs.",
    ),
}

# Written by hand in the clients: they do more than ask.
BY_HAND: Final = ("initialize", "turn/start")

ABOUT: Final[dict[str, str]] = {
    "account/bedrock/checkGovCloudRequirements": "Whether the login is for a region with special requirements.",
    "account/rateLimits/read": "How much of its limits the account has used.",
    "collaborationMode/list": "The modes that a thread can work in.",
    "command/exec": "Run a command outside of any thread, and wait for its end.",
    "command/exec/resize": "Set the size of the terminal of such a command.",
    "command/exec/terminate": "End such a command.",
    "command/exec/write": "Write to such a command's standard input.",
    "config/batchWrite": "Change several settings in the configuration file.",
    "config/mcpServer/reload": "Read the settings of the MCP servers anew.",
    "config/read": "The settings in force, and where each comes from.",
    "config/value/write": "Change a setting in the configuration file.",
    "configRequirements/read": "What an administrator demands of the settings.",
    "experimentalFeature/enablement/set": "Switch experimental features on or off.",
    "experimentalFeature/list": "The experimental features.",
    "externalAgentConfig/detect": "What other agents have configured here.",
    "feedback/save": "Write a report about a thread to a file; nothing is sent.",
    "fs/copy": "Copy a file or a folder.",
    "fs/createDirectory": "Make a folder.",
    "fs/getMetadata": "What kind of file there is, and how large.",
    "fs/readDirectory": "What is in a folder.",
    "fs/readFile": "What is in a file, as base64.",
    "fs/remove": "Remove a file or a folder.",
    "fs/unwatch": "Stop watching.",
    "fs/watch": "Have changes under a path notified.",
    "fs/writeFile": "Write a file, from base64.",
    "fuzzyFileSearch": "Find files by a part of their names.",
    "fuzzyFileSearch/sessionStart": "Begin a search that follows what somebody types.",
    "fuzzyFileSearch/sessionStop": "End such a search.",
    "fuzzyFileSearch/sessionUpdate": "Look for something else; `sessionUpdated` notifies of what is found.",
    "hooks/list": "The hooks that are configured.",
    "mcpServer/oauth/login": "Log in to an MCP server.",
    "mcpServer/resource/read": "Read a resource of an MCP server.",
    "mcpServer/tool/call": "Call a tool of an MCP server.",
    "mcpServerStatus/list": "The MCP servers and what they offer.",
    "modelProvider/capabilities/read": "What the provider of the models can do.",
    "permissionProfile/list": "The permission profiles to choose from.",
    "plugin/installed": "The plugins that are installed.",
    "plugin/list": "The plugins to choose from.",
    "process/kill": "End such a process.",
    "process/resizePty": "Set the size of the terminal of such a process.",
    "process/spawn": "Start a process outside of any thread and sandbox; `process/exited` notifies of its end.",
    "process/writeStdin": "Write to such a process's standard input.",
    "review/start": "Have changes reviewed.",
    "skills/config/write": "Switch a skill on or off.",
    "skills/extraRoots/set": "Look for skills in these folders, too.",
    "skills/list": "The skills, by folder.",
    "thread/backgroundTerminals/clean": "End all commands that run for a thread.",
    "thread/backgroundTerminals/list": "The commands that run for a thread, page by page.",
    "thread/backgroundTerminals/terminate": "End one of the commands that run for a thread.",
    "thread/delete": "Remove a thread for good.",
    "thread/goal/get": "The goal of a thread.",
    "thread/inject_items": "Add items to a thread's history.",
    "thread/items/list": "The items of a thread, page by page.",
    "thread/items/read": "Some items of a turn, by their ids.",
    "thread/loaded/list": "The threads that are in the server's memory.",
    "thread/metadata/update": "Change what is noted about a thread.",
    "thread/queue/add": "Let a message wait for the thread to have no turn running.",
    "thread/queue/delete": "Take a waiting message back.",
    "thread/queue/list": "The messages that wait.",
    "thread/queue/reorder": "Change the order of the messages that wait.",
    "thread/queue/start": "Send a waiting message now.",
    "thread/queue/update": "Change a waiting message.",
    "thread/revert": "Go back to an earlier state of a thread.",
    "thread/rollback": "Take the last turns of a thread back.",
    "thread/search": "Threads in which a text occurs.",
    "thread/searchOccurrences": "Where a text occurs in a thread.",
    "thread/section/move": "Put a thread into a section.",
    "thread/settings/update": "Change how the next turns of a thread run.",
    "thread/shellCommand": "Run a command of the user's in a thread.",
    "thread/approveGuardianDeniedAction": "Allow once what the automatic reviewer of a thread denied.",
    "thread/turns/list": "The turns of a thread, page by page.",
    "thread/unsubscribe": "Hear no more of a thread.",
    "threadSection/create": "Make a section for threads.",
    "threadSection/delete": "Remove a section.",
    "threadSection/list": "The sections.",
    "threadSection/update": "Change a section.",
}

HEAD: Final = '''"""One {kind}method for each RPC of the app-server. Made by scripts/make_calls.py: edit that one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from treadle.client.requests import input_items, wire_object, with_members, without_none
from treadle.protocol.app.methods import METHODS

if TYPE_CHECKING:
{imports}
    from treadle.protocol.app.base import JsonObject


class {name}(ABC):
    """What can be asked of a server. Each call goes through `request`; `timeout` is in seconds."""

    @abstractmethod
    {a}def request(
        self, method: str, params: Any, *, response_model: type[Any], timeout: float | None = None
    ) -> Any:
        """Ask, and {wait} for the answer."""

    {a}def _call(self, method: str, params: Any, timeout: float | None) -> Any:
        params, model = wire_object(params), METHODS[method].result
        if timeout is None:  # so that a `request` of a subclass need not know it
            return {w}self.request(method, params, response_model=model)
        return {w}self.request(method, params, response_model=model, timeout=timeout)
'''


def main() -> int:
    return write({FOLDER / "calls.py": render(False), FOLDER / "async_calls.py": render(True)})


def render(is_async: bool) -> str:
    """The text of a module, in the form that `ruff format` gives it."""
    words = {"a": "async ", "w": "await "} if is_async else {"a": "", "w": ""}
    methods, used = [], set()
    for method in METHODS:
        if method in BY_HAND:
            continue
        special = SPECIAL.get(method) or _regular(method)
        result = f"{METHODS[method].stem}Response"
        used |= set(re.findall(r"\b[A-Z]\w+", f"{special.given} {result}")) - {"JsonObject", "None", "False"}
        methods.append(_method(method, special, result, words))
    text = HEAD.format(
        kind="awaitable " if is_async else "",
        imports=_imports(used),
        name="AsyncCalls" if is_async else "Calls",
        wait="wait",
        **words,
    )
    return formatted(text + "".join(methods), FOLDER / "calls.py", rules="I,F401")


def _regular(method: str) -> Special:
    name, about = _name(method), _about(method)
    struct, params = f"{METHODS[method].stem}Params", METHODS[method].params
    if params is NoParams:
        return Special(name, "", "None", about)
    fields = structs.fields(params) if isinstance(params, type) else None
    if fields is None or any(field.required for field in fields):
        return Special(name, f"params: {struct} | JsonObject", "params", about)
    return Special(name, f"params: {struct} | JsonObject | None = None", "params or {}", about)


def _name(method: str) -> str:
    name = "_".join(re.sub(r"(?<=[a-z])([A-Z])", r"_\1", part).lower() for part in re.split(r"\W+", method))
    if not name.isidentifier():  # it begins with a digit
        name = f"call_{name}"
    return f"{name}_" if keyword.iskeyword(name) or name in _own_names() else name


@cache
def _own_names() -> frozenset[str]:
    """What the clients define themselves."""
    sources = [*FOLDER.glob("*client.py"), *FOLDER.glob("*shell.py")]
    return frozenset(re.findall(r"(?:def |self\.)(\w+)", "".join(map(Path.read_text, sources)))) | {"request"}


def _about(method: str) -> str:
    """The docstring of the handler, where `ABOUT` has nothing."""
    if method in ABOUT:
        return ABOUT[method]
    docstring = ROUTES[method].handler.__doc__ or "Ask the server."
    return inspect.cleandoc(docstring).partition("\n")[0]


def _method(method: str, special: Special, result: str, words: dict[str, str]) -> str:
    positional, star, keywords = special.given.partition("*, ")
    parts = [part for part in ("self", positional.rstrip(", "), "*", keywords if star else "", _TIMEOUT) if part]
    return (
        f"\n    {words['a']}def {special.name}({', '.join(parts)}) -> {result}:\n"
        f'        """{special.about} (`{method}`)"""\n'
        f'        answer: {result} = {words["w"]}self._call("{method}", {special.sent}, timeout)\n'
        f"        return answer\n"
    )


_TIMEOUT: Final = "timeout: float | None = None"


def _imports(used: set[str]) -> str:
    modules = {f"{record.stem}{kind}": record.module for record in METHODS.values() for kind in ("Params", "Response")}
    modules["ThreadGoalStatus"] = "threads"
    by_module: dict[str, list[str]] = {}
    for name in sorted(used):
        by_module.setdefault(modules[name], []).append(name)
    lines = (f"    from treadle.protocol.app.{module} import {', '.join(names)}" for module, names in by_module.items())
    return "\n".join(sorted(lines))


if __name__ == "__main__":
    raise SystemExit(main())
