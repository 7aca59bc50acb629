"""What a model is told of the tools: specs for the `tools` member of a Responses API request.

Owns the descriptions. Each spec is encoded once; `tool_arguments` reads what a model makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from treadle.protocol.app.dynamic_tools import (
    DynamicToolNamespaceTool,
    DynamicToolSpec,
    FunctionDynamicToolSpec,
    NamespaceDynamicToolSpec,
)

_Schema: TypeAlias = Mapping[str, Any]


def tool_specs(
    *,
    freeform_patch: bool = False,
    plan: bool = True,
    images: bool = True,
    goals: bool = True,
    dynamic: Sequence[DynamicToolSpec] = (),
) -> tuple[Raw, ...]:
    """The tools of a thread. `freeform_patch`: the model knows patches as free text; `dynamic` are the client's."""
    specs = [EXEC_COMMAND, WRITE_STDIN, APPLY_PATCH_FREEFORM if freeform_patch else APPLY_PATCH]
    if plan:
        specs.append(UPDATE_PLAN)
    if images:
        specs.append(VIEW_IMAGE)
    if goals:
        specs += (GET_GOAL, CREATE_GOAL, UPDATE_GOAL)
    return (*specs, *map(dynamic_spec, dynamic))


def built_in_names() -> frozenset[str]:
    """What the model calls our own tools: a client's tool of the same name would take its place."""
    return frozenset(msgspec.json.decode(spec)["name"] for spec in tool_specs())


def dynamic_spec(spec: DynamicToolSpec) -> Raw:
    """A tool that the client runs, or a namespace of them."""
    match spec:
        case NamespaceDynamicToolSpec():
            tools = [_client_function(tool) for tool in spec.tools]
            return _raw({"type": "namespace", "name": spec.name, "description": spec.description, "tools": tools})
        case FunctionDynamicToolSpec():
            return _raw(_client_function(spec))


def _client_function(tool: FunctionDynamicToolSpec | DynamicToolNamespaceTool) -> _Schema:
    return _function_members(tool.name, tool.description, tool.input_schema)


def _function_members(name: str, description: str, parameters: Any) -> _Schema:
    return {
        "type": "function",
        "name": name,
        "description": description,
        # Strict would make every parameter required.
        "strict": False,
        "parameters": parameters,
    }


def _function(name: str, description: str, properties: Mapping[str, _Schema], required: Sequence[str] = ()) -> Raw:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return _raw(_function_members(name, description, parameters))


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def _text(description: str, *, words: Sequence[str] = ()) -> _Schema:
    return {"type": "string", "description": description} | ({"enum": list(words)} if words else {})


def _number(description: str) -> _Schema:
    return {"type": "integer", "description": description}


def _flag(description: str) -> _Schema:
    return {"type": "boolean", "description": description}


# --- commands --------------------------------------------------------------------------------------------------------

_YIELD: Final = _number("Milliseconds to wait for output before you get what there is.")
_MAX_OUTPUT: Final = _number("Most tokens of output to return. What is more is cut out of the middle.")

EXEC_COMMAND: Final = _function(
    "exec_command",
    "Runs a shell command. Returns its output and exit code, or a session ID when it still runs after the wait: "
    "then look again, or send input, with write_stdin.",
    {
        "cmd": _text("The command line for the shell."),
        "workdir": _text("Directory to run it in. Default: the working directory of the turn."),
        "shell": _text("Path of the shell. Default: the user's shell."),
        "login": _flag("Whether the shell reads the user's profile (-l). Default: true."),
        "tty": _flag("Gives the command a terminal. Needed to send it input later. Default: false."),
        "yield_time_ms": _YIELD,
        "max_output_tokens": _MAX_OUTPUT,
        "sandbox_permissions": _text(
            "`require_escalated` asks the user to let the command run outside of the sandbox. Default: `use_default`.",
            words=("use_default", "require_escalated"),
        ),
        "justification": _text(
            "Only with `require_escalated`: one short question to the user that says what the command is for."
        ),
        "prefix_rule": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Only with `require_escalated`: first words of the command that the user may allow from now "
            'on, such as ["npm", "test"]. As narrow as is useful.',
        },
    },
    required=("cmd",),
)

