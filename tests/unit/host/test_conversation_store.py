"""Conversations on disk: what is kept, who may write, what is found."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from treadle.host import ConversationStore, Message
from treadle.host import conversations as module
from treadle.store import StoreError


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def assistant(content: str) -> Message:
    return {"role": "assistant", "content": content}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ConversationStore]:
    made = ConversationStore(tmp_path / "folder" / "conversations.db")
    yield made
    made.close()


def a_turn(store: ConversationStore, session_id: str, said: str, answer: str) -> None:
    store.begin_turn(session_id, [user(said)])
    store.end_turn(session_id, [assistant(answer)], runtime="app_server", thread_id="t-1")


def test_nothing_is_touched_before_it_is_used(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path / "new" / "conversations.db")
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_a_conversation_is_kept(store: ConversationStore) -> None:
    assert store.claim("a").messages == []
    a_turn(store, "a", "hello", "hi")
    parts = user([{"type": "text", "text": "a picture"}, {"type": "local_image", "path": "x.png"}])
    store.begin_turn("a", [parts])
    store.end_turn("a", [], state="failed", runtime="app_server", thread_id=None)
    store.release("a")
    again = ConversationStore(store.path)
    found = again.claim("a")
    assert found.messages == [user("hello"), assistant("hi"), parts]
    assert (found.runtime, found.thread_id, found.cut_off) == ("app_server", None, False)
    assert [record.state for record in again.messages("a")] == ["done", "done", "failed"]
    again.close()


def test_the_file_is_private_and_in_wal_mode(store: ConversationStore) -> None:
    store.claim("a")
    assert os.stat(store.path).st_mode & 0o077 == 0
    connection = sqlite3.connect(store.path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()


def test_a_turn_that_was_interrupted_was_not_cut_off(store: ConversationStore) -> None:
    """Else the same words, said again after a restart, would be taken for those of before."""
    store.claim("a")
    store.begin_turn("a", [user("go on")])
    store.end_turn("a", [], state="interrupted")
    store.release("a")
    assert not store.claim("a").cut_off


def test_how_much_there_was_before_the_thread_is_kept(store: ConversationStore) -> None:
    assert store.claim("a").before_thread == 0
    a_turn(store, "a", "hello", "hi")
    store.begin_turn("a", [user("more")])
    store.end_turn("a", [assistant("yes")], thread_id="t-2", before_thread=2)
    store.release("a")
    assert store.claim("a").before_thread == 2


def test_a_turn_that_was_open_is_interrupted(store: ConversationStore) -> None:
    store.claim("a")
    store.begin_turn("a", [user("hello")])
    store.release("a")  # without its end
    found = store.claim("a")
    assert found.messages == [user("hello")]
    assert found.cut_off
    assert [record.state for record in store.messages("a")] == ["interrupted"]
    store.reopen_turn("a")
    assert [record.state for record in store.messages("a")] == ["open"]
    store.end_turn("a", [assistant("hi")])
    assert [record.state for record in store.messages("a")] == ["done", "done"]


def test_one_agent_writes_at_a_time(store: ConversationStore) -> None:
    store.claim("a")
    a_turn(store, "a", "hello", "hi")
    with pytest.raises(StoreError, match="another agent of this program holds the conversation a") as same:
        store.claim("a")
    other = ConversationStore(store.path)
    with pytest.raises(StoreError) as second:
        other.claim("a")
    assert (same.value.kind, second.value.kind) == ("claimed", "claimed")
    with pytest.raises(StoreError):
        other.delete("a")
    with pytest.raises(StoreError, match="held by another agent"):
        other.begin_turn("a", [user("not mine")])
    assert len(other.messages("a")) == 2
    store.release("a")
    assert other.claim("a").messages == [user("hello"), assistant("hi")]
    other.close()


CHILD = """
import sys
from treadle.host.conversations import ConversationStore
store = ConversationStore(sys.argv[1])
store.claim("a")
store.begin_turn("a", [{"role": "user", "content": "hello"}])
print("begun", flush=True)
sys.stdin.read()
"""


def test_a_killed_process_leaves_the_message_once_and_lets_go(store: ConversationStore) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, store.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        with pytest.raises(StoreError, match=f"the process {child.pid} holds the conversation a"):
            store.claim("a")
        child.send_signal(signal.SIGKILL)
        child.wait()
    found = store.claim("a")
    assert found.messages == [user("hello")]
    assert found.cut_off


def test_lists_the_last_one_first_and_leaves_out_the_empty(store: ConversationStore) -> None:
    for name in ("a", "b", "empty"):
        store.claim(name)
    a_turn(store, "b", "  first\n words ", "x")
    a_turn(store, "a", "second", "y")
    a_turn(store, "b", "third", "z")
    listed = store.sessions()
    assert [(record.id, record.title, record.messages) for record in listed if record.id == "b"] == [
        ("b", "first words", 4)
    ]
    assert {record.id for record in listed} == {"a", "b"}
    assert listed[0].updated_at >= listed[1].updated_at
    assert len(store.sessions(limit=1)) == 1
    store.release("empty")
    assert store.delete("empty") is False


def test_what_is_deleted_is_not_found(store: ConversationStore) -> None:
    store.claim("a")
    a_turn(store, "a", "the quokka smiles", "indeed")
    with pytest.raises(StoreError):
        store.delete("a")
    store.release("a")
    assert store.search("quokka")
    assert store.delete("a")
    assert store.search("quokka") == []
    assert store.messages("a") == []


@pytest.mark.parametrize("indexed", [True, False])
def test_search(store: ConversationStore, indexed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_has_fts5", lambda _: indexed)
    store.claim("a")
    a_turn(store, "a", "How do I deploy the Quokka service?", "Run make deploy. " + "x " * 300 + "100% sure_")
    hits = store.search("quokka DEPLOY")
    assert [(hit.session_id, hit.number, hit.role) for hit in hits] == [("a", 1, "user")]
    assert "[Quokka]" in hits[0].snippet
    assert len(store.search("deploy")) == 2
    assert len(store.search("deploy", limit=1)) == 1
    assert store.search("absent") == store.search("  ") == store.search('"') == []
    if not indexed:
        assert store.search("100%")
        assert store.search("1_0%") == []


@pytest.mark.parametrize("indexed", [True, False])
def test_a_search_for_very_much_is_a_search_for_its_beginning(
    store: ConversationStore, indexed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not indexed:
        monkeypatch.setattr(module, "_has_fts5", lambda _: False)
    store.claim("a")
    a_turn(store, "a", "one two", "three")
    assert len(store.search("one two " * 10_000)) == 1
    said: list[str] = []
    with store._reading() as connection:
        connection.set_trace_callback(said.append)
    store.search(" ".join(f"w{number}" for number in range(500)))
    (query,) = [text for text in said if "w15" in text]
    assert "w16" not in query


def test_an_index_is_made_for_what_was_written_without(
    store: ConversationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_has_fts5", lambda _: False)
    store.claim("a")
    a_turn(store, "a", "the quokka smiles", "indeed")
    store.release("a")
    monkeypatch.undo()
    again = ConversationStore(store.path)
    assert "[quokka]" in again.search("quokka")[0].snippet
    again.close()


def test_another_programs_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="another program"):
        ConversationStore(path).claim("a")


def test_it_is_used_from_many_threads(store: ConversationStore) -> None:
    def talk(name: str) -> None:
        store.claim(name)
        for number in range(20):
            a_turn(store, name, f"question {number}", f"answer {number}")
            store.search("question")

    threads = [threading.Thread(target=talk, args=(f"s{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [record.messages for record in store.sessions()] == [40] * 4


def test_a_turn_ends_whole_or_not_at_all(store: ConversationStore) -> None:
    store.claim("a")
    store.begin_turn("a", [user("hello")])
    with pytest.raises(StoreError):
        store.end_turn("a", [assistant("one"), assistant("half a character: \ud800")])
    assert [record.message for record in store.messages("a")] == [user("hello")]
    assert [record.state for record in store.messages("a")] == ["open"]
