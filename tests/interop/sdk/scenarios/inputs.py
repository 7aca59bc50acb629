# mypy: disable-error-code="import-not-found"
"""What a turn is given: texts, images, skills, mentions, messages of others."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

from openai_codex import (
    ExternalMessage,
    ImageInput,
    InvalidParamsError,
    InvalidRequestError,
    LocalImageInput,
    MentionInput,
    SkillInput,
    TextInput,
)

from interop.sdk.stage import Stage, now


def _png() -> bytes:
    """One white pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"\0\xff\xff\xff"))
        + chunk(b"IEND", b"")
    )


def _images(stage: Stage) -> list[str]:
    """The image URLs that the model got, without their data."""
    parts = [part for item in stage.model.requests()[-1].input for part in item.get("content") or []]
    return [part["image_url"].partition(",")[0] for part in parts if part.get("type") == "input_image"]


async def _content(thread: Any) -> list[Any]:
    """What the user said in the last turn, as the server tells it."""
    turns = (await now(thread.read(include_turns=True))).thread.turns
    return [part.root for part in turns[-1].items[0].root.content]


async def texts(stage: Stage) -> Any:
    stage.model.enqueue_assistant_message("ok")
    stage.model.enqueue_assistant_message("ok")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        await now(thread.run([TextInput("first part"), TextInput("zweiter Teil ✓")]))
        content = await _content(thread)
        await now(thread.run(TextInput("alone")))
    said = stage.model.requests()[-1].input_texts("user")
    return {
        "said": [text for text in said if not text.startswith("<")],
        "content": [part.text for part in content],
    }


async def images(stage: Stage) -> Any:
    data = base64.b64encode(_png()).decode()
    path = stage.workspace / "pixel.png"
    path.write_bytes(_png())
    stage.model.enqueue_assistant_message("A pixel.")
    stage.model.enqueue_assistant_message("The same.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        inline = await now(thread.run([TextInput("What is it?"), ImageInput(f"data:image/png;base64,{data}")]))
        first = _images(stage)
        contents = [await _content(thread)]
        local = await now(thread.run([TextInput("And this?"), LocalImageInput(str(path))]))
        contents.append(await _content(thread))
    return {
        "sent": [first, _images(stage)],
        "items": [[part.type for part in content] for content in contents],
        "answers": [inline.final_response, local.final_response],
    }


async def remote_image(stage: Stage) -> Any:
    stage.model.enqueue_assistant_message("Seen.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        try:
            result = await now(thread.run([TextInput("What?"), ImageInput("https://example.invalid/a.png")]))
        except InvalidRequestError as error:
            return {"refusal": error.message}
    return {"answer": result.final_response, "sent": _images(stage)}


async def skill(stage: Stage) -> Any:
    path = stage.home / "skills" / "knots" / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\nname: knots\ndescription: Ties knots.\n---\nTie a BOWLINE.\n")
    stage.model.enqueue_assistant_message("Tied.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        await now(thread.run([TextInput("Use it."), SkillInput("knots", str(path))]))
        content = await _content(thread)
    texts = stage.model.single_request().input_texts("user")
    return {
        "text": any(text.startswith("<skill>") and "BOWLINE" in text for text in texts),
        "content": [part.type for part in content],
    }


async def mention(stage: Stage) -> Any:
    stage.model.enqueue_assistant_message("ok")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        result = await now(thread.run([TextInput("Look at this."), MentionInput("notes", "app://notes")]))
        content = await _content(thread)
    return {"status": result.status.value, "content": content[1].model_dump(by_alias=True, exclude_none=True)}


async def external(stage: Stage) -> Any:
    """A message of another program has the authority of a tool, and is an item of its own."""
    stage.model.enqueue_assistant_message("Understood.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        result = await now(thread.run(ExternalMessage("mailbox", "You have mail.")))
    request = stage.model.single_request()
    return {
        "items": [item.root.type for item in result.items],
        "as user": any("You have mail." in text for text in request.input_texts("user")),
        "as tool": [item["type"] for item in request.input if "You have mail." in str(item)],
    }


async def too_large(stage: Stage) -> Any:
    stage.model.enqueue_assistant_message("ok")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        try:
            await now(thread.run("x" * (1024 * 1024 + 1)))
        except InvalidParamsError as error:
            refusal = [error.code, error.data]
        result = await now(thread.run("Shorter."))
    return {"refusal": refusal, "after": result.final_response}
