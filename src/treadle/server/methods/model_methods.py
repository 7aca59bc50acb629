"""`model/list`, what a provider can do, and the modes that a model can work in."""

from __future__ import annotations

from treadle.config import InvalidCursor
from treadle.config import list_models as catalog
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.models import (
    ModelListParams,
    ModelListResponse,
    ModelProviderCapabilitiesReadParams,
    ModelProviderCapabilitiesReadResponse,
)
from treadle.protocol.app.settings import (
    CollaborationModeListParams,
    CollaborationModeListResponse,
    CollaborationModeMask,
)
from treadle.server.client_base import Call


async def list_models(call: Call[ModelListParams]) -> ModelListResponse:
    server = call.server
    config = server.shown_config
    provider = config.provider
    offers = () if provider is None else await server.offers.of(config, server.key_source(provider))
    try:
        return catalog(config, call.params, offers)
    except InvalidCursor as error:
        raise RpcError(INVALID_REQUEST, str(error)) from None


def read_capabilities(call: Call[ModelProviderCapabilitiesReadParams]) -> ModelProviderCapabilitiesReadResponse:
    return ModelProviderCapabilitiesReadResponse(image_generation=False, web_search=False)


def list_collaboration_modes(call: Call[CollaborationModeListParams]) -> CollaborationModeListResponse:
    plan = CollaborationModeMask(name="Plan", mode="plan", reasoning_effort="medium")
    return CollaborationModeListResponse(data=(plan, CollaborationModeMask(name="Default", mode="default")))
