"""`BUILT_IN`: our own tools, in the order in which a model reads them. A new tool gets a class and a line there.

Each tool has its arguments, its specification and what it does. Running a command is in `command_call`, applying a
patch in `patch_call`: both are loaded with the first call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from posixpath import join, normpath
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from msgspec import DecodeError, Meta, Raw, Struct, field

from treadle.agent.tools.tool import Output, Tool, ToolCall
from treadle.agent.tools.web_tools import WebFetch, WebSearch
from treadle.errors import RpcError
from treadle.protocol.app.base import decode, encode
from treadle.protocol.app.items import ImageViewThreadItem
from treadle.protocol.app.notifications import TurnPlanStep, TurnPlanStepStatus, TurnPlanUpdatedNotification
from treadle.tools.specs import ToolInputError, flag, free_text_spec, function_spec, number, text

if TYPE_CHECKING:
    from treadle.config import ModelFacts
    from treadle.execution.files.files_interface import Files


# --- exec_command, write_stdin ----------------------------------------------------------------------------------------


SandboxPermissions: TypeAlias = Literal["use_default", "require_escalated"]
_Milliseconds: TypeAlias = Annotated[int, Meta(ge=0)]
_Count: TypeAlias = Annotated[int, Meta(ge=0)]
_YIELD: Final = number("Milliseconds to wait for output before you get what there is.")
_MAX_OUTPUT: Final = number("Most tokens of output to return. What is more is cut out of the middle.")


class ExecCommandArguments(Struct, frozen=True, kw_only=True):
    cmd: str
    workdir: str | None = None
    shell: str | None = None
    login: bool = True
    tty: bool = False
    yield_time_ms: _Milliseconds | None = None
    max_output_tokens: _Count | None = None
    sandbox_permissions: SandboxPermissions = "use_default"
    justification: str | None = None
    prefix_rule: tuple[str, ...] | None = None
    environment_id: str | None = None


class WriteStdinArguments(Struct, frozen=True, kw_only=True):
    session_id: int
    chars: str = ""
    yield_time_ms: _Milliseconds | None = None
    max_output_tokens: _Count | None = None


class ExecCommand(Tool):
    """Runs a command. Not exclusive: nobody knows before what it changes, and models run many side by side."""

    name = "exec_command"
    feature: str | None = "shell_tool"
    needs_environment = True
    chooses_environment = True
    may_destroy = True
    spec: Raw = function_spec(
        name,
        "Runs a shell command. Returns its output and exit code, or a session ID when it still runs after the wait: "
        "then look again, or send input, with write_stdin.",
        {
            "cmd": text("The command line for the shell."),
            "workdir": text("Directory to run it in. Default: the working directory of the turn."),
            "shell": text("Path of the shell. Default: the user's shell."),
            "login": flag("Whether the shell reads the user's profile (-l). Default: true."),
            "tty": flag("Gives the command a terminal. Needed to send it input later. Default: false."),
            "yield_time_ms": _YIELD,
            "max_output_tokens": _MAX_OUTPUT,
            "sandbox_permissions": text(
                "`require_escalated` asks the user to let the command run outside of the sandbox. Default: "
                "`use_default`.",
                words=("use_default", "require_escalated"),
            ),
            "justification": text(
                "Only with `require_escalated`: one short question to the user that says what the command is for."
            ),
            "prefix_rule": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Only with `require_escalated`: first words of the command that the user may allow from "
                'now on, such as ["npm", "test"]. As narrow as is useful.',
            },
        },
        required=("cmd",),
    )

    def may_write(self, call: ToolCall) -> bool:
        # Late, as below.
        from treadle.execution.sandbox.sandbox_modes import is_unconfined, may_write
        from treadle.tools.command.command_shell import shell_argv
        from treadle.tools.command.safety import is_known_safe

        given, confinement = call.arguments(ExecCommandArguments), call.turn.settings.in_force
        if patch_in_command(given.cmd) is not None:
            return True
        is_open = is_unconfined(confinement) or may_write(confinement)
        return is_open and not is_known_safe(shell_argv(given.cmd, given.shell, given.login))

    async def run(self, call: ToolCall) -> str:
        given = call.arguments(ExecCommandArguments)
        found = patch_in_command(given.cmd)
        if found is not None:
            patch, cd = found
            cwd = call.turn.thread.settings.cwd
            return await run_patch(call, patch, normpath(join(cwd, given.workdir or "", cd or "")))
        # Late: what runs a command is loaded with the first one, and by servers only.
        from treadle.agent.tools.command_call import CommandCall

        return await CommandCall(call.turn, call.id, given).run()


class WriteStdin(Tool):
    name = "write_stdin"
    feature: str | None = "shell_tool"
    needs_environment = True
    may_destroy = True
    spec: Raw = function_spec(
        name,
        "Sends characters to a command that runs in a session, and returns what it wrote since you last looked.",
        {
            "session_id": number("The session ID that exec_command gave."),
            "chars": text("Characters to send, line ends included. Empty or left out: only look."),
            "yield_time_ms": _YIELD,
            "max_output_tokens": _MAX_OUTPUT,
        },
        required=("session_id",),
    )

    async def run(self, call: ToolCall) -> str:
        # Late, as above.
        from treadle.agent.tools.command_call import write_stdin

        return await write_stdin(call.turn, call.arguments(WriteStdinArguments))


# --- apply_patch, as a function and as free text ----------------------------------------------------------------------


_DESCRIPTION: Final = "Changes files by a patch: adds, deletes, updates or moves them, all of them or none."
_EXAMPLE: Final = """
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
# A model without the tool writes the patch to a program of that name, as a here-document.
_HEREDOC: Final = re.compile(
    r"\s*(?:cd\s+(?P<cd>[^\s;&|<>'\"$`]+)\s*&&\s*)?apply_?patch\s*<<-?\s*(?P<q>['\"]?)(?P<end>\w+)(?P=q)[ \t]*\n"
    r"(?P<patch>.*)\n(?P=end)\s*",
    re.DOTALL,
)


