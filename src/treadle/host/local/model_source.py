"""`ModelSource`: which model a local runtime asks, at which server and with which key.

The rules are those of the configuration, overlaid with what was passed to the runtime. Nothing is sent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct, structs

from treadle.config import COMPACT_PROMPT, ConfigError, Login, find_home, load_config, model_facts
from treadle.config.overrides import join_key
from treadle.config.stored_keys import key_source
from treadle.config.toml_text import value_text
from treadle.host.faults import Fault, RuntimeFault
from treadle.llm import Model, ProviderConfig, ProviderConfigError
from treadle.llm.catalogue import Price
from treadle.llm.known_providers import ANTHROPIC, OFFLINE, OPENAI, default_model

LocalWire: TypeAlias = Literal["responses", "chat_completions", "anthropic"]
WIRES: Final[Mapping[LocalWire, str]] = {"responses": "responses", "chat_completions": "chat", "anthropic": "anthropic"}


class ModelArguments(Struct, frozen=True, kw_only=True):
    """What the user of a runtime passed about the model; None leaves it to the configuration."""

    wire: LocalWire
    provider: str | None = None
    api_key: str | None = None
    base_url: str | None = None
    model: str | None = None

    def __repr__(self) -> str:
        return f"ModelArguments(wire={self.wire!r}, provider={self.provider!r}, model={self.model!r})"


class ModelSource(Struct, kw_only=True):
    """A model that can be asked. `provider` is None for the offline model."""

    model: Model
    name: str
    provider: ProviderConfig | None
    context_window: int
    price: Price | None
    compact_prompt: str
    given_key: bool

    @property
    def max_retries(self) -> int:
        """How often a response that broke off is asked for again."""
        return 0 if self.provider is None else self.provider.stream_max_retries


def find_model(given: ModelArguments, model: str | None, environ: Mapping[str, str] | None = None) -> ModelSource:
    """The model to ask. Raises `RuntimeFault` when the configuration does not say one that can be used.

    Args:
        given: What was said when the runtime was made.
        model: What the thread wants.
        environ: The environment; this program's without it.
    """
    environ = os.environ if environ is None else environ
    try:
        return _find(given, model or given.model, find_home(environ), environ)
    except (ConfigError, ProviderConfigError) as error:
        raise RuntimeFault(Fault(kind="startup", message=str(error))) from None


def _find(given: ModelArguments, model: str | None, home: Path, environ: Mapping[str, str]) -> ModelSource:
    provider_id = _provider(given, model, home, environ)
    if model is None and provider_id is not None:
        model = _usual_model(provider_id, home, environ)
    overrides = list(_overrides(given, provider_id, model))
    config = load_config(home, overrides=overrides, environ=environ).config
    facts = model_facts(config.model, config)
    provider = config.provider
    if provider is not None:
        provider = structs.replace(provider, wire_api=WIRES[given.wire])
    return ModelSource(
        model=_model(given, provider, home, environ),
        name=config.model,
        provider=provider,
        context_window=facts.context_window,
        price=facts.price,
        compact_prompt=config.compact_prompt or COMPACT_PROMPT,
        given_key=given.api_key is not None,
    )


def _provider(given: ModelArguments, model: str | None, home: Path, environ: Mapping[str, str]) -> str | None:
    """The provider that is meant; None leaves it to the configuration."""
    if given.provider is not None:
        return given.provider
    usual = ANTHROPIC if given.wire == "anthropic" else OPENAI
    if given.api_key is not None or given.base_url is not None:
        return usual
    if given.wire != "anthropic":
        return None
    try:
        config = load_config(home, environ=environ).config
        chosen = config.providers.get(config.model_choice(model, None).provider)
    except ConfigError:
        return usual
    return chosen.id if chosen is not None and chosen.wire_api == "anthropic" else usual


def _usual_model(provider_id: str, home: Path, environ: Mapping[str, str]) -> str | None:
    """The model of the configuration is meant for the provider of the configuration."""
    try:
        chosen = load_config(home, environ=environ).config.chosen
    except ConfigError:
        return default_model(provider_id)
    return chosen.model if chosen.provider == provider_id else default_model(provider_id)


def _overrides(given: ModelArguments, provider_id: str | None, model: str | None) -> Iterator[str]:
    if model is not None:
        yield f"model={value_text(model)}"
    if provider_id is None:
        return
    yield f"model_provider={value_text(provider_id)}"
    if given.base_url is not None and provider_id != OFFLINE:
        yield f"{join_key(('model_providers', provider_id, 'base_url'))}={value_text(given.base_url)}"


def _model(given: ModelArguments, provider: ProviderConfig | None, home: Path, environ: Mapping[str, str]) -> Model:
    if provider is None:
        from treadle.llm.offline import OfflineModel  # loaded when it is chosen

        return OfflineModel()
    from treadle.llm.provider_model import ProviderModel  # loaded when it is chosen

    if given.api_key is not None:
        key = given.api_key
        # In the header that the wire API has for keys, as one from the environment would be.
        own = structs.replace(provider, env_key=None, experimental_bearer_token=None, requires_openai_auth=True)
        return ProviderModel(own, login_key=lambda: key, environ=environ)
    return ProviderModel(provider, login_key=key_source(provider, Login(home), environ), environ=environ)
