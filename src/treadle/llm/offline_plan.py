"""The plan of the offline model: which calls come next, or what to say at the end.

An answer in a given form is made by `schema_value`.
"""

from __future__ import annotations

import json
import re
from typing import Final, TypeAlias

from msgspec import Struct

from treadle.llm.offline_view import PLAN_TAG, Done, View
from treadle.llm.schema_value import schema_value

LOOK: Final = "ls -1"
NOTE: Final = "treadle-offline-{}.md"
MAX_NOTES: Final = 1000
UNSIGNED: Final = "Signed: not yet"
SIGNED: Final = "Signed: Treadle"
# Of an output, or of what the user said, in a report: the beginning is enough to recognise it.
SHOWN_CHARS: Final = 160

# What is done in each step, and with which tool.
_STEPS: Final = (
    ("See which files are here", "exec_command"),
    ("Write a small note", "apply_patch"),
    ("Read it back", "exec_command"),
    ("Sign it", "apply_patch"),
)
_ABOUT: Final = (
    "I am Treadle's offline model: a fixed script without a language model behind it, so I cannot work on what you"
    " asked.\n\nYou asked: {}\n"
)
_REAL_MODEL: Final = """\
**To use a real model**, run `treadle login`, or set `OPENAI_API_KEY` or `ANTHROPIC_API_KEY`, or name a provider in
`$TREADLE_HOME/config.toml` (`~/.treadle/config.toml` when neither TREADLE_HOME nor CODEX_HOME is set):

```toml
model = "<model>"
model_provider = "mine"

[model_providers.mine]
base_url = "https://<host>/v1"
env_key = "<VARIABLE_WITH_YOUR_KEY>"
```"""
_PROPOSAL: Final = "\n".join(
    [
        "",
        PLAN_TAG,
        "# A tour of the tools",
        "",
        *(f"{n}. {step}" for n, (step, _) in enumerate(_STEPS, start=1)),
        PLAN_TAG.replace("<", "</"),
    ]
)


class Call(Struct, frozen=True):
    """`text` is JSON arguments, or free text if the tool takes that."""

    name: str
    text: str
    free_form: bool = False


Step: TypeAlias = tuple[Call, ...] | str


def decide(view: View) -> Step:
    """The next calls; a text when there are none left. Who asks for a form wants the answer, not the tour."""
    if view.schema is not None:
        return json.dumps(schema_value(view.schema, _topic(view.user_text)), ensure_ascii=False)
    calls = tuple(call for call in _script(view) if not _made(call, view.done))
    # Without the note there is nothing to read or to sign.
    if not calls or any(one.name == "apply_patch" and not _body(one.output).startswith("Success") for one in view.done):
        return _answer(view)
    # The plan is not worth a request of its own where it can travel with the first real call.
    together = view.parallel and calls[0].name == "update_plan" and len(calls) > 1
    return calls[:2] if together else calls[:1]


def _script(view: View) -> list[Call]:
    """All calls from the first to the last, as far as they are known: the name of the note depends on the files."""
    if view.planning:
        return [_command(LOOK)] if "exec_command" in view.tools else []
    steps = [(step, _act(step, tool, view)) for step, tool in _STEPS if tool in view.tools]
    if "update_plan" not in view.tools or not steps:
        return [call for _, call in steps]
    names = [step for step, _ in steps]
    calls = [call for n, (_, act) in enumerate(steps) for call in (_plan(names, n), act)]
    return [*calls, _plan(names, len(names))]


def _act(step: str, tool: str, view: View) -> Call:
    if tool == "apply_patch":
        return _sign(view) if step == _STEPS[3][0] else _write(view)
    if step == _STEPS[0][0]:
        return _command(LOOK)
    return _command(f"cat {_note_name(view)}" if "apply_patch" in view.tools else "pwd")


def _plan(steps: list[str], current: int) -> Call:
    """The plan while that step is worked on; ticked off when there is none left."""
    status = ["completed" if n < current else "in_progress" if n == current else "pending" for n in range(len(steps))]
    plan = [{"step": step, "status": one} for step, one in zip(steps, status, strict=True)]
    return _function("update_plan", {"explanation": "A tour of the tools.", "plan": plan})