class ApplyPatchArguments(Struct, frozen=True, kw_only=True):
    input: str


class ApplyPatch(Tool):
    """Exclusive: commands beside it would see files half changed."""

    name = "apply_patch"
    mode: str | None = "default"  # a plan changes nothing
    needs_environment = True
    chooses_environment = True
    may_destroy = True
    spec: Raw = function_spec(
        name,
        _DESCRIPTION + _EXAMPLE,
        {"input": text("The whole patch.")},
        required=("input",),
    )
    exclusive = True

    def suits(self, model: ModelFacts) -> bool:
        return not model.freeform_patch

    async def run(self, call: ToolCall) -> str:
        return await run_patch(call, call.arguments(ApplyPatchArguments).input)


class ApplyPatchFreeform(Tool):
    """`apply_patch` for models that know patches as free text."""

    name = "apply_patch"
    mode: str | None = "default"  # a plan changes nothing
    needs_environment = True
    chooses_environment = True
    may_destroy = True
    spec: Raw = free_text_spec(
        name, f"{_DESCRIPTION} The input is the patch itself: no JSON around it.", lark=PATCH_GRAMMAR
    )
    free_text = True
    exclusive = True

    def suits(self, model: ModelFacts) -> bool:
        return model.freeform_patch

    async def run(self, call: ToolCall) -> str:
        return await run_patch(call, call.text)


async def run_patch(call: ToolCall, patch: str, cwd: str | None = None) -> str:
    """Apply a patch whose paths are relative to `cwd`, or to that of the thread."""
    # Late: what applies a patch is loaded with the first one, and by servers only.
    from treadle.agent.tools.patch_call import apply_patch

    return await apply_patch(call.turn, call.id, patch, cwd)


def patch_in_command(cmd: str) -> tuple[str, str | None] | None:
    """The patch that a shell command consists of, and the directory that it changes to first."""
    found = _HEREDOC.fullmatch(cmd)
    return None if found is None else (found["patch"] + "\n", found["cd"])


# --- update_plan ------------------------------------------------------------------------------------------------------


PlanStatus: TypeAlias = Literal["pending", "in_progress", "completed"]
MAX_STEPS: Final = 200
_STATUS: Final[Mapping[PlanStatus, TurnPlanStepStatus]] = {
    "pending": TurnPlanStepStatus.pending,
    "in_progress": TurnPlanStepStatus.in_progress,
    "completed": TurnPlanStepStatus.completed,
}


class PlanStepArguments(Struct, frozen=True, kw_only=True):
    step: str
    status: PlanStatus


class UpdatePlanArguments(Struct, frozen=True, kw_only=True):
    plan: tuple[PlanStepArguments, ...]
    explanation: str | None = None


