"""`model/list` and what a provider can do."""

from __future__ import annotations

from treadle.config import InvalidCursor
from treadle.config import list_models as catalog
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.models import ModelListResponse, ModelProviderCapabilitiesReadResponse
from treadle.server.client import Call


def list_models(call: Call) -> ModelListResponse:
    try:
        return catalog(call.server.shown_config, call.params)
    except InvalidCursor as error:
        raise RpcError(INVALID_REQUEST, str(error)) from None


def read_capabilities(call: Call) -> ModelProviderCapabilitiesReadResponse:
    return ModelProviderCapabilitiesReadResponse(image_generation=False, web_search=False)
