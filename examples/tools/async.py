"""Give the agent Python functions to call."""

from __future__ import annotations

import asyncio
from tempfile import TemporaryDirectory
from typing import Literal

from treadle import AsyncCodex, CodexConfig
from treadle.testing import AppServerHarness
from treadle.types import Text, ToolCall

SHELVES = {"Berlin": {"lamp": 3}, "Lyon": {"lamp": 12, "chair": 4}}


async def stock(product: str, shop: Literal["Berlin", "Lyon"] = "Berlin") -> dict[str, int]:
    """How many pieces of a product a shop has.

    Args:
        product: its name in the catalogue
        shop: the town
    """
    return {"pieces": SHELVES[shop].get(product, 0)}


async def main(config: CodexConfig | None = None) -> None:
    async with AsyncCodex(config) as codex:
        thread = await codex.thread_start(tools=[stock])
        async for event in thread.events("Which shop has more lamps?"):
            match event:
                case ToolCall(tool=tool, arguments=arguments, status=status):
                    print(f"  {tool}({arguments})  {status}")
                case Text(text=text):
                    print(text)


if __name__ == "__main__":
    # Here a script plays the model, so that the tool is called. With a real model, main() is all.
    with TemporaryDirectory() as folder, AppServerHarness(folder) as harness:
        model = harness.model
        model.enqueue_function_call("stock", {"product": "lamp"}, call_id="call 1")
        model.enqueue_function_call("stock", {"product": "lamp", "shop": "Lyon"}, call_id="call 2")
        model.enqueue_assistant_message("Lyon: it has 12, Berlin has 3.")
        asyncio.run(main(harness.codex_config()))
        print("\nwhat the model was told:")
        for call, output in model.requests()[-1].tool_outputs.items():
            print(f"  {call:8}{output}")
