"""view_image: an image file, for the model to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from treadle.agent.tools.tool import Output, Tool, ToolCall
from treadle.tools.specs import function_spec, text

if TYPE_CHECKING:
    from treadle.config import ModelFacts


class ViewImageArguments(Struct, frozen=True, kw_only=True):
    path: str


class ViewImage(Tool):
    name = "view_image"
    needs_environment = True
    spec: Raw = function_spec(
        name,
        "Shows you an image file (PNG, JPEG, GIF or WebP) of the machine that commands run on.",
        {"path": text("Path of the image, absolute or relative to the working directory.")},
        required=("path",),
    )

    def suits(self, model: ModelFacts) -> bool:
        return model.supports_images

    async def run(self, call: ToolCall) -> Output:
        # Late: few turns look at images.
        from treadle.agent.authority import file_policy
        from treadle.execution.files.local_files import LocalFiles
        from treadle.protocol.app.items import ImageViewThreadItem  # all of it: loaded with the first picture
        from treadle.tools.view_image import load_image

        thread, arguments = call.turn.thread, call.arguments(ViewImageArguments)
        image = await load_image(LocalFiles(await file_policy(thread)), arguments.path, thread.settings.cwd)
        call.turn.items.show(ImageViewThreadItem(id=call.id, path=image.path))
        return [{"type": "input_image", "image_url": image.data_url}]
