"""A chat bot: people write to it, agents work for them, and what they do is shown while they do it.

    export BOT_TOKEN=… BOT_PEOPLE=17,42      # the ids of those who may use it; nobody else gets an answer
    treadle projects add web ~/src/web
    python examples/chat_bot/bot.py

It speaks the bot API of Telegram; `BOT_URL` is another server that does. What can be written to it:

    why does the login fail?               to the engine of BOT_ENGINE, else ours
    /claude /web @fix-login fix it         to claude, in the project `web`, on a branch with a worktree of its own
    and now the tests                      as a reply to an answer: in the same session
    /every 30 9 * * mon-fri what is new?   again and again (in the time of BOT_ZONE, else UTC); `/stop NAME` ends that
    /cancel                                as a reply to what is being done

All that is not done survives a restart, also by `kill -9`: it is in the scheduler's journal.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import httpx2

from treadle import Environment, TreadleError
from treadle.runners import (
    CompletedEvent,
    EngineEntry,
    Event,
    Job,
    Limits,
    Progress,
    Projects,
    Rate,
    Route,
    Router,
    Scheduler,
    Worktrees,
    engine_statuses,
    find_engine,
)

POLL_S = 25
SHOW_EVERY_S = float(os.environ.get("BOT_SHOW_EVERY_S", "3"))
LONGEST = 4000  # letters of a message
ZONE = os.environ.get("BOT_ZONE", "UTC")


class Chat:
    """The chat service."""

    def __init__(self, url: str, token: str) -> None:
        self._http = httpx2.AsyncClient(base_url=f"{url}/bot{token}/", timeout=POLL_S + 10)

    async def call(self, method: str, **members: Any) -> Any:
        """Raises `TreadleError` when the service refuses; a service that is away is asked again."""
        while True:
            try:
                answer = (await self._http.post(method, json=members)).json()
            except (httpx2.HTTPError, ValueError):
                await asyncio.sleep(2)
                continue
            if answer.get("ok"):
                return answer["result"]
            wait = (answer.get("parameters") or {}).get("retry_after")
            if wait is None:
                raise TreadleError(str(answer.get("description")))
            await asyncio.sleep(wait)

    async def send(self, chat: int, text: str, reply_to: int | None = None) -> int:
        sent = await self.call("sendMessage", chat_id=chat, text=text[:LONGEST], reply_to_message_id=reply_to)
        return int(sent["message_id"])

    async def edit(self, chat: int, message: int, text: str) -> None:
        with suppress(TreadleError):  # it may have been deleted
            await self.call("editMessageText", chat_id=chat, message_id=message, text=text[:LONGEST])


@dataclass
class Watched:
    """A job that people look at: the message that shows it, and what that says."""

    job: Job
    progress: Progress
    message: int | None
    text: str = ""


class Bot:
    def __init__(
        self, chat: Chat, people: set[str], router: Router, scheduler: Scheduler, machine: Environment
    ) -> None:
        self._chat, self._people = chat, people
        self._router, self._scheduler, self._machine = router, scheduler, machine
        self._watched: dict[str, Watched] = {}

    async def recover(self) -> None:
        """Go on with what an earlier run of this program has left."""
        recovery = await self._scheduler.recover("continue", self.on_event)
        for lost in recovery.interrupted:
            if not lost.continued:
                text = "I was restarted before this had really begun. Send it again, please."
                await self._chat.send(lost.job.meta["chat"], text)

    # --- what people write ---

    async def listen(self) -> None:
        offset = 0
        while True:
            for update in await self._chat.call("getUpdates", offset=offset, timeout=POLL_S):
                offset = update["update_id"] + 1
                message = update.get("message") or {}
                if message.get("text") and str(message["from"]["id"]) in self._people:
                    await self._take(message)

    async def _take(self, message: dict[str, Any]) -> None:
        chat, id, text = message["chat"]["id"], message["message_id"], message["text"]
        replied = message.get("reply_to_message") or {}
        job_id, shown = f"{chat}-{id}", None
        try:
            word, _, rest = text.partition(" ")
            if word == "/cancel":
                handles = [
                    one for one in self._scheduler.jobs if replied and self._shows(one.job, replied["message_id"])
                ]
                for handle in handles:
                    await handle.cancel()
                if not handles:
                    await self._chat.send(chat, "Reply with it to the message that shows what is being done.", id)
            elif word == "/stop":
                stopped = await self._scheduler.stop_repeating(rest.strip())
                names = [one.id for one in self._scheduler.repeats if one.job.meta["chat"] == chat]
                text = "It has ended." if stopped else f"What is repeated here: {', '.join(names) or 'nothing'}"
                await self._chat.send(chat, text)
            elif word in ("/start", "/help"):
                await self._chat.send(chat, (__doc__ or "").partition("What can be written to it:")[2].strip())
            elif word == "/every":
                cron, prompt = when_and_what(rest)
                job = await self._job(self._router.resolve(prompt), id=job_id, meta={"chat": chat})
                repeat = await self._scheduler.repeat(job, cron, zone=ZONE, on_event=self.on_event)
                first = datetime.fromtimestamp(repeat.next_at, ZoneInfo(ZONE))
                await self._chat.send(chat, f"First on {first:%a %d %b, %H:%M %Z}. To end it: /stop {job_id}", id)
            elif self._scheduler.find(job_id) is None:  # else it is delivered again, after a restart
                route = self._router.resolve(text, replied.get("text"))
                shown = await self._chat.send(chat, "\n".join(filter(None, [route.notice, "waiting"])), id)
                person, meta = str(message["from"]["id"]), {"chat": chat, "message": shown}
                await self._scheduler.submit(await self._job(route, id=job_id, person=person, meta=meta), self.on_event)
        except TreadleError as error:  # made for people: no such engine, a branch that cannot be, too many jobs
            await (self._chat.send(chat, str(error), id) if shown is None else self._chat.edit(chat, shown, str(error)))

    async def _job(self, route: Route, **more: Any) -> Job:
        folder = None
        if route.branch is not None and route.project is None:
            raise TreadleError(f"of which project is the branch {route.branch}? Begin with /PROJECT @{route.branch}")
        if route.project is not None:
            folder = await Worktrees(Projects().find(route.project), self._machine).folder(route.branch)
        return Job(engine=route.engine, prompt=route.prompt, resume=route.resume, cwd=folder, **more)

    def _shows(self, job: Job, message: int) -> bool:
        watched = self._watched.get(job.id)  # what is repeated gets a message when it begins
        return message == (job.meta.get("message") if watched is None else watched.message)

    # --- what is shown ---

    def on_event(self, job: Job, event: Event) -> None:
        if job.id not in self._watched:
            self._watched[job.id] = Watched(job, Progress(time.monotonic()), job.meta.get("message"))
        self._watched[job.id].progress.add(event)

    async def show(self) -> None:
        while True:
            await asyncio.sleep(SHOW_EVERY_S)
            for watched in list(self._watched.values()):
                seen = watched.progress.snapshot()
                text = "\n".join([seen.header(time.monotonic()), *seen.lines(width=60, limit=5)])
                if seen.completed is not None:
                    del self._watched[watched.job.id]
                    text = last_words(seen.completed)
                chat = watched.job.meta["chat"]
                if watched.message is None:
                    watched.message = await self._chat.send(chat, text)
                elif text != watched.text:
                    await self._chat.edit(chat, watched.message, text)
                watched.text = text


def when_and_what(text: str) -> tuple[str, str]:
    """The cron expression and the prompt behind `/every`."""
    fields = 1 if text.startswith("@") else 5
    words = text.split(maxsplit=fields)
    if len(words) <= fields:
        raise TreadleError("Say when and what: /every 30 9 * * mon-fri what is new? Or: /every @daily what is new?")
    return " ".join(words[:fields]), words[fields]


def last_words(completed: CompletedEvent) -> str:
    """The answer, and the line by which a reply finds its session."""
    text = completed.answer if completed.ok else f"✗ {completed.error}"
    line = "" if completed.resume is None else find_engine(completed.engine).resume.format(completed.resume)
    return f"{text[: LONGEST - len(line) - 2]}\n\n{line}".strip()


async def main() -> None:
    missing = [name for name in ("BOT_TOKEN", "BOT_PEOPLE") if not os.environ.get(name)]
    if missing:
        raise SystemExit(f"Set {' and '.join(missing)}: the first lines of {__file__} say to what.")
    statuses = [status for status in await engine_statuses(ask_version=False) if status.problem is None]
    engines = [EngineEntry.of(find_engine(one.name), missing=not one.installed) for one in statuses]
    router = Router(engines, os.environ.get("BOT_ENGINE", "treadle"), Projects().engines())
    token = os.environ.pop("BOT_TOKEN")  # engines would inherit it
    people = set(os.environ["BOT_PEOPLE"].replace(" ", "").split(","))
    chat = Chat(os.environ.get("BOT_URL", "https://api.telegram.org"), token)
    try:
        await chat.call("getMe")
    except TreadleError as error:
        raise SystemExit(f"The chat service refuses BOT_TOKEN: {error}") from None
    limits = Limits(running=4, rate=Rate(jobs=20, per_s=3600))
    async with await Environment.connect() as machine, Scheduler(limits=limits) as scheduler:
        bot = Bot(chat, people, router, scheduler, machine)
        await bot.recover()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(bot.show())
            tasks.create_task(bot.listen())


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
