"""The tools `skills_list`, `skill_view` and `skill_manage`: how a model reads and changes skills."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from treadle.client.tools import Tool, ToolCallError
from treadle.host.injection import find_injection
from treadle.host.refused import Refused
from treadle.host.skills.skill import MARKERS, Skill, SkillAction, SkillChange

if TYPE_CHECKING:
    from treadle.host.skills.editor import SkillEditor
    from treadle.host.skills.skill_store import SkillStore

OnChange: TypeAlias = Callable[[SkillChange], None]


def skill_tools(store: SkillStore, on_change: OnChange | None, must_read: bool) -> list[Tool]:
    editor = store.editor(must_read=must_read)

    def skills_list(category: str | None = None) -> str:
        """All skills by name, with what each is for. Read one with `skill_view` before you use it.

        Args:
            category: Only those of this category.
        """
        try:
            lines = [_line(skill) for skill in store.skills() if not category or skill.category == category]
        except Refused as error:
            raise ToolCallError(str(error)) from error
        return "\n".join(lines) or "There are no skills."

    def skill_view(name: str, file: str | None = None) -> str:
        """Read a skill: how something is done, learned from doing it. Read it before you do that, or change the skill.

        Args:
            name: The skill's name, or `category/name` where two have the same.
            file: One of its files, such as `references/notes.md`; its SKILL.md without it.
        """
        try:
            return editor.view(name, file)
        except Refused as error:
            raise ToolCallError(str(error)) from error

    def skill_manage(
        action: SkillAction,
        name: str,
        content: str | None = None,
        category: str | None = None,
        file: str | None = None,
        old_text: str | None = None,
        new_text: str | None = None,
        replace_all: bool = False,
    ) -> str:
        """Keep how something is done as a skill, or improve one. What exists has to be read with `skill_view` first.

        A skill is worth keeping when a task took effort, will come again, and is not obvious: the steps that worked,
        the traps, how to check the result. One skill is for one kind of task; prefer to patch a skill over creating one
        beside it. Files beside it hold what is long: `references`, `templates`, `scripts`, `assets`. Never put secrets
        in. Some skills are protected or pinned by the user and cannot be changed.

        Args:
            action: `create` a skill, `patch` a part of a file, `edit` the whole SKILL.md, `delete` a skill,
                `write_file` or `remove_file` beside the SKILL.md.
            name: The skill's name: lower-case letters, digits, `.`, `_` and `-`.
            content: For `create` and `edit` the whole SKILL.md, which begins with front matter: a line `---`, `name:`,
                `description:` (when to use it), a line `---`. For `write_file` the text of the file.
            category: For `create`: a folder to put it into.
            file: A path such as `references/notes.md`, for `write_file`, `remove_file` and `patch` (else SKILL.md).
            old_text: For `patch`: the part to replace, exactly, and only once in the file.
            new_text: For `patch`: what to put there; empty to remove it.
            replace_all: For `patch`: replace it wherever it is.
        """
        try:
            change = _manage(editor, action, name, content, category, file, old_text, new_text, replace_all)
        except Refused as error:
            raise ToolCallError(str(error)) from error
        if on_change is not None:
            on_change(change)
        return f"Done: {told(change)}."

    return [Tool(skills_list), Tool(skill_view), Tool(skill_manage)]


def _manage(
    editor: SkillEditor,
    action: SkillAction,
    name: str,
    content: str | None,
    category: str | None,
    file: str | None,
    old_text: str | None,
    new_text: str | None,
    replace_all: bool,
) -> SkillChange:
    match action:
        case "create":
            return editor.create(name, _given("content", content, action), category)
        case "edit":
            return editor.edit(name, _given("content", content, action))
        case "patch":
            old, new = _given("old_text", old_text, action), _given("new_text", new_text, action)
            return editor.patch(name, old, new, file, replace_all=replace_all)
        case "delete":
            return editor.delete(name)
        case "write_file":
            return editor.write_file(name, _given("file", file, action), _given("content", content, action))
        case "remove_file":
            return editor.remove_file(name, _given("file", file, action))


def _given(parameter: str, value: str | None, action: SkillAction) -> str:
    if value is None:
        raise Refused("invalid", f"`{action}` needs `{parameter}`")
    return value


def _line(skill: Skill) -> str:
    reason = skill.problem or find_injection(skill.description)
    mark = "" if skill.marker is None else f" (not to be changed: {MARKERS[skill.marker]})"
    return (
        f"- {skill.path}{mark}: {skill.description}" if reason is None else f"- {skill.path}: cannot be used: {reason}"
    )


def told(change: SkillChange) -> str:
    """What was done, for a line to a person: `patched skill deploy-checks`."""
    past = {"create": "created", "patch": "patched", "edit": "rewrote", "delete": "deleted"}
    if change.action in past and change.file is None:
        return f"{past[change.action]} skill {change.name}"
    verb = {"write_file": "wrote", "remove_file": "removed", "patch": "patched"}[change.action]
    return f"{verb} {change.file} of skill {change.name}"
