"""What a user says: `UserInput`, a union told apart by `type`."""

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from treadle.protocol.app.base import Closed, Variant, Wire, Word


class ImageDetail(Word):
    auto = "auto"
    low = "low"
    high = "high"
    original = "original"


class ByteRange(Wire, frozen=True, kw_only=True):
    end: int
    start: int


class TextElement(Wire, frozen=True, kw_only=True):
    byte_range: ByteRange
    placeholder: str | None = None


class TextUserInput(Variant, frozen=True, kw_only=True, tag="text"):
    text: str
    text_elements: tuple[TextElement, ...] = field(name="text_elements", default=())


class ImageUserInput(Variant, frozen=True, kw_only=True, tag="image"):
    """By `url` or by `file_id`: one of the two is there."""

    url: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET
    detail: Closed[ImageDetail] | None = None


class LocalImageUserInput(Variant, frozen=True, kw_only=True, tag="localImage"):
    path: str
    detail: Closed[ImageDetail] | None = None


class AudioUserInput(Variant, frozen=True, kw_only=True, tag="audio"):
    url: str


class LocalAudioUserInput(Variant, frozen=True, kw_only=True, tag="localAudio"):
    path: str


class SkillUserInput(Variant, frozen=True, kw_only=True, tag="skill"):
    name: str
    path: str


class MentionUserInput(Variant, frozen=True, kw_only=True, tag="mention"):
    name: str
    path: str


UserInput = (
    TextUserInput
    | ImageUserInput
    | LocalImageUserInput
    | AudioUserInput
    | LocalAudioUserInput
    | SkillUserInput
    | MentionUserInput
)
