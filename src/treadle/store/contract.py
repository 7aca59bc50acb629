"""What a store holds, and the interface that every store has.

This module owns the records and the writes. It knows nothing of connections, and what is inside `state`, `data` and
`frame` is JSON that the users of a store understand and the store does not.

A thread is a line of turns, numbered from 1. Three rows of things belong to it, each numbered from 1 without gaps in
the order in which they were added: items (what people see), history (what the model sees) and events (what was
published to clients). Messages that wait for their turn are in its queue.

A thread is written by one server at a time, under a claim. Each claim has a fence, a number greater than that of every
claim before it, and each write says under which it is made: one that comes too late, from a server that was paused or
cut off while another took the thread over, fails and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from treadle.errors import TreadleError

StoreFailure: TypeAlias = Literal[
    "full", "busy", "claimed", "stale", "missing", "damaged", "unreachable", "unknown", "failed"
]
SortKey: TypeAlias = Literal["created_at", "updated_at", "recency_at"]


class StoreError(TreadleError):
    """Something could not be read or written; nothing that was there is lost.

    `kind` is `full` (no space left), `busy` (another process holds what is needed for too long), `claimed` (another
    live server works on the thread), `stale` (another server has claimed the thread since), `missing` (no such thread),
    `damaged` (what is there is not what was written), `unreachable` (the database does not answer, and nothing was
    written), `unknown` (it was lost in the middle of a write, which may be stored or not) or `failed`.
    """

    def __init__(self, message: str, kind: StoreFailure = "failed") -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind


def damaged(what: str, location: str | None) -> StoreError:
    """The error for damaged data. `what` is the part, or how it shows; `location` is that of the store, None for one in
    memory."""
    return StoreError(
        f"{location or 'the store'} is damaged: {what}. What can still be read is there and other threads go on; "
        "put a copy back, or delete the thread",
        "damaged",
    )


# --- records ---------------------------------------------------------------------------------------------------------


class ThreadRecord(Struct, frozen=True, kw_only=True):
    """A thread without its content. Times are Unix milliseconds.

    `listed` says whether it belongs into lists: it has a user message or a name. `state` is the agent's: settings,
    usage, goal and the like. `parent_thread_id` is that of the thread that a sub-agent works for.
    """

    id: str
    created_at: int
    updated_at: int
    recency_at: int
    cwd: str
    model: str
    model_provider: str
    source: str
    state: bytes
    originator: str | None = None
    name: str | None = None
    preview: str = ""
    forked_from_id: str | None = None
    archived: bool = False
    listed: bool = False
    parent_thread_id: str | None = None


class Counters(Struct, frozen=True):
    """The last number in use of each row; 0 when there is none. Numbers of events that were pruned stay in use."""

    seq: int = 0
    turn: int = 0
    item: int = 0
    history: int = 0


class Loaded(Struct, frozen=True):
    """A thread as it is; `fence` is that of its last claim, 0 when there was none. `queued` says whether messages wait
    in its queue."""

    record: ThreadRecord
    counters: Counters
    fence: int
    queued: bool = False


class Claim(Struct, frozen=True):
    """The right to write a thread. `news` is the thread as it is now, None when it is as this store left it."""

    fence: int
    news: Loaded | None


class TurnRecord(Struct, frozen=True, kw_only=True):
    """A turn. Times are Unix seconds. `error` is JSON, and so is `usage`: what the thread had used when the turn ended.
    A turn that runs in a server that is gone reads as `interrupted`."""

    thread_id: str
    number: int
    id: str
    status: Literal["inProgress", "completed", "interrupted", "failed"]
    started_at: int | None = None
    completed_at: int | None = None
    duration_ms: int | None = None
    error: bytes | None = None
    usage: bytes | None = None


class ItemRecord(Struct, frozen=True, kw_only=True):
    """An item. `data` is the item as JSON; `text` is what full-text search finds it by. `open` until it is
    completed."""

    thread_id: str
    number: int
    turn: int
    id: str
    type: str
    data: bytes
    text: str | None = None
    open: bool = False
    started_at_ms: int | None = None
    completed_at_ms: int | None = None


class HistoryRecord(Struct, frozen=True):
    """One item of the model's input. `data` is JSON. It is never replaced."""

    thread_id: str
    number: int
    turn: int
    data: bytes


class EventRecord(Struct, frozen=True):
    """A notification as it was published, and so never replaced; `frame` is the whole message."""

    thread_id: str
    seq: int
    frame: bytes


class QueuedRecord(Struct, frozen=True):
    """A message that waits for a turn of its own. The one with the lowest `position` is next. `data` is JSON."""

    thread_id: str
    id: str
    position: int
    data: bytes


