"""`write_values`: edits keys of `config.toml` in place, and refuses an edit that would make the settings invalid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.config.configuration import check_document
from treadle.config.document import Document, Written, parse_document, rewrite_document
from treadle.config.overrides import KeyPath, lookup, merge, split_key, without_nulls
from treadle.config.problems import ConfigProblem, ConfigWriteError
from treadle.config.toml_edit import remove_value, set_value
from treadle.config.toml_scan import parse

if TYPE_CHECKING:
    from treadle.protocol.app.config import ConfigEdit


def write_values(home: Path, edits: Iterable[ConfigEdit], expected_version: str | None = None) -> Written:
    """Edit the file: all of the edits, or none. A value of null removes the key.

    Raises `ConfigWriteError` when `expected_version` is given and the file has another one, and when the new values
    are not allowed. `upsert` merges tables, `replace` puts one value for another.
    """

    def edit(document: Document) -> str:
        if expected_version is not None and expected_version != document.version:
            problem = "it was changed since it was read; read it again and repeat the edit"
            raise ConfigWriteError(problem, "configVersionConflict", path=document.path)
        return _edited(document, edits)

    return rewrite_document(home, edit)


def _edited(document: Document, edits: Iterable[ConfigEdit]) -> str:
    text = document.text
    for edit in edits:
        try:
            text = _apply(text, split_key(edit.key_path), edit)
        except ValueError as error:
            raise ConfigWriteError(str(error), "configValidationError", path=document.path, key=edit.key_path) from None
    # What was wrong before is no reason to refuse: this edit may be the first of several that mend it.
    earlier = {problem.key for problem in _problems(document.values)}
    for problem in _problems(parse_document(Path(document.path), text)):
        if problem.key not in earlier:
            raise ConfigWriteError(problem.problem, "configValidationError", path=document.path, key=problem.key)
    return text


def _problems(values: Mapping[str, Any]) -> tuple[ConfigProblem, ...]:
    error = check_document(values)
    return () if error is None else error.problems


def _apply(text: str, path: KeyPath, edit: ConfigEdit) -> str:
    if edit.value is None:
        return remove_value(text, path)
    value = without_nulls(edit.value)
    old = lookup(parse(text), path)
    if edit.merge_strategy == "upsert" and isinstance(old, Mapping) and isinstance(value, Mapping):
        value = merge(old, value)
    return set_value(text, path, value)
