"""`ModelClients`: the model clients in use, one per provider, and the settings that a thread was given on top of ours;
`ModelLists`: the lists of models that providers give, cached, so that a client's list costs no wait.

A provider that does not answer soon has no list, for a minute: the catalogue is shown then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from treadle.llm import Model, ModelError
from treadle.llm.known_providers import OFFLINE

if TYPE_CHECKING:
    from treadle.agent.thread.thread_state import Settings
    from treadle.config import Config
    from treadle.llm.provider import KeySource, ProviderConfig
    from treadle.llm.provider_models import ModelListing
    from treadle.server.app import AppServer


logger: logging.Logger = logging.getLogger(__name__)
# Threads with settings of their own; those of threads that are not used are made again when they are.
MAX_CONFIGS: Final = 256
# Clients of providers, each with its connections and its TLS settings: threads may have providers of their own.
MAX_MODELS: Final = 64
_NOT_OFFLINE: Final = (
    "this thread uses the offline provider, which has no model `{model}`; start a thread with a provider that has it, "
    "or set model_provider in config.toml"
)
_FORBIDDEN: Final = (
    "this thread uses the offline model, which is forbidden (`offline` is false); start a thread with another provider"
)


class ModelClients:
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
            config = self._server.latest_config.with_thread_overrides(settings.config, stored=True)
            self._configs[key] = config
            while len(self._configs) > MAX_CONFIGS:
                self._configs.popitem(last=False)
        return config

    def forget_configs(self) -> None:
        """The settings below them have changed."""
        self._configs.clear()

    def model_for(self, settings: Settings) -> Model:
        provider_id = settings.model_provider
        in_force = self.config_for(settings)
        config = in_force.providers.get(provider_id)
        if provider_id == OFFLINE and in_force.offline is False:
            raise ModelError(_FORBIDDEN)
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


# A client shows the list while somebody waits.
DEADLINE_S: Final = 2.0
KEPT_S: Final = 300.0
FAILURE_KEPT_S: Final = 60.0
MAX_LISTS: Final = 64


class ModelLists:
    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = environ
        self._lists: dict[bytes, tuple[float, Sequence[ModelListing]]] = {}  # until when, by provider
        self._asking = asyncio.Lock()

    async def of(self, config: Config, provider: ProviderConfig, key: KeySource) -> Sequence[ModelListing]:
        """What the provider lists, with all that is known of each; nothing when it cannot be asked."""
        name = msgspec.json.encode(provider)
        async with self._asking:  # whoever comes meanwhile gets the same list
            until, offers = self._lists.get(name, (0.0, ()))
            now = asyncio.get_running_loop().time()
            if now >= until:
                offers = await _ask(config, provider, key, self._environ)
                if len(self._lists) >= MAX_LISTS:
                    self._lists.clear()
                self._lists[name] = now + (KEPT_S if offers else FAILURE_KEPT_S), offers
        return offers


async def _ask(
    config: Config, provider: ProviderConfig, key: KeySource, environ: Mapping[str, str] | None
) -> Sequence[ModelListing]:
    # Loaded with the first list of models that is asked for.
    from treadle.config.model_catalogue import with_known_facts
    from treadle.llm import ModelError
    from treadle.llm.provider_models import list_provider_models

    try:
        found = await list_provider_models(provider, login_key=key, environ=environ, deadline_s=DEADLINE_S)
        return with_known_facts(found, config)
    except ModelError as error:
        logger.info("no list of models from `%s`: %s", provider.id, error.message)
        return ()
