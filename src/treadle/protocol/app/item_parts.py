"""What items consist of: input of a user, output of a tool, what a command does, what a patch changes, and the tools
that a client runs (experimental in Codex)."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType, field

from treadle.protocol.app.base import Closed, OrUnknown, Variant, Wire, Word


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
    """A picture, by `url` or by `file_id`: one of the two is there."""

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


# --- outputs of tools, in the words of the model's own API ---


class InputTextFunctionCallOutputContentItem(Variant, frozen=True, kw_only=True, tag="input_text"):
    text: str


class InputImageFunctionCallOutputContentItem(Variant, frozen=True, kw_only=True, tag="input_image"):
    """A picture, by `image_url` or by `file_id`: one of the two is there."""

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


# --- what a command does, as far as its text shows, and what a patch changes ---


class ReadCommandAction(Variant, frozen=True, kw_only=True, tag="read"):
    command: str
    name: str
    path: str


class ListFilesCommandAction(Variant, frozen=True, kw_only=True, tag="listFiles"):
    command: str
    path: str | None = None


class SearchCommandAction(Variant, frozen=True, kw_only=True, tag="search"):
    command: str
    path: str | None = None
    query: str | None = None


class UnknownCommandAction(Variant, frozen=True, kw_only=True, tag="unknown"):
    command: str


CommandAction = ReadCommandAction | ListFilesCommandAction | SearchCommandAction | UnknownCommandAction


class AddPatchChangeKind(Variant, frozen=True, kw_only=True, tag="add"):
    pass


class DeletePatchChangeKind(Variant, frozen=True, kw_only=True, tag="delete"):
    pass


class UpdatePatchChangeKind(Variant, frozen=True, kw_only=True, tag="update"):
    move_path: str | None = field(name="move_path", default=None)


PatchChangeKind = AddPatchChangeKind | DeletePatchChangeKind | UpdatePatchChangeKind


class FileUpdateChange(Wire, frozen=True, kw_only=True):
    diff: str
    kind: OrUnknown[PatchChangeKind]
    path: str


# --- tools that the client runs ---


class FunctionDynamicToolNamespaceTool(Variant, frozen=True, kw_only=True, tag="function"):
    description: str
    input_schema: Any
    name: str
    defer_loading: bool = False


DynamicToolNamespaceTool = FunctionDynamicToolNamespaceTool


class FunctionDynamicToolSpec(Variant, frozen=True, kw_only=True, tag="function"):
    description: str
    input_schema: Any
    name: str
    defer_loading: bool = False


class NamespaceDynamicToolSpec(Variant, frozen=True, kw_only=True, tag="namespace"):
    description: str
    name: str
    tools: tuple[DynamicToolNamespaceTool, ...]


DynamicToolSpec = FunctionDynamicToolSpec | NamespaceDynamicToolSpec


class InputTextDynamicToolCallOutputContentItem(Variant, frozen=True, kw_only=True, tag="inputText"):
    text: str


class InputImageDynamicToolCallOutputContentItem(Variant, frozen=True, kw_only=True, tag="inputImage"):
    image_url: str


class InputAudioDynamicToolCallOutputContentItem(Variant, frozen=True, kw_only=True, tag="inputAudio"):
    audio_url: str


DynamicToolCallOutputContentItem = (
    InputTextDynamicToolCallOutputContentItem
    | InputImageDynamicToolCallOutputContentItem
    | InputAudioDynamicToolCallOutputContentItem
)


class DynamicToolCallParams(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    arguments: Any
    call_id: str
    tool: str
    namespace: str | None = None


class DynamicToolCallResponse(Wire, frozen=True, kw_only=True):
    content_items: tuple[DynamicToolCallOutputContentItem, ...]
    success: bool
