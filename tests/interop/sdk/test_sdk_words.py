"""Our words against the enums of the official SDK: code that compares with its members finds them in ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from interop.sdk.interpreter import SdkInterpreter
from treadle.protocol.app import Word
from unit.protocol.app_words import words

pytestmark = pytest.mark.interop

NEWER: Final = {
    "HookEventName": {"pre_model_request": "preModelRequest", "post_model_request": "postModelRequest"},
    "PlanType": {"sci": "sci", "sci_plus": "sci_plus"},
}
"""What a server of a later version than the SDK says."""


@pytest.fixture(scope="module")
def official(sdk: SdkInterpreter, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    folder = tmp_path_factory.mktemp("words")
    answer: dict[str, Any] = sdk.play("words.enums", program=Path("no-server"), folder=folder, face="sync")
    enums: dict[str, dict[str, str]] = answer["seen"]
    # There it is a model of an enum and one word more.
    return {**enums, "ReasoningSummary": {**enums["ReasoningSummaryValue"], "none": "none"}}


@pytest.mark.parametrize("word", words(), ids=lambda word: word.__name__)
def test_members_have_the_names_and_values_of_the_sdk(word: type[Word], official: dict[str, dict[str, str]]) -> None:
    ours = {member.name: member.value for member in word}
    assert ours == {**official[word.__name__], **NEWER.get(word.__name__, {})}


def test_what_is_newer_is_not_in_the_sdk(official: dict[str, dict[str, str]]) -> None:
    for name, members in NEWER.items():
        assert members.keys().isdisjoint(official[name])