# --- writes: records are written as they are. Those of a thread, turn, item or queue replace what has their number or
# id, those of history and events are only ever added ------------------------------------------------------------------


class DropItem(Struct, frozen=True):
    """Removes an item that was begun and cancelled."""

    thread_id: str
    number: int


class DropQueued(Struct, frozen=True):
    """Removes a message from the queue: it was sent, or taken back."""

    thread_id: str
    id: str


class Compaction(Struct, frozen=True):
    """Lets the model's input begin at history number `start`, from now on; undone with its turn."""

    thread_id: str
    turn: int
    start: int


class CutTurns(Struct, frozen=True):
    """Removes turns from `turn` on, with their items and history. Events stay: they were published."""

    thread_id: str
    turn: int


class CopyTurns(Struct, frozen=True):
    """Copies turns up to `last_turn` (all when None), with items and history, into a thread that has none.

    A turn that is running is `interrupted` in the copy.
    """

    source_id: str
    target_id: str
    last_turn: int | None = None


class PruneEvents(Struct, frozen=True):
    """Removes events up to `seq`."""

    thread_id: str
    seq: int


class DeleteThread(Struct, frozen=True):
    thread_id: str


class Release(Struct, frozen=True):
    """Releases the claim, when everything before it is written: another store may claim the thread."""

    thread_id: str


Write: TypeAlias = (
    ThreadRecord
    | TurnRecord
    | ItemRecord
    | HistoryRecord
    | EventRecord
    | QueuedRecord
    | DropItem
    | DropQueued
    | Compaction
    | CutTurns
    | CopyTurns
    | PruneEvents
    | DeleteThread
    | Release
)
Done: TypeAlias = Callable[[StoreError | None], None]


class UnusedThread(Struct, frozen=True):
    """A thread that may be deleted with all that work for it, which are `agents`. `used_at` is in Unix milliseconds."""

    id: str
    title: str
    used_at: int
    agents: int


# --- queries ---------------------------------------------------------------------------------------------------------


class ThreadQuery(Struct, frozen=True, kw_only=True):
    """Filters are joined by and. `after` is the cursor of a page, in the direction of the sort.

    `search` finds threads by a part of their name or preview (case matters), `words` by full-text search in messages.
    `phrase` does so, too, by words that follow each other, the last of which may be unfinished.
    """

    limit: int = 25
    sort_key: SortKey = "created_at"
    descending: bool = True
    after: ThreadCursor | None = None
    archived: bool = False
    cwds: tuple[str, ...] = ()
    model_providers: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    originators: tuple[str, ...] = ()
    parent: str | None = None
    excluded_ids: tuple[str, ...] = ()
    search: str | None = None
    words: str | None = None
    phrase: str | None = None


class ThreadCursor(Struct, frozen=True):
    """The place of a thread in a list: ids break ties of time."""

    time: int
    id: str


class ThreadPage(Struct, frozen=True):
    """`texts` are for a query with a `phrase`: of each thread the first message that has it."""

    threads: list[ThreadRecord]
    more: bool
    texts: list[str] = []


class EventPage(Struct, frozen=True):
    """`first_seq` is the oldest event that is still there, `last_seq` the newest (0 and 0 when there is none); `epoch`
    is that of the store when it was read."""

    events: list[EventRecord]
    first_seq: int
    last_seq: int
    epoch: str = ""


class SearchHit(Struct, frozen=True):
    """`snippet` is a part of the text, with the words found between `[` and `]`."""

    thread_id: str
    item_id: str
    snippet: str


class MessageText(Struct, frozen=True):
    """The text of a message, with the number, id and turn of its item."""

    number: int
    id: str
    turn: int
    turn_id: str
    text: str


class StoreServer(Struct, frozen=True):
    """A server that has the store open, or had it and has not closed it. `name` is for people, `silent_s` how long ago
    it has shown a sign of life, `alive` whether what it has claimed is its own."""

    id: str
    name: str
    silent_s: float
    alive: bool


