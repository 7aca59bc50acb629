"""Reading a skill: its front matter, and `agents/openai.yaml` beside it. Owns what they may say, and the limits."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from treadle.execution.user_files import read_regular
from treadle.protocol.app.extensions import SkillInterface, SkillToolDependency
from treadle.skills.skill_files import METADATA, BrokenSkill, Scope, Skill
from treadle.skills.skill_yaml import Value, YamlError, front_matter, read_yaml

if TYPE_CHECKING:
    from treadle.execution.project_files import ProjectFiles

MAX_NAME: Final = 64
# Of what a skill that is written here may have. A longer one is cut in the list for the model.
MAX_DESCRIPTION: Final = 1024
# The front matter is at the beginning; what is written below it is not read here.
MAX_HEAD: Final = 64 << 10
MAX_TOOLS: Final = 20
NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")
"""What a new skill is called: it can be mentioned as `$name`, and is the name of its folder."""

_ICONS: Final = ("icon_small", "icon_large")


def read_skill(path: str, scope: Scope, project: ProjectFiles | None = None) -> tuple[Skill, BrokenSkill | None]:
    """A skill, and what is wrong with its metadata. Raises `ValueError`, which says what is wrong with the file.
    `project`: the one that has it, if it is not the user's own."""
    head = _read(path, project)
    if head is None:
        left_out = {} if project is None else project.left_out
        raise ValueError(left_out.get(path, "it cannot be read, or is not a regular file"))
    fields = front_matter(head)
    name, description = described(fields, os.path.basename(os.path.dirname(path)))
    more = fields.get("metadata")
    short = one_line_of(more, "short-description") if isinstance(more, dict) else ""
    skill = Skill(name, description, path, "/", scope, short_description=short or None)
    metadata = os.path.join(os.path.dirname(path), METADATA)
    try:
        text = _read(metadata, project)
        if text is None:
            if not (os.path.lexists(metadata) if project is None else project.has(metadata)):
                return skill, None
            raise YamlError("it cannot be read, or is not a regular file")
        return _with_metadata(skill, read_yaml(text)), None
    except YamlError as error:
        # It may say that the model must not choose the skill: without it, only the user does.
        reason = project.left_out.get(metadata, str(error)) if project is not None else str(error)
        return skill._replace(implicit=False), BrokenSkill(metadata, reason)


def described(fields: dict[str, Value], folder: str) -> tuple[str, str]:
    """The name and the description in a front matter; `folder` is the name where none is given. Raises `YamlError`."""
    name, description = one_line_of(fields, "name") or folder, one_line_of(fields, "description")
    if not description:
        raise YamlError("missing field `description`")
    if len(name) > MAX_NAME:
        raise YamlError(f"invalid name: exceeds maximum length of {MAX_NAME} characters")
    return name, description


def one_line_of(fields: dict[str, Value], key: str) -> str:
    """A text on one line; empty where there is none."""
    value = fields.get(key, "")
    if not isinstance(value, str):
        raise YamlError(f"invalid YAML: `{key}` is not a text; put it into quotes")
    return " ".join(value.split())


def _read(path: str, project: ProjectFiles | None) -> str | None:
    found = read_regular(path, MAX_HEAD) if project is None else project.read(path, MAX_HEAD, inside=True)
    return None if found is None else found[0].decode("utf-8", "replace")


def _with_metadata(skill: Skill, fields: dict[str, Value]) -> Skill:
    """What `agents/openai.yaml` says: how clients show the skill, what it needs, and who may choose it."""
    interface = _table(fields, "interface")
    texts = {key: one_line_of(interface, key) or None for key in interface if key in SkillInterface.__struct_fields__}
    folder = os.path.dirname(skill.path)
    for key in _ICONS:
        if (icon := texts.get(key)) is not None:
            texts[key] = os.path.normpath(os.path.join(folder, icon))
    tools = _table(fields, "dependencies").get("tools") or []
    if not isinstance(tools, list) or len(tools) > MAX_TOOLS:
        raise YamlError(f"invalid YAML: `dependencies.tools` is not a list of up to {MAX_TOOLS} tables")
    needed = []
    for tool in tools:
        if not isinstance(tool, dict) or not (one_line_of(tool, "type") and one_line_of(tool, "value")):
            raise YamlError("invalid YAML: a member of `dependencies.tools` has no `type` or no `value`")
        given = {key: one_line_of(tool, key) for key in SkillToolDependency.__struct_fields__ if key in tool}
        needed.append(SkillToolDependency(**given))
    policy = one_line_of(_table(fields, "policy"), "allow_implicit_invocation").lower()
    if policy not in ("", "true", "false"):
        raise YamlError("invalid YAML: `policy.allow_implicit_invocation` is neither true nor false")
    shown = SkillInterface(**texts) if texts else None
    return skill._replace(interface=shown, tools=tuple(needed), implicit=policy != "false")


def _table(fields: dict[str, Value], key: str) -> dict[str, Value]:
    value = fields.get(key) or {}
    if not isinstance(value, dict):
        raise YamlError(f"invalid YAML: `{key}` is not a table")
    return value
