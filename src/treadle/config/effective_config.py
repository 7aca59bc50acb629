"""The answer to `config/read`: the settings in force, and which layer each came from.

It goes to a client that may edit the file, so it contains everything in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from treadle.config.configuration import Config
from treadle.config.document import Document, version_of
from treadle.config.file_settings import Settings
from treadle.config.overrides import KeyPath, Table, join_key, merge
from treadle.protocol.app.base import encode
from treadle.protocol.app.config import (
    ConfigLayer,
    ConfigLayerMetadata,
    ConfigReadResponse,
    SessionFlagsConfigLayerSource,
    UserConfigLayerSource,
)

# Clients of Codex look for these, null when nobody has set them.
_OFFERED: Final = tuple(Settings.__struct_fields__)
_SHOWN_DEFAULTS: Final = ("model", "model_provider", "approval_policy", "sandbox_mode", "project_doc_max_bytes")


def config_view(config: Config, document: Document, *, include_layers: bool = False) -> ConfigReadResponse:
    """What is in force, as the protocol shows it; `document` is the file as it is now."""
    layers = _layers(config, document)
    origins = {
        join_key(path): ConfigLayerMetadata(name=layer.name, version=layer.version)
        for layer in layers
        for path in _leaves(layer.config)
    }
    defaults = {**dict.fromkeys(_OFFERED), **{key: getattr(config, key) for key in _SHOWN_DEFAULTS}}
    defaults["model_provider_reason"] = config.chosen.because  # ours: why it is this provider
    return ConfigReadResponse(
        config=merge(defaults, config.document),
        origins=origins,
        layers=tuple(reversed(layers)) if include_layers else None,
    )


def _layers(config: Config, document: Document) -> list[ConfigLayer]:
    """The lowest first. What the environment and the command line say is one layer: it is for this session."""
    user = UserConfigLayerSource(file=document.path, profile=config.profile)
    layers = [ConfigLayer(config=document.values, name=user, version=document.version)]
    flags: Table = merge(config.layers.environment, config.layers.flags)
    if flags:
        session = SessionFlagsConfigLayerSource()
        layers.append(ConfigLayer(config=flags, name=session, version=version_of(encode(flags))))
    return layers


def _leaves(table: Mapping[str, Any], above: KeyPath = ()) -> Iterator[KeyPath]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key)
