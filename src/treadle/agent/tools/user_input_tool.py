"""request_user_input: questions that only the user can answer, with choices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import DecodeError, Meta, Raw, Struct, field

from treadle.agent.tools.tool import Tool, ToolCall
from treadle.errors import RpcError
from treadle.protocol.app.base import decode, encode
from treadle.tools.specs import function_spec, text

if TYPE_CHECKING:
    from treadle.agent.client_requests import Answer
    from treadle.protocol.app.questions import ToolRequestUserInputParams

# More fit on no screen, and would be asked one by one.
MAX_QUESTIONS: Final = 10
MAX_OPTIONS: Final = 20
NO_ANSWERS: Final = '{"answers":{}}'


class OptionArguments(Struct, frozen=True, kw_only=True):
    label: str
    description: str


class QuestionArguments(Struct, frozen=True, kw_only=True):
    id: str
    header: str
    question: str
    options: Annotated[tuple[OptionArguments, ...], Meta(min_length=1, max_length=MAX_OPTIONS)]
    is_secret: bool = field(name="isSecret", default=False)


class RequestUserInputArguments(Struct, frozen=True, kw_only=True):
    questions: Annotated[tuple[QuestionArguments, ...], Meta(min_length=1, max_length=MAX_QUESTIONS)]


class RequestUserInput(Tool):
    """In which modes it can be called is decided by `tool_choice`."""

    name = "request_user_input"
    spec: Raw = function_spec(
        name,
        "Asks the user one to three short questions and waits for the answers. An answer is the label of a choice, or "
        "words of the user's own. No answers means that the user gave none: go on with what you think best.",
        {
            "questions": {
                "type": "array",
                "description": "The questions: one if that is enough, at most three.",
                "items": {
                    "type": "object",
                    "properties": {
                        "id": text("A name for the question, in snake_case; the answer comes under it."),
                        "header": text("One or two words to show above it, at most 12 characters."),
                        "question": text("The question, in one sentence."),
                        "options": {
                            "type": "array",
                            "description": "Two or three choices that exclude each other, the one that you would take "
                            'first and marked "(Recommended)". The user can always answer something else.',
                            "items": {
                                "type": "object",
                                "properties": {
                                    "label": text("The choice, in a few words."),
                                    "description": text("What follows from it, in one sentence."),
                                },
                                "required": ["label", "description"],
                                "additionalProperties": False,
                            },
                        },
                        "isSecret": {
                            "type": "boolean",
                            "description": "Whether the answer is to be hidden on the screen. Default: false.",
                        },
                    },
                    "required": ["id", "header", "question", "options"],
                    "additionalProperties": False,
                },
            },
        },
        required=("questions",),
    )

    async def run(self, call: ToolCall) -> str:
        from treadle.agent.client_requests import USER_INPUT  # late: few turns ask something
        from treadle.agent.tools.approval import answer_to

        thread, given = call.turn.thread, call.arguments(RequestUserInputArguments)
        ask = thread.requests.open(USER_INPUT)
        ask.params = _params(call, given)
        return _for_model(await answer_to(thread, ask))


def _for_model(answer: Answer) -> str:
    """What the user said. An answer that cannot be read, or that nobody gave, says nothing."""
    from treadle.protocol.app.questions import ToolRequestUserInputResponse  # loaded with the first question

    if isinstance(answer, RpcError):
        return NO_ANSWERS
    try:
        return encode(decode(answer, ToolRequestUserInputResponse)).decode()
    except DecodeError:
        return NO_ANSWERS


def _params(call: ToolCall, given: RequestUserInputArguments) -> ToolRequestUserInputParams:
    from treadle.protocol.app.questions import (
        ToolRequestUserInputOption,
        ToolRequestUserInputParams,
        ToolRequestUserInputQuestion,
    )

    questions = tuple(
        ToolRequestUserInputQuestion(
            id=one.id,
            header=one.header,
            question=one.question,
            is_other=True,
            is_secret=one.is_secret,
            options=tuple(ToolRequestUserInputOption(label=o.label, description=o.description) for o in one.options),
        )
        for one in given.questions
    )
    return ToolRequestUserInputParams(
        thread_id=call.turn.thread.id, turn_id=call.turn.id, item_id=call.id, is_blocking=True, questions=questions
    )
