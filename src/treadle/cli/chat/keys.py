"""The keys of `treadle chat`. What is not here is as in readline: prompt_toolkit has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

if TYPE_CHECKING:
    from treadle.cli.chat.screen import ChatScreen


def chat_keys(screen: ChatScreen) -> KeyBindings:
    keys = KeyBindings()
    _add_typing(keys, screen)
    _add_ending(keys, screen)
    _add_question(keys, screen)
    return keys


def _add_typing(keys: KeyBindings, screen: ChatScreen) -> None:
    buffer = screen.buffer
    completing = Condition(lambda: buffer.complete_state is not None)
    chosen = Condition(
        lambda: buffer.complete_state is not None and buffer.complete_state.current_completion is not None
    )

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        """Sends. A backslash before the cursor at the end of a line begins a new one instead."""
        if buffer.document.text_before_cursor.endswith("\\") and screen.text_label is None:
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            screen.submit()

    @keys.add("enter", filter=chosen)
    def take(event: KeyPressEvent) -> None:
        """What is marked in the menu is in the text already."""
        buffer.complete_state = None

    @keys.add("tab", filter=completing)
    def complete(event: KeyPressEvent) -> None:
        """The only one is taken at once."""
        state = buffer.complete_state
        if state is not None and len(state.completions) == 1:
            buffer.apply_completion(state.completions[0])
        else:
            buffer.complete_next()

    @keys.add("tab", filter=~completing)
    def complete_now(event: KeyPressEvent) -> None:
        buffer.start_completion()

    for combination in (("escape", "enter"), ("c-j",)):

        @keys.add(*combination)
        def newline(event: KeyPressEvent) -> None:
            buffer.newline(copy_margin=False)

    @keys.add("c-z")
    def suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()


def _add_ending(keys: KeyBindings, screen: ChatScreen) -> None:
    buffer = screen.buffer

    @keys.add("escape")
    def escape(event: KeyPressEvent) -> None:
        screen.interrupt()

    @keys.add("c-c")
    def stop(event: KeyPressEvent) -> None:
        screen.stop()

    @keys.add("c-d", filter=Condition(lambda: not buffer.text and screen.text_label is None))
    def end(event: KeyPressEvent) -> None:
        screen.leave()


def _add_question(keys: KeyBindings, screen: ChatScreen) -> None:
    counts = Condition(lambda: screen.takes_keys)

    def on(*names: str) -> Callable[[Callable[[KeyPressEvent], None]], None]:
        def add(function: Callable[[KeyPressEvent], None]) -> None:
            for name in names:
                keys.add(name, filter=counts, eager=True)(function)

        return add

    @on(Keys.Any)
    def answer(event: KeyPressEvent) -> None:
        question = screen.question
        pasted = event.key_sequence[-1].key == Keys.BracketedPaste
        found = None if question is None or pasted else question.option_of(event.data)
        if found is not None:
            screen.answer(found)
        elif pasted or event.data.isprintable():
            screen.buffer.insert_text(event.data)  # the beginning of a message: the question waits until that is sent

    @on("enter")
    def take(event: KeyPressEvent) -> None:
        if screen.question is not None and screen.question.marked is not None:
            screen.answer(screen.question.marked)

    @on("escape", "c-c")
    def refuse(event: KeyPressEvent) -> None:
        screen.answer(None)

    @on("c-d")
    def refuse_and_leave(event: KeyPressEvent) -> None:
        screen.answer(None)
        screen.leave()

    for name, by in (("up", -1), ("down", 1), ("tab", 1), ("s-tab", -1)):

        @on(name)
        def move(event: KeyPressEvent, by: int = by) -> None:
            if screen.question is not None:
                screen.question.move(by)
