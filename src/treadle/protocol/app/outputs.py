"""What a tool gave to the model: `FunctionCallOutputBody`, in the words of the model's own API."""

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from treadle.protocol.app.base import Closed, Variant
from treadle.protocol.app.inputs import ImageDetail


class InputTextFunctionCallOutputContentItem(Variant, frozen=True, kw_only=True, tag="input_text"):
    text: str


class InputImageFunctionCallOutputContentItem(Variant, frozen=True, kw_only=True, tag="input_image"):
    """By `image_url` or by `file_id`: one of the two is there."""

    image_url: str | UnsetType = field(name="image_url", default=UNSET)
    file_id: str | UnsetType = field(name="file_id", default=UNSET)
    detail: Closed[ImageDetail] | None = None


class InputAudioFunctionCallOutputContentItem(Variant, frozen=True, kw_only=True, tag="input_audio"):
    audio_url: str = field(name="audio_url")


class EncryptedContentFunctionCallOutputContentItem(Variant, frozen=True, kw_only=True, tag="encrypted_content"):
    encrypted_content: str = field(name="encrypted_content")


FunctionCallOutputContentItem = (
    InputTextFunctionCallOutputContentItem
    | InputImageFunctionCallOutputContentItem
    | InputAudioFunctionCallOutputContentItem
    | EncryptedContentFunctionCallOutputContentItem
)
FunctionCallOutputBody = str | tuple[FunctionCallOutputContentItem, ...]
