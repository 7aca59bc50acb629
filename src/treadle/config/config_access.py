"""The configuration as clients read and edit it: `config_view` answers `config/read`, and `write_values` edits keys of
`config.toml` in place and refuses an edit that would make the settings invalid.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from treadle.config.configuration import Config, check_document
from treadle.config.file_settings import FileSettings
from treadle.config.home_files import (
    Document,
    Written,
    config_path,
    parse_document,
    read_document,
    rewrite_document,
    version_of,
)
from treadle.config.layers import KeyPath, join_key, leaves, lookup, merge, split_key, without_nulls
from treadle.config.problems import ConfigWriteError
from treadle.config.toml_edit import parse, remove_empty, remove_value, set_value
from treadle.protocol.app.base import encode
from treadle.protocol.app.config import (
    ConfigEdit,
    ConfigLayer,
    ConfigLayerMetadata,
    ConfigReadResponse,
    SessionFlagsConfigLayerSource,
    UserConfigLayerSource,
)

# Clients of Codex look for these, null when nobody has set them; one is ours alone.
_OFFERED: Final = tuple(name for name in FileSettings.__struct_fields__ if name != "offline")
_SHOWN_DEFAULTS: Final = ("model", "model_provider", "approval_policy", "sandbox_mode", "project_doc_max_bytes")


def config_view(config: Config, document: Document, *, include_layers: bool = False) -> ConfigReadResponse:
    """The answer to `config/read`: the settings in force, and which layer each came from. It goes to a client that may
    edit the file, so it contains everything in the file. `document` is the file as it is now."""
    # The lowest layer first. What the environment and the command line say is one layer: it is for this session.
    user = UserConfigLayerSource(file=document.path, profile=config.profile)
    layers = [ConfigLayer(config=document.values, name=user, version=document.version)]
    flags = merge(config.layers.environment, config.layers.flags)
    if flags:
        session = SessionFlagsConfigLayerSource()
        layers.append(ConfigLayer(config=flags, name=session, version=version_of(encode(flags))))
    origins = {
        join_key(path): ConfigLayerMetadata(name=layer.name, version=layer.version)
        for layer in layers
        for path in leaves(layer.config)
    }
    defaults = {**dict.fromkeys(_OFFERED), **{key: getattr(config, key) for key in _SHOWN_DEFAULTS}}
    defaults["model_provider_reason"] = config.chosen.because  # ours: why it is this provider
    return ConfigReadResponse(
        config=merge(defaults, config.document),
        origins=origins,
        layers=tuple(reversed(layers)) if include_layers else None,
    )


def write_values(home: Path, edits: Iterable[ConfigEdit], expected_version: str | None = None) -> Written:
    """Edit the file: all of the edits, or none. A value of null removes the key.

    Raises `ConfigWriteError` when `expected_version` is given and the file has another one, and when the new values
    are not allowed. `upsert` merges tables, `replace` puts one value for another.
    """

    def edited(document: Document) -> str:
        if expected_version is not None and expected_version != document.version:
            conflict = "it was changed since it was read; read it again and repeat the edit"
            raise ConfigWriteError(conflict, "configVersionConflict", path=document.path)
        text = document.text
        removed: list[KeyPath] = []
        for edit in edits:
            try:
                path = split_key(edit.key_path)
                text = _apply(text, path, edit)
            except ValueError as error:
                raise ConfigWriteError(
                    str(error), "configValidationError", path=document.path, key=edit.key_path
                ) from None
            if edit.value is None:
                removed.append(path)
        for path in removed:
            # The profile that is chosen has to be there, though it may be empty.
            text = remove_empty(text, path, keep=("profiles", str(parse(text).get("profile"))))
        # What was wrong before is no reason to refuse: this edit may be the first of several that mend it.
        before = check_document(document.values)
        known = {problem.key for problem in before.problems} if before is not None else set()
        after = check_document(parse_document(Path(document.path), text))
        for problem in after.problems if after is not None else ():
            if problem.key not in known:
                raise ConfigWriteError(problem.problem, "configValidationError", path=document.path, key=problem.key)
        return text

    return rewrite_document(home, edited)


def write_value(home: Path, path: KeyPath, value: object) -> Written:
    """Put a value, or a table, into the file in place of the one that there may be; None removes that. Raises
    `ConfigWriteError`."""
    return write_values(home, [ConfigEdit(key_path=join_key(path), value=value, merge_strategy="replace")])


def skill_edit(
    values: Mapping[str, Any], *, path: str | None = None, name: str | None = None, enabled: bool
) -> ConfigEdit:
    """The edit of a file with these values that turns a skill on or off: the rule for its path or its name, in place of
    those that there are. Blocking."""
    # Skills are known by their paths without links.
    key, value = ("name", name) if path is None else ("path", os.path.realpath(path))
    rules = lookup(values, ("skills", "config"))
    kept = (
        [rule for rule in rules if isinstance(rule, Mapping) and rule.get(key) != value]
        if isinstance(rules, list)
        else []
    )
    # The last rule counts: without one of its own the skill could still be off by another.
    if not enabled or any(key not in rule and rule.get("enabled") is False for rule in kept):
        kept.append({key: value, "enabled": enabled})
    return ConfigEdit(key_path="skills.config", merge_strategy="replace", value=kept or None)


def remember_tool_approval(home: Path, server: str, tool: str) -> Written:
    """Write that nobody is asked any more before a tool of an MCP server runs, into each table of the file that defines
    the server, profiles included. Raises `ConfigWriteError` for a server that is not in the file: one of a thread or of
    the command line, whose table would be half a table there."""
    values = read_document(home).values
    profiles = values.get("profiles")
    names = profiles if isinstance(profiles, Mapping) else ()
    places: list[KeyPath] = [(), *(("profiles", name) for name in names)]
    tables = [(*place, "mcp_servers", server) for place in places]
    found = [path for path in tables if any(lookup(values, (*path, key)) is not None for key in ("command", "url"))]
    if not found:
        problem = f"the MCP server `{server}` is not in the file; add it there, or allow the tool for the session"
        raise ConfigWriteError(problem, "configValidationError", path=str(config_path(home)))
    keys = [join_key((*path, "tools", tool, "approval_mode")) for path in found]
    return write_values(home, [ConfigEdit(key_path=key, value="approve", merge_strategy="replace") for key in keys])


def _apply(text: str, path: KeyPath, edit: ConfigEdit) -> str:
    if edit.value is None:
        return remove_value(text, path)
    value = without_nulls(edit.value)
    old = lookup(parse(text), path)
    if edit.merge_strategy == "upsert" and isinstance(old, Mapping) and isinstance(value, Mapping):
        value = merge(old, value)
    return set_value(text, path, value)
