"""apply_patch, as a function and as free text: files changed by a patch. The way of a patch is in `patch_call`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Raw, Struct

from treadle.agent.tools.tool import Tool, ToolCall
from treadle.tools.specs import free_text_spec, function_spec, text

if TYPE_CHECKING:
    from treadle.config import ModelFacts

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
    needs_environment = True
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
    """For models that know patches as free text."""

    name = "apply_patch"
    needs_environment = True
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