class UpdatePlan(Tool):
    name = "update_plan"
    mode: str | None = "default"  # a plan is proposed as text, not as steps of work that is under way
    spec: Raw = function_spec(
        name,
        "Shows the user the steps of your task and how far you are. Give the whole plan each time, with at most one "
        "step in progress.",
        {
            "explanation": text("Why the plan is as it is, or why it changed."),
            "plan": {
                "type": "array",
                "description": "All steps in order.",
                "items": {
                    "type": "object",
                    "properties": {
                        "step": text("What is to be done, in a few words."),
                        "status": text("How far it is.", words=("pending", "in_progress", "completed")),
                    },
                    "required": ["step", "status"],
                    "additionalProperties": False,
                },
            },
        },
        required=("plan",),
    )

    async def run(self, call: ToolCall) -> str:
        turn, given = call.turn, call.arguments(UpdatePlanArguments)
        params = TurnPlanUpdatedNotification(
            thread_id=turn.thread.id, turn_id=turn.id, plan=plan_steps(given), explanation=given.explanation
        )
        turn.thread.journal.emit("turn/plan/updated", params)
        return "Plan updated"


def plan_steps(given: UpdatePlanArguments) -> tuple[TurnPlanStep, ...]:
    """The plan as the protocol shows it. Raises `ToolInputError`."""
    if len(given.plan) > MAX_STEPS:
        raise ToolInputError(f"the plan has {len(given.plan)} steps; give at most {MAX_STEPS}")
    return tuple(TurnPlanStep(step=step.step, status=_STATUS[step.status]) for step in given.plan)


# --- request_user_input -----------------------------------------------------------------------------------------------


# More fit on no screen, and would be asked one by one.
MAX_QUESTIONS: Final = 10
MAX_OPTIONS: Final = 20
NO_ANSWERS: Final = '{"answers":{}}'


class OptionArguments(Struct, frozen=True, kw_only=True):
    label: str
    description: str


class QuestionArguments(Struct, frozen=True, kw_only=True):
    id: str
    header: str
    question: str
    options: Annotated[tuple[OptionArguments, ...], Meta(min_length=1, max_length=MAX_OPTIONS)]
    is_secret: bool = field(name="isSecret", default=False)


class RequestUserInputArguments(Struct, frozen=True, kw_only=True):
    questions: Annotated[tuple[QuestionArguments, ...], Meta(min_length=1, max_length=MAX_QUESTIONS)]


class RequestUserInput(Tool):
    name = "request_user_input"
    settings_name: str | None = "experimental_request_user_input"
    mode: str | None = "plan"
    any_mode_feature: str | None = "default_mode_request_user_input"
    only_reads = True
    spec: Raw = function_spec(
        name,
        "Asks the user one to three short questions and waits for the answers. An answer is the label of a choice, or "
        "words of the user's own. No answers means that the user gave none: go on with what you think best.",
        {
            "questions": {
                "type": "array",
                "description": "The questions: one if that is enough, at most three.",
                "items": {
                    "type": "object",
                    "properties": {
                        "id": text("A name for the question, in snake_case; the answer comes under it."),
                        "header": text("One or two words to show above it, at most 12 characters."),
                        "question": text("The question, in one sentence."),
                        "options": {
                            "type": "array",
                            "description": "Two or three choices that exclude each other, the one that you would take "
                            'first and marked "(Recommended)". The user can always answer something else.',
                            "items": {
                                "type": "object",
                                "properties": {
                                    "label": text("The choice, in a few words."),
                                    "description": text("What follows from it, in one sentence."),
                                },
                                "required": ["label", "description"],
                                "additionalProperties": False,
                            },
                        },
                        "isSecret": {
                            "type": "boolean",
                            "description": "Whether the answer is to be hidden on the screen. Default: false.",
                        },
                    },
                    "required": ["id", "header", "question", "options"],
                    "additionalProperties": False,
                },
            },
        },
        required=("questions",),
    )

    async def run(self, call: ToolCall) -> str:
        # Late: few turns ask something.
        from treadle.agent.thread.client_requests import USER_INPUT
        from treadle.agent.tools.approval import answer_to
        from treadle.protocol.app.approvals import (
            ToolRequestUserInputOption,
            ToolRequestUserInputParams,
            ToolRequestUserInputQuestion,
            ToolRequestUserInputResponse,
        )

        thread, given = call.turn.thread, call.arguments(RequestUserInputArguments)
        questions = tuple(
            ToolRequestUserInputQuestion(
                id=one.id,
                header=one.header,
                question=one.question,
                is_other=True,
                is_secret=one.is_secret,
                options=tuple(
                    ToolRequestUserInputOption(label=o.label, description=o.description) for o in one.options
                ),
            )
            for one in given.questions
        )
        ask = thread.requests.open(USER_INPUT)
        ask.params = ToolRequestUserInputParams(
            thread_id=thread.id, turn_id=call.turn.id, item_id=call.id, is_blocking=True, questions=questions
        )
        answer = await answer_to(thread, ask)
        if isinstance(answer, RpcError):  # nobody has answered
            return NO_ANSWERS
        try:
            return encode(decode(answer, ToolRequestUserInputResponse)).decode()
        except DecodeError:
            return NO_ANSWERS