def _write(view: View) -> Call:
    asked = _shorten(view.user_text) or "(nothing)"
    lines = ["# A note of Treadle's offline model", "", f"Asked: {asked}", f"Files seen: {len(_files(view))}", UNSIGNED]
    return _patch(view, [f"*** Add File: {_note_name(view)}", *(f"+{line}" for line in lines)])


def _sign(view: View) -> Call:
    return _patch(view, [f"*** Update File: {_note_name(view)}", "@@", f"-{UNSIGNED}", f"+{SIGNED}"])


def _patch(view: View, lines: list[str]) -> Call:
    patch = "\n".join(["*** Begin Patch", *lines, "*** End Patch", ""])
    if view.tools["apply_patch"]:
        return Call("apply_patch", patch, free_form=True)
    return _function("apply_patch", {"input": patch})


def _command(text: str) -> Call:
    # What the user's profile prints has no place in the tour.
    return _function("exec_command", {"cmd": text, "login": False})


def _function(name: str, arguments: dict[str, object]) -> Call:
    return Call(name, json.dumps(arguments, ensure_ascii=False))


def _made(call: Call, done: tuple[Done, ...]) -> bool:
    """Patches are told apart by what they do to the note: its name was not yet known when the first was made."""
    if call.name == "apply_patch":
        verb = _verb(call.text)
        return any(one.name == call.name and _verb(one.input) == verb for one in done)
    return any(one.name == call.name and one.input == call.text for one in done)


def _verb(patch: str) -> str:
    return "sign" if "*** Update File: " in patch else "write"


# --- what the outputs say --------------------------------------------------------------------------------------------


def _files(view: View) -> list[str]:
    """The names that the listing gave; none before it was made."""
    look = _command(LOOK).text
    for one in view.done:
        if one.name == "exec_command" and one.input == look:
            return [line for line in _body(one.output).splitlines() if line.strip()]
    return []


def _note_name(view: View) -> str:
    """The first free name; the one that was chosen stays chosen."""
    for one in view.done:
        chosen = re.search(r"\*\*\* Add File: (treadle-offline-\d+\.md)", one.input)
        if one.name == "apply_patch" and chosen is not None:
            return chosen[1]
    files = set(_files(view))
    return next((name for n in range(1, MAX_NOTES) if (name := NOTE.format(n)) not in files), NOTE.format(MAX_NOTES))


def _body(output: str) -> str:
    """The output of a command without the lines about it that a tool may put before."""
    before, mark, after = output.partition("Output:\n")
    return after if mark and (not before or before.endswith("\n")) else output


def _answer(view: View) -> str:
    parts = [_ABOUT.format(_shorten(view.user_text) or "(nothing)")]
    seen = [_report(one) for one in view.done if one.name != "update_plan"]
    if seen:
        parts += ["Everything else is real. I made these calls, and saw:\n", *seen, ""]
    parts.append(_REAL_MODEL)
    if view.planning:
        parts.append(_PROPOSAL)
    return "\n".join(parts)


def _report(one: Done) -> str:
    lines = [line.strip() for line in _body(one.output).splitlines() if line.strip()] or ["(no output)"]
    if lines[0].startswith("Success") and lines[1:]:
        lines = lines[1:]  # which files
    return f"- {_title(one)}: {_shorten(' · '.join(lines))}"


def _title(one: Done) -> str:
    if one.name != "exec_command":
        return f"`{one.name}`"
    try:
        command = json.loads(one.input)["cmd"]
    except (ValueError, KeyError, TypeError):
        command = one.input
    return f"`{_shorten(str(command))}`"


def _topic(text: str) -> str:
    """What it is about, in a line: what comes last is said by the user, what comes first tells the model how. A line
    that ends with a colon announces what the user said."""
    paragraphs = [paragraph.strip() for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]
    if not paragraphs:
        return ""
    announced, _, said = paragraphs[-1].partition("\n")
    return _shorten(said if said and announced.rstrip().endswith(":") else paragraphs[-1])


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARS else line[: SHOWN_CHARS - 1] + "…"
