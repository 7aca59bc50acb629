"""What clients ask at their start and this server does not have: an empty answer, not an error."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.errors import RpcError
from treadle.testing import AppServerHarness

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

# The section of threads that the real server always has.
PINNED = "01984de2-8f74-7c91-a3b2-5c5e937cf318"


@pytest.mark.parametrize(
    ("method", "params", "answer"),
    [
        ("plugin/list", {"cwds": ["/w"], "marketplaceKinds": None}, {"marketplaces": []}),
        ("plugin/installed", {}, {"marketplaces": []}),
        ("externalAgentConfig/detect", {"includeHome": True}, {"items": [], "connectors": []}),
        ("account/bedrock/checkGovCloudRequirements", {}, {"isGovCloud": False, "shouldWarn": False}),
        ("threadSection/list", {}, {"data": [], "nextCursor": None}),
    ],
)
async def test_there_is_none(harness: AppServerHarness, method: str, params: Json, answer: Json) -> None:
    async with harness.connect() as client:
        said = await client.request(method, params)
    assert {name: said[name] for name in answer} == answer


@pytest.mark.parametrize("params", [{}, {"excludeResetCreditDetails": True}])
async def test_no_rate_limits_are_known(harness: AppServerHarness, params: Json) -> None:
    async with harness.connect() as client:
        limits = (await client.request("account/rateLimits/read", params))["rateLimits"]
    assert set(limits.values()) == {None}


async def test_no_thread_is_in_a_section(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = (await client.request("thread/start", {}))["thread"]["id"]
        harness.model.enqueue_assistant_message("Yes.")
        await client.run_turn(thread, "Are you there?")
        assert len((await client.request("thread/list", {}))["data"]) == 1
        for more in ({}, {"sortKey": "section_position"}):
            answer = await client.request("thread/list", {"sectionId": PINNED, **more})
            assert (answer["data"], answer["nextCursor"]) == ([], None)
        with pytest.raises(RpcError, match="requires a section filter"):
            await client.request("thread/list", {"sortKey": "section_position"})


async def test_a_service_tier_that_is_offered_reaches_the_provider(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        models = (await client.request("model/list", {}))["data"]
        tiers = {tier["id"] for model in models for tier in model["serviceTiers"]}
        assert tiers == {"priority"}
        for given, sent in (("priority", "priority"), ("fast", "priority"), ("default", None), (None, None)):
            thread = (await client.request("thread/start", {"serviceTier": given}))["thread"]["id"]
            harness.model.enqueue_assistant_message("Quickly.")
            await client.run_turn(thread, "Hurry!")
            if harness.wire_api == "responses":  # the word is one of that API
                assert harness.model.requests()[-1].json.get("service_tier") == sent
