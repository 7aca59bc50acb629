"""The supervisor's list of processes: nobody hides in it by forking and ending while it is made."""

from __future__ import annotations

import os

import pytest

from treadle.execution import FamilyMember, supervisor_program


def test_the_child_of_a_process_that_ends_meanwhile_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    living = {1, 10}

    def look_at(pid: int) -> FamilyMember | None:
        if pid in (10, 11, 12):  # forks and ends before it is looked at
            living.discard(pid)
            living.add(pid + 1)
            return None
        return FamilyMember(parent=0, session=pid, tag=7 if pid == 13 else 0)

    monkeypatch.setattr(os, "listdir", lambda _: ["self", *map(str, living)])
    monkeypatch.setattr(supervisor_program, "look_at", look_at)
    assert {pid: member.tag for pid, member in supervisor_program.scan().items()} == {1: 0, 13: 7}


def test_a_machine_that_always_has_new_processes_is_listed_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    listings = iter(range(1, 1_000_000))
    monkeypatch.setattr(os, "listdir", lambda _: [str(next(listings))])
    monkeypatch.setattr(supervisor_program, "look_at", lambda _: None)
    assert supervisor_program.scan() == {}
    assert next(listings) == supervisor_program.MAX_LISTINGS + 1
