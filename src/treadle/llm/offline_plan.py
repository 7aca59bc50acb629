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
# Of an output, or of what the user said, in a report: the first lines are enough to recognise it.
SHOWN_LINES: Final = 12
SHOWN_CHARS: Final = 160

_STEPS: Final = ("See which files are here", "Write a small note", "Look at the note")
_ABOUT: Final = (
    "I am Treadle's offline model: a fixed script without a language model behind it, so I cannot work on what you"
    " asked. To use a real model, set OPENAI_API_KEY, or name a provider in `$TREADLE_HOME/config.toml`"
    " (`~/.treadle/config.toml` when neither TREADLE_HOME nor CODEX_HOME is set):\n\n"
    '    model = "<model>"\n'
    '    model_provider = "mine"\n\n'
    "    [model_providers.mine]\n"
    '    base_url = "https://<host>/v1"\n'
    '    env_key = "<VARIABLE_WITH_YOUR_KEY>"\n'
)
_PROPOSAL: Final = "\n".join(
    [
        "",
        PLAN_TAG,
        "# A tour of the tools",
        "",
        *(f"{n}. {step}" for n, step in enumerate(_STEPS, start=1)),
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
    if not calls:
        return _answer(view)
    # The plan is not worth a request of its own where it can travel with the first real call.
    together = view.parallel and calls[0].name == "update_plan" and len(calls) > 1
    return calls[:2] if together else calls[:1]


def _script(view: View) -> list[Call]:
    """All calls from the first to the last, as far as they are known: the name of the note depends on the files."""
    calls = []
    if view.planning:
        return [_function("exec_command", {"cmd": LOOK})] if "exec_command" in view.tools else []
    if "update_plan" in view.tools and ("exec_command" in view.tools or "apply_patch" in view.tools):
        calls.append(_function("update_plan", {"explanation": "A tour of the tools.", "plan": _plan(view)}))
    if "exec_command" in view.tools:
        calls.append(_function("exec_command", {"cmd": LOOK}))
    if "apply_patch" in view.tools:
        calls.append(_patch(view))
    if "exec_command" in view.tools:
        look_at = f"cat {_note_name(view)}" if "apply_patch" in view.tools else "pwd"
        calls.append(_function("exec_command", {"cmd": look_at}))
    return calls


def _plan(view: View) -> list[dict[str, str]]:
    needed = ("exec_command", "apply_patch", "exec_command")
    steps = [step for step, tool in zip(_STEPS, needed, strict=True) if tool in view.tools]
    return [{"step": step, "status": "pending" if n else "in_progress"} for n, step in enumerate(steps)]


def _patch(view: View) -> Call:
    asked = _shorten(view.user_text) or "(nothing)"
    lines = ["# A note of Treadle's offline model", "", f"Asked: {asked}", f"Files seen: {len(_files(view))}"]
    patch = "\n".join(
        ["*** Begin Patch", f"*** Add File: {_note_name(view)}", *(f"+{line}" for line in lines), "*** End Patch", ""]
    )
    if view.tools["apply_patch"]:
        return Call("apply_patch", patch, free_form=True)
    return _function("apply_patch", {"input": patch})


def _function(name: str, arguments: dict[str, object]) -> Call:
    return Call(name, json.dumps(arguments, ensure_ascii=False))


def _made(call: Call, done: tuple[Done, ...]) -> bool:
    if call.name == "exec_command":
        return any(one.name == call.name and one.input == call.text for one in done)
    return any(one.name == call.name for one in done)


# --- what the outputs say --------------------------------------------------------------------------------------------


def _files(view: View) -> list[str]:
    """The names that the listing gave; none before it was made."""
    look = _function("exec_command", {"cmd": LOOK}).text
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
    parts = [_ABOUT]
    if view.done:
        parts.append("To show that everything else works, I made these calls and saw:\n")
        parts += [_report(one) for one in view.done]
    parts.append(f"You asked: {_shorten(view.user_text) or '(nothing)'}")
    if view.planning:
        parts.append(_PROPOSAL)
    return "\n".join(parts)


def _report(one: Done) -> str:
    lines = _body(one.output).strip().splitlines() or ["(no output)"]
    shown = [f"    {_shorten(line)}" for line in lines[:SHOWN_LINES]]
    if len(lines) > SHOWN_LINES:
        shown.append(f"    … and {len(lines) - SHOWN_LINES} more lines")
    return "\n".join([f"- {_title(one)}", "", *shown, ""])


def _title(one: Done) -> str:
    if one.name != "exec_command":
        return f"`{one.name}`"
    try:
        command = json.loads(one.input)["cmd"]
    except (ValueError, KeyError, TypeError):
        command = one.input
    return f"`exec_command`: `{_shorten(str(command))}`"


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
