"""`Models`: the model clients in use, one per provider, and the settings that a thread was given on top of ours."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from treadle.llm import Model, ModelError
from treadle.llm.known_providers import OFFLINE

if TYPE_CHECKING:
    from treadle.agent.state import Settings
    from treadle.config import Config
    from treadle.server.app import AppServer

# Threads with settings of their own; those of threads that are not used are made again when they are.
MAX_CONFIGS: Final = 256
# Clients of providers, each with its connections and its TLS settings: threads may have providers of their own.
MAX_MODELS: Final = 64
_NOT_OFFLINE: Final = (
    "this thread uses the offline provider, which has no model `{model}`; start a thread with a provider that has it, "
    "or set model_provider in config.toml"
)


class Models:
    def __init__(self, server: AppServer) -> None:
        self._server = server
        self._models: OrderedDict[Any, Model] = OrderedDict()  # by provider id and settings, last used last
        self._configs: OrderedDict[bytes, Config] = OrderedDict()

    def config_for(self, settings: Settings) -> Config:
        if not settings.config:
            return self._server.latest_config
        key = msgspec.json.encode(settings.config)
        config = self._configs.get(key)
        if config is None:
            config = self._configs[key] = self._server.latest_config.with_thread_overrides(settings.config)
            while len(self._configs) > MAX_CONFIGS:
                self._configs.popitem(last=False)
        return config

    def forget_configs(self) -> None:
        """The settings below them have changed."""
        self._configs.clear()

    def model_for(self, settings: Settings) -> Model:
        provider_id = settings.model_provider
        config = self.config_for(settings).providers.get(provider_id)
        if config is None and provider_id != OFFLINE:
            raise ModelError(
                f"model provider `{provider_id}` is not configured; add [model_providers.{provider_id}] to config.toml"
            )
        if provider_id == OFFLINE and settings.model != OFFLINE:
            raise ModelError(_NOT_OFFLINE.format(model=settings.model))
        key = (provider_id, None if config is None else msgspec.json.encode(config))
        model = self._models.pop(key, None)
        if model is None:
            model = self._make(config)
        self._models[key] = model
        if len(self._models) > MAX_MODELS:
            self._close_unused()
        return model

    def _close_unused(self) -> None:
        """The one that was not used for the longest time; if all are in use, they are as many as turns run."""
        from treadle.llm.provider_model import ProviderModel  # loaded with the first of them

        *others, _ = self._models.items()
        for key, model in others:
            if isinstance(model, ProviderModel) and not model.is_busy:
                del self._models[key]
                self._server.spawn(model.close(), "closing connections to a model")
                return

    def _make(self, config: Any) -> Model:
        if config is None:
            from treadle.llm.offline import OfflineModel  # each is loaded when it is used

            return OfflineModel()
        from treadle.llm.provider_model import ProviderModel  # the HTTP client comes with it

        server = self._server
        return ProviderModel(config, login_key=server.key_source(config), environ=server.environ)

    async def close(self) -> None:
        for model in self._models.values():
            await model.close()
