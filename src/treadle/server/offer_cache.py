"""`Offers`: the lists of models that providers give, kept for a while, so that a client's list costs no wait.

It owns when a provider is asked. One that does not answer soon has no list, for a minute: the catalogue is shown then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from treadle.config import Config
    from treadle.llm.offers import Offer
    from treadle.llm.provider import KeySource

logger: logging.Logger = logging.getLogger(__name__)

# A client shows the list while somebody waits.
DEADLINE_S: Final = 2.0
KEPT_S: Final = 300.0
FAILURE_KEPT_S: Final = 60.0
MAX_LISTS: Final = 64


class Offers:
    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = environ
        self._lists: dict[bytes, tuple[float, Sequence[Offer]]] = {}  # until when, by provider
        self._asking = asyncio.Lock()

    async def of(self, config: Config, key: KeySource) -> Sequence[Offer]:
        """What the provider in use lists, with all that is known of each; nothing when it cannot be asked."""
        provider = config.provider
        if provider is None:
            return ()
        name = msgspec.json.encode(provider)
        async with self._asking:  # whoever comes meanwhile gets the same list
            until, offers = self._lists.get(name, (0.0, ()))
            now = asyncio.get_running_loop().time()
            if now >= until:
                offers = await _ask(config, key, self._environ)
                if len(self._lists) >= MAX_LISTS:
                    self._lists.clear()
                self._lists[name] = now + (KEPT_S if offers else FAILURE_KEPT_S), offers
        return offers


async def _ask(config: Config, key: KeySource, environ: Mapping[str, str] | None) -> Sequence[Offer]:
    # Loaded with the first list of models that is asked for.
    from treadle.config.model_catalogue import with_known_facts
    from treadle.llm import ModelError
    from treadle.llm.offers import list_offers

    assert config.provider is not None
    try:
        found = await list_offers(config.provider, login_key=key, environ=environ, deadline_s=DEADLINE_S)
        return with_known_facts(found, config)
    except ModelError as error:
        logger.info("no list of models from `%s`: %s", config.provider.id, error.message)
        return ()