# --- view_image -------------------------------------------------------------------------------------------------------


class ViewImageArguments(Struct, frozen=True, kw_only=True):
    path: str
    environment_id: str | None = None


class ViewImage(Tool):
    name = "view_image"
    feature: str | None = "view_image"
    needs_environment = True
    chooses_environment = True
    only_reads = True
    spec: Raw = function_spec(
        name,
        "Shows you an image file (PNG, JPEG, GIF or WebP) of the machine that commands run on.",
        {"path": text("Path of the image, absolute or relative to the working directory.")},
        required=("path",),
    )

    def suits(self, model: ModelFacts) -> bool:
        return model.supports_images

    async def run(self, call: ToolCall) -> Output:
        # Late: few turns look at images.
        from treadle.agent.thread.authority import file_policy, turn_sandbox
        from treadle.agent.tools.command_call import workplace
        from treadle.execution.files.local_files import LocalFiles
        from treadle.tools.view_image import load_image

        arguments, turn = call.arguments(ViewImageArguments), call.turn
        place = workplace(turn.settings, arguments.environment_id)
        settings = turn.settings.at(place)
        files: Files
        if place.is_local:
            files = LocalFiles(await file_policy(turn, settings))
        else:
            machine = turn.thread.services.machine(place.environment)
            files = await machine.files(await turn_sandbox(turn, settings))
        image = await load_image(files, arguments.path, settings.cwd)
        call.turn.items.show(ImageViewThreadItem(id=call.id, path=image.path))
        return [{"type": "input_image", "image_url": image.data_url}]


# --- get_goal, create_goal, update_goal -------------------------------------------------------------------------------


class GetGoalArguments(Struct, frozen=True, kw_only=True):
    pass


class CreateGoalArguments(Struct, frozen=True, kw_only=True):
    objective: Annotated[str, Meta(min_length=1)]
    token_budget: Annotated[int, Meta(gt=0)] | None = None


class UpdateGoalArguments(Struct, frozen=True, kw_only=True):
    status: Literal["complete", "blocked"]


class GetGoal(Tool):
    name = "get_goal"
    feature: str | None = "goals"
    only_reads = True
    spec: Raw = function_spec(
        name, "Tells the goal of this thread: its objective, status, budget and what was used of it.", {}
    )

    async def run(self, call: ToolCall) -> str:
        """Whatever the arguments are: there is nothing to get wrong."""
        goal = call.turn.thread.goal.now
        return "no goal is set" if goal is None else encode(goal).decode()


class CreateGoal(Tool):
    name = "create_goal"
    feature: str | None = "goals"
    spec: Raw = function_spec(
        name,
        "Sets the goal that this thread works for until it is reached. Only when the user asked for one.",
        {
            "objective": text("What is to be reached, so that one can tell whether it was."),
            "token_budget": number("Most tokens to use for it. Only when the user named a number."),
        },
        required=("objective",),
    )

    async def run(self, call: ToolCall) -> str:
        thread, given = call.turn.thread, call.arguments(CreateGoalArguments)
        try:
            thread.goal.set(objective=given.objective, status="active", token_budget=given.token_budget)
        except RpcError as error:
            return error.message
        thread.goal.publish(call.turn.id)
        return "goal set"


class UpdateGoal(Tool):
    name = "update_goal"
    feature: str | None = "goals"
    spec: Raw = function_spec(
        name,
        "Ends the work for the goal: `complete` when it is reached and you have checked that, `blocked` when you "
        "cannot go on without the user.",
        {"status": text("How it ended.", words=("complete", "blocked"))},
        required=("status",),
    )

    async def run(self, call: ToolCall) -> str:
        thread, given = call.turn.thread, call.arguments(UpdateGoalArguments)
        if thread.goal.now is None:
            return "no goal is set"
        thread.goal.set(status=given.status)
        thread.goal.publish(call.turn.id)
        return f"goal is {given.status}"


# --- all of them ------------------------------------------------------------------------------------------------------


BUILT_IN: Final[tuple[Tool, ...]] = (
    ExecCommand(),
    WriteStdin(),
    ApplyPatchFreeform(),
    ApplyPatch(),
    UpdatePlan(),
    RequestUserInput(),
    ViewImage(),
    WebSearch(),
    WebFetch(),
    GetGoal(),
    CreateGoal(),
    UpdateGoal(),
)
