"""The screen of a session, typed at: what is sent, what a key answers, how one leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prompt_toolkit.completion import DummyCompleter
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.text import Text

from treadle.cli import (
    CLOSED,
    Attention,
    ChatCompleter,
    ChatScreen,
    Choice,
    KeyQuestion,
    Option,
    ServerQuestions,
    TurnRenderer,
)
from treadle.cli.chat import screen as chat_screen
from treadle.errors import RpcError

pytestmark = pytest.mark.anyio

WAIT_S = 30.0
YES_NO = (Option("y", "yes"), Option("n", "no"))
COMMAND = {
    "threadId": "t",
    "turnId": "u",
    "itemId": "i",
    "startedAtMs": 1,
    "command": "rm x",
    "cwd": "/w",
    "reason": "because",
}


@pytest.fixture(autouse=True)
def short_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_screen, "REST_S", 0.05)


class Person:
    """Sits behind the screen, and at its keyboard."""

    def __init__(self, keyboard: PipeInput) -> None:
        self.sent: list[str] = []
        self.working = False
        self.interrupting = False
        self.interrupts = 0
        self._keyboard = keyboard
        self.screen: ChatScreen

    def submitted(self, text: str) -> None:
        self.sent.append(text)

    def interrupt(self) -> None:
        self.interrupts += 1
        self.interrupting = True

    def status(self, width: int) -> str:
        return "status"

    def live(self, now: float, width: int, height: int) -> Sequence[Text]:
        return [Text("working")]

    async def type(self, text: str) -> None:
        """And wait until it was read."""
        seen = asyncio.Event()
        self.screen.app.key_processor.after_key_press += lambda _: seen.set()
        self._keyboard.send_text(text)
        async with asyncio.timeout(WAIT_S):
            await seen.wait()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not true():
                await asyncio.sleep(0.005)


@asynccontextmanager
async def at_screen(completer: Any = None) -> AsyncIterator[tuple[Person, asyncio.Task[int]]]:
    with create_pipe_input() as keyboard:
        person = Person(keyboard)
        person.screen = ChatScreen(
            person,
            history=InMemoryHistory(),
            completer=completer or DummyCompleter(),
            output=DummyOutput(),
            input=keyboard,
        )
        running = asyncio.create_task(person.screen.run())
        await person.until(lambda: person.screen.app.is_running)
        try:
            yield person, running
        finally:
            person.screen.leave()
            await asyncio.gather(running, return_exceptions=True)


async def test_enter_sends_and_other_keys_make_lines() -> None:
    async with at_screen() as (person, _):
        await person.type("one\x1b\rtwo\nthree\\\rfour\r")
        await person.until(lambda: bool(person.sent))
        assert person.sent == ["one\ntwo\nthree\nfour"]
        await person.type("  \r")
        assert person.sent == ["one\ntwo\nthree\nfour"]


async def test_every_key_says_that_somebody_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pressed: list[Attention] = []
    monkeypatch.setattr(Attention, "key_pressed", lambda attention: pressed.append(attention))
    async with at_screen() as (person, _):
        await person.type("x")
        await person.until(lambda: pressed == [person.screen.attention])


async def test_pasted_text_keeps_its_lines_and_is_not_sent() -> None:
    async with at_screen() as (person, _):
        await person.type("\x1b[200~a\r\nb\nc\x1b[201~")
        await person.until(lambda: person.screen.buffer.text == "a\nb\nc")
        assert person.sent == []


async def test_up_brings_back_what_was_sent() -> None:
    async with at_screen() as (person, _):
        await person.type("first\r")
        await person.until(lambda: person.sent == ["first"])
        await person.until(lambda: len(person.screen.buffer._working_lines) == 2)  # with the next drawing
        await person.type("\x1b[A")
        await person.until(lambda: person.screen.buffer.text == "first")


async def test_escape_and_ctrl_c_interrupt_once_and_keep_the_draft() -> None:
    async with at_screen() as (person, _):
        person.working = True
        await person.type("draft")
        await person.type("\x03")
        await person.until(lambda: person.interrupts == 1)
        assert person.screen.buffer.text == "draft"
        await person.type("\x03")
        assert person.interrupts == 1
        assert person.screen.buffer.text == ""
    async with at_screen() as (person, _):
        person.working = True
        person._keyboard.send_text("\x1b")
        await person.until(lambda: person.interrupts == 1)


async def test_ctrl_c_twice_or_ctrl_d_at_an_empty_prompt_leaves() -> None:
    async with at_screen() as (person, running):
        await person.type("draft\x04\x03")  # Ctrl-D in a text deletes; the first Ctrl-C only clears it
        await person.until(lambda: person.screen.buffer.text == "")
        await person.type("\x03")
        assert "Ctrl-C again" in person.screen.hint
        person._keyboard.send_text("\x03")
        assert await asyncio.wait_for(running, WAIT_S) == 0
    async with at_screen() as (person, running):
        person._keyboard.send_text("\x04")
        assert await asyncio.wait_for(running, WAIT_S) == 0


async def test_a_terminal_that_is_closed_ends_it() -> None:
    async with at_screen() as (person, running):
        person._keyboard.close()
        assert await asyncio.wait_for(running, WAIT_S) == CLOSED


# --- questions ---


def test_a_key_counts_only_when_the_keyboard_rests_and_nothing_is_typed() -> None:
    question = KeyQuestion("?", YES_NO, now=10.0, first_marked=False)
    assert not question.counts(10.01, "")
    assert question.counts(10.1, "")
    assert not question.counts(10.1, "draft")
    question.key_pressed(11.0)
    assert not question.counts(11.01, "")


def test_enter_takes_nothing_that_was_not_gone_to() -> None:
    question = KeyQuestion("?", YES_NO, now=0.0, first_marked=False)
    assert question.marked is None
    question.move(1)
    assert question.marked == YES_NO[0]
    question.move(-1)
    assert question.marked == YES_NO[1]
    assert question.option_of("Y") == YES_NO[0]
    assert question.option_of("x") is None


async def test_what_is_being_typed_answers_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_screen, "REST_S", 1e9)
    async with at_screen() as (person, _):
        asking = asyncio.create_task(person.screen.choose("Sure?", YES_NO))
        await person.until(lambda: person.screen.question is not None)
        await person.type("yes, y")
        await person.until(lambda: person.screen.buffer.text == "yes, y")
        assert not person.screen.takes_keys
        await person.type("\r")
        await person.until(lambda: person.sent == ["yes, y"])
        assert not asking.done()
        monkeypatch.setattr(chat_screen, "REST_S", 0.0)
        assert person.screen.takes_keys
        await person.type("x")  # no answer: the beginning of a message
        assert person.screen.buffer.text == "x"
        await person.type("\x7f")
        await person.type("\r")
        assert await asyncio.wait_for(asking, WAIT_S) == YES_NO[0]


async def test_a_question_is_answered_by_its_key_and_refused_by_escape() -> None:
    async with at_screen() as (person, _):
        for keys, expected in (("n", YES_NO[1]), ("\x03", None), ("\x1b", None), ("\x1b[B\r", YES_NO[0])):
            asking = asyncio.create_task(person.screen.choose("Sure?", YES_NO, first_marked=False))
            await person.until(lambda: person.screen.takes_keys)
            person._keyboard.send_text(keys)
            assert await asyncio.wait_for(asking, WAIT_S) == expected
            assert person.screen.question is None


async def test_the_end_of_input_refuses_and_leaves() -> None:
    async with at_screen() as (person, _):
        asking = asyncio.create_task(person.screen.choose("Sure?", YES_NO))
        await person.until(lambda: person.screen.takes_keys)
        person._keyboard.send_text("\x04")
        assert await asyncio.wait_for(asking, WAIT_S) is None
        await person.until(lambda: person.screen.app.is_done)


async def test_the_end_of_input_leaves_also_where_a_text_is_asked_for() -> None:
    async with at_screen() as (person, running):
        asking = asyncio.create_task(person.screen.ask_text("name:"))
        await person.until(lambda: person.screen.text_label is not None)
        await person.type("a draft\x04")
        assert person.screen.buffer.text == "a draft"  # there it deletes what is behind the cursor
        person._keyboard.send_text("\x15\x04")
        assert await asyncio.wait_for(asking, WAIT_S) is None
        assert await asyncio.wait_for(running, WAIT_S) == 0


async def test_a_question_that_is_withdrawn_is_gone() -> None:
    async with at_screen() as (person, _):
        asking = asyncio.create_task(person.screen.choose("Sure?", YES_NO))
        next_one = asyncio.create_task(person.screen.choose("And this?", YES_NO))
        await person.until(lambda: person.screen.question is not None)
        asking.cancel()
        await person.until(lambda: person.screen.question is not None and person.screen.question.title == "And this?")
        next_one.cancel()
        await person.until(lambda: person.screen.question is None)


async def _answered(person: Person, keys: str, text: str | None = None) -> Any:
    asking = asyncio.create_task(
        ServerQuestions(person.screen).ask("item/commandExecution/requestApproval", COMMAND, TurnRenderer(0.0))
    )
    await person.until(lambda: person.screen.takes_keys)
    person._keyboard.send_text(keys)
    if text is not None:
        await person.until(lambda: person.screen.text_label is not None)
        person._keyboard.send_text(text)
    return await asyncio.wait_for(asking, WAIT_S)


async def test_an_approval_is_what_was_chosen_and_no_comes_with_words() -> None:
    async with at_screen() as (person, _):
        assert (await _answered(person, "y")).result.decision == "accept"
        assert (await _answered(person, "a")).result.decision == "acceptForSession"
        assert (await _answered(person, "\x1b")).result.decision == "cancel"
        declined = await _answered(person, "n", "do that\r")
        assert (declined.result.decision, declined.instead) == ("decline", "do that")
        silent = await _answered(person, "n", "\r")
        assert (silent.result.decision, silent.instead) == ("decline", None)
        assert (await _answered(person, "n", "\x03")).instead is None


async def test_what_is_not_understood_is_refused() -> None:
    async with at_screen() as (person, _):
        asking = ServerQuestions(person.screen)
        for method, params in (("unknown/method", {}), ("item/commandExecution/requestApproval", {"odd": 1})):
            with pytest.raises(RpcError):
                await asking.ask(method, params, None)


async def test_a_question_of_the_agent_is_chosen_or_written() -> None:
    options = [{"label": "red", "description": "like a rose"}, {"label": "blue", "description": ""}]
    params = {
        "threadId": "t",
        "turnId": "u",
        "itemId": "i",
        "isBlocking": True,
        "questions": [{"id": "q", "header": "h", "question": "Which colour?", "options": options}],
    }
    async with at_screen() as (person, _):
        for keys, text, expected in (("2", None, ("blue",)), ("o", "green\r", ("green",)), ("\x03", None, None)):
            asking = asyncio.create_task(ServerQuestions(person.screen).ask("item/tool/requestUserInput", params, None))
            await person.until(lambda: person.screen.takes_keys)
            person._keyboard.send_text(keys)
            if text is not None:
                await person.until(lambda: person.screen.text_label is not None)
                person._keyboard.send_text(text)
            answers = (await asyncio.wait_for(asking, WAIT_S)).result.answers
            assert (answers["q"].answers if "q" in answers else None) == expected


async def none(_: str) -> list[str]:
    return []


async def test_escape_closes_the_menu_before_it_interrupts() -> None:
    async with at_screen(ChatCompleter(none)) as (person, _):
        person.working = True
        await person.type("/sta")
        await person.until(lambda: person.screen.buffer.complete_state is not None)
        person._keyboard.send_text("\x1b")
        await person.until(lambda: person.screen.buffer.complete_state is None)
        assert person.interrupts == 0
        person._keyboard.send_text("\x1b")
        await person.until(lambda: person.interrupts == 1)


async def test_tab_completes_a_command() -> None:
    async with at_screen(ChatCompleter(none)) as (person, _):
        await person.type("/sta")
        await person.until(lambda: person.screen.buffer.complete_state is not None)
        await person.type("\t")
        await person.until(lambda: person.screen.buffer.text == "/status")
        await person.type("\r")
        await person.until(lambda: person.sent == ["/status"])


# --- lists ---

FRUIT = [Choice("apple", 1), Choice("pear", 2)]


async def test_a_list_is_chosen_from_and_the_draft_and_the_keys_come_back() -> None:
    async with at_screen() as (person, _):
        person.screen.buffer.insert_text("draft")
        picking = asyncio.create_task(person.screen.pick("Which?", FRUIT))
        await person.until(lambda: person.screen._picker is not None and person.screen._picker.app.is_running)
        person.screen.print("something happens meanwhile")
        person._keyboard.send_text("pea\r")
        assert await asyncio.wait_for(picking, WAIT_S) == 2
        await person.until(lambda: person.screen._picker is None)
        await person.type("!\r")
        await person.until(lambda: person.sent == ["draft!"])


async def test_who_leaves_or_closes_the_terminal_chooses_nothing() -> None:
    async with at_screen() as (person, running):
        picking = asyncio.create_task(person.screen.pick("Which?", FRUIT))
        await person.until(lambda: person.screen._picker is not None and person.screen._picker.app.is_running)
        person.screen.leave(143)
        assert await asyncio.wait_for(picking, WAIT_S) is None
        assert await asyncio.wait_for(running, WAIT_S) == 143
    async with at_screen() as (person, running):
        picking = asyncio.create_task(person.screen.pick("Which?", FRUIT))
        await person.until(lambda: person.screen._picker is not None and person.screen._picker.app.is_running)
        person._keyboard.close()
        assert await asyncio.wait_for(picking, WAIT_S) is None
        assert await asyncio.wait_for(running, WAIT_S) == CLOSED


async def test_a_question_waits_until_the_list_is_gone() -> None:
    async with at_screen() as (person, _):
        picking = asyncio.create_task(person.screen.pick("Which?", FRUIT))
        await person.until(lambda: person.screen._picker is not None and person.screen._picker.app.is_running)
        asking = asyncio.create_task(person.screen.choose("Sure?", YES_NO))
        person._keyboard.send_text("y")
        await person.until(lambda: person.screen._picker is not None and person.screen._picker.buffer.text == "y")
        assert person.screen.question is None
        person._keyboard.send_text("\x1b")
        assert await asyncio.wait_for(picking, WAIT_S) is None
        await person.until(lambda: person.screen.takes_keys)
        person._keyboard.send_text("y")
        assert await asyncio.wait_for(asking, WAIT_S) == YES_NO[0]


async def test_the_focus_of_the_terminal_is_no_text() -> None:
    async with at_screen() as (person, _):
        person._keyboard.send_text("a\x1b[Ib\x1b[Oc")
        await person.until(lambda: person.screen.buffer.text == "abc")
        assert person.screen.attention._focused is False