class Store(Protocol):
    """Where threads are stored. Writes of a thread are made in the order of `submit` and are all or nothing per call;
    reads see what is committed. Nothing is promised about the order of different threads.

    The first write of a thread is its record, under fence 0; that makes it, and the store that made it may go on
    writing under 0 until the first claim. All methods belong to one event loop. `treadle.testing.check_store` tries
    what is promised here.
    """

    @property
    def location(self) -> str | None:
        """Where a person finds what is stored, without any secret; None when it is nowhere on disk."""

    @property
    def epoch(self) -> str:
        """Another one when events may be gone that were published, and their numbers given to others: a backup was put
        back, say, or a standby took over that did not have the last of them. A cursor is good for its epoch alone."""

    @property
    def held_until(self) -> float:
        """Until when, by `time.monotonic`, what this store has claimed is surely its own. Later another server may have
        taken it over: what would be published without being stored must not be published then."""

    def submit(
        self, thread_id: str, fence: int, writes: Sequence[Write], done: Done, after_seq: int | None = None
    ) -> None:
        """Write to a thread, under the claim of this store that has this fence; `done` is called on the event loop when
        it is committed, or with the error and nothing written.

        It fails when there is no such thread (`missing`), when anybody has claimed it since (`stale`), when a number of
        history is in use, and when that of an event is not above those of all events before it, pruned ones too. With
        `after_seq` it also fails when the last event of the thread, pruned or not, is another: so writes can be
        submitted behind others that may fail. What is written twice in one call is as it was last. Taking away what is
        not there is no error. Calls of `done` come in the order of the submits of a thread. It never blocks: what waits
        is bounded by what the callers have submitted and not heard of.
        """

    async def commit(self, thread_id: str, fence: int, writes: Sequence[Write]) -> None:
        """`submit`, and wait. Raises `StoreError`."""

    async def claim(self, thread_id: str, known_fence: int) -> Claim:
        """Become the only writer of this thread, until `Release`, or until this store shows no sign of life for so
        long that another may take its place. Claims of one store do not nest.

        `known_fence` is that of the last claim that the caller knows of, -1 when it knows nothing. Turns that were left
        running by a store that is gone, or has lost its claim, or by this one when the caller knows another fence, are
        `interrupted` for good. Raises `StoreError`
        (`claimed`, after a short wait, and `missing`).
        """

    async def load(self, thread_id: str) -> Loaded | None: ...

    async def history(self, thread_id: str) -> list[HistoryRecord]:
        """What the model sees: everything from the start that the last compaction set."""

    async def turns(
        self, thread_id: str, *, after: int | None = None, limit: int | None = None, descending: bool = False
    ) -> list[TurnRecord]:
        """Turns after number `after`, in the direction asked for."""

    async def turn(self, thread_id: str, turn_id: str) -> TurnRecord | None: ...

    async def items(
        self,
        thread_id: str,
        *,
        turns: tuple[int, int] | None = None,
        after: int | None = None,
        limit: int | None = None,
        descending: bool = False,
    ) -> list[ItemRecord]:
        """Items of the turns with these first and last numbers (all when None), after item number `after`."""

    async def item(self, thread_id: str, item_id: str) -> ItemRecord | None:
        """The first item with this id, found without reading the others."""

    async def events(self, thread_id: str, after_seq: int, limit: int) -> EventPage: ...

    async def queue(self, thread_id: str) -> list[QueuedRecord]:
        """The messages that wait in a thread, the next one first. A copy of the thread has none of them."""

    async def threads(self, query: ThreadQuery) -> ThreadPage:
        """A page of the threads that are `listed`."""

    async def search(self, words: str, limit: int = 20) -> list[SearchHit]:
        """Messages that hold all the words, best first; archived threads are left out."""

    async def messages(self, thread_id: str, part: str, *, first: int = 0, limit: int = 100) -> list[MessageText]:
        """The messages of a thread that hold this part, whatever the case of its letters, from item number `first`."""

    def mark_loaded(self, thread_id: str, loaded: bool) -> None:
        """Say to all stores that a thread is in memory here, or is no longer; they see it when the next write that is
        submitted here is committed. The mark ends with the store."""

    async def servers(self) -> list[StoreServer]:
        """Who has the store open, this one too."""

    async def owner_of(self, thread_id: str) -> StoreServer | None:
        """Who has claimed a thread, and not released it."""

    async def unused(self, before: int) -> list[UnusedThread]:
        """Threads that nobody has used since `before` (Unix milliseconds), nor any of those that work for them, listed
        or not; the longest unused first."""

    async def delete_unused(self, thread_id: str, before: int) -> bool:
        """Delete a thread with all that work for it. False, and nothing is deleted, when one of them was used since,
        is marked as loaded by any store, or is claimed by one that is alive."""

    async def thread_ids(self, after: str, limit: int) -> list[str]:
        """Ids of all threads, listed or not, in their order, those behind `after`."""

    async def whole_history(self, thread_id: str, after: int, limit: int) -> list[HistoryRecord]:
        """What the model has ever seen, also from before a compaction, behind this number."""

    async def compactions(self, thread_id: str) -> list[Compaction]:
        """Where the history begins, from which turn on."""

    async def shrink(self) -> None:
        """Give the space of what was deleted back to the disk, without keeping others from writing for long."""

    async def close(self) -> None:
        """Write what was submitted, release the claims, close everything. Later calls fail."""
