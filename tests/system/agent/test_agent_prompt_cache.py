"""What a server of the Messages API would read from its cache, played by one that has such a cache."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from system.agent.scene import Json, scene, shell
from treadle.testing import MockModel, RecordedRequest, Reply, Usage

pytestmark = pytest.mark.anyio


class CachingModel:
    """Keeps what stands before each mark, byte for byte, and says how much of a request it knew."""

    def __init__(self) -> None:
        self.mock = MockModel(on_empty=self)
        self.cached: list[int] = []
        self.sizes: list[int] = []
        self._kept: set[bytes] = set()

    def __call__(self, request: RecordedRequest) -> Reply:
        body = request.json
        marked = list(_marked(body))
        known = max((len(prefix) for prefix in marked if prefix in self._kept), default=0)
        self._kept.update(marked)
        self.cached.append(known)
        self.sizes.append(len(b"".join(block for block, _ in _blocks(body))))
        usage = Usage(input_tokens=self.sizes[-1], cached_input_tokens=known, output_tokens=5)
        return self.mock.reply_message(f"answer {len(self.cached)}", usage=usage)


def _marked(body: Json) -> Iterator[bytes]:
    before = b""
    for block, is_marked in _blocks(body):
        before += block
        if is_marked:
            yield before


def _blocks(body: Json) -> Iterator[tuple[bytes, bool]]:
    """In the order of the cache, as they were written but for the marks themselves."""
    said = [(message["role"], block) for message in body["messages"] for block in message["content"]]
    for role, block in [*(("tool", tool) for tool in body["tools"]), *(("system", s) for s in body["system"]), *said]:
        bare = {key: value for key, value in block.items() if key != "cache_control"}
        yield json.dumps([role, bare]).encode(), "cache_control" in block


async def test_a_second_turn_is_read_from_the_cache_and_usage_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_WIRE_API", "anthropic")
    caching = CachingModel()
    with caching.mock as mock:
        async with scene(tmp_path, model=mock) as stage:
            thread = await stage.start()
            mock.enqueue_function_call("exec_command", shell("echo one"), call_id="toolu_1")
            for text in ("first", "second", "third"):
                assert (await stage.run(thread, text))["status"] == "completed"
            other = await stage.start()
            await stage.run(other, "hello")
        told = [usage["params"]["tokenUsage"]["last"] for usage in stage.client.told("thread/tokenUsage/updated")]
    assert [last["cachedInputTokens"] for last in told[1:]] == caching.cached
    _, second, third, fourth = caching.cached
    sizes = caching.sizes
    assert second == sizes[0], "all that the turn before had asked"
    assert third == sizes[1]
    assert 0 < fourth < third, "another thread has the same tools and orders"