WRITE_STDIN: Final = _function(
    "write_stdin",
    "Sends characters to a command that runs in a session, and returns what it wrote since you last looked.",
    {
        "session_id": _number("The session ID that exec_command gave."),
        "chars": _text("Characters to send, line ends included. Empty or left out: only look."),
        "yield_time_ms": _YIELD,
        "max_output_tokens": _MAX_OUTPUT,
    },
    required=("session_id",),
)

# --- patches ---------------------------------------------------------------------------------------------------------

_PATCH: Final = "Changes files by a patch: adds, deletes, updates or moves them, all of them or none."
_PATCH_EXAMPLE: Final = """
The patch looks like this:

*** Begin Patch
*** Add File: path/new.txt
+every line of a new file starts with a plus
*** Update File: path/old.py
*** Move to: path/renamed.py
@@ def greet(name):
 a line that stays, starts with a space
-a line to take out
+a line to put in
*** Delete File: path/gone.txt
*** End Patch

Give about three unchanged lines around each change; the text after @@ names a line above them, where they occur more
than once. Paths are relative to the working directory."""

# Lark. Lines end with LF; the last one may lack it.
PATCH_GRAMMAR: Final = r"""start: begin section+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?

section: add | delete | update
add: "*** Add File: " PATH LF added+
delete: "*** Delete File: " PATH LF
update: "*** Update File: " PATH LF move? hunk*
move: "*** Move to: " PATH LF

added: "+" TEXT? LF
hunk: anchor+ line* end_of_file? | line+ end_of_file?
anchor: "@@" LF | "@@ " TEXT LF
line: ("+" | "-" | " ") TEXT? LF
end_of_file: "*** End of File" LF

PATH: /[^\n]+/
TEXT: /[^\n]+/
LF: /\n/
"""

APPLY_PATCH: Final = _function(
    "apply_patch",
    _PATCH + _PATCH_EXAMPLE,
    {"input": _text("The whole patch.")},
    required=("input",),
)

APPLY_PATCH_FREEFORM: Final = _raw(
    {
        "type": "custom",
        "name": "apply_patch",
        "description": f"{_PATCH} The input is the patch itself: no JSON around it.",
        "format": {"type": "grammar", "syntax": "lark", "definition": PATCH_GRAMMAR},
    }
)

# --- the rest --------------------------------------------------------------------------------------------------------

UPDATE_PLAN: Final = _function(
    "update_plan",
    "Shows the user the steps of your task and how far you are. Give the whole plan each time, with at most one step "
    "in progress.",
    {
        "explanation": _text("Why the plan is as it is, or why it changed."),
        "plan": {
            "type": "array",
            "description": "All steps in order.",
            "items": {
                "type": "object",
                "properties": {
                    "step": _text("What is to be done, in a few words."),
                    "status": _text("How far it is.", words=("pending", "in_progress", "completed")),
                },
                "required": ["step", "status"],
                "additionalProperties": False,
            },
        },
    },
    required=("plan",),
)

VIEW_IMAGE: Final = _function(
    "view_image",
    "Shows you an image file (PNG, JPEG, GIF or WebP) of the machine that commands run on.",
    {"path": _text("Path of the image, absolute or relative to the working directory.")},
    required=("path",),
)

GET_GOAL: Final = _function(
    "get_goal", "Tells the goal of this thread: its objective, status, budget and what was used of it.", {}
)

CREATE_GOAL: Final = _function(
    "create_goal",
    "Sets the goal that this thread works for until it is reached. Only when the user asked for one.",
    {
        "objective": _text("What is to be reached, so that one can tell whether it was."),
        "token_budget": _number("Most tokens to use for it. Only when the user named a number."),
    },
    required=("objective",),
)

UPDATE_GOAL: Final = _function(
    "update_goal",
    "Ends the work for the goal: `complete` when it is reached and you have checked that, `blocked` when you cannot go "
    "on without the user.",
    {"status": _text("How it ended.", words=("complete", "blocked"))},
    required=("status",),
)
