"""Where a text goes: by the session that it names, by the words before it, or by default."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from treadle.errors import ArgumentValueError
from treadle.runners import Engine, EngineEntry, ResumeLine, ResumeToken, Route, RouteError, Router

CODEX = ResumeLine("codex", "codex resume {}", "codex resume")
CLAUDE = ResumeLine("claude", "claude --resume {}", "claude (?:--resume|-r)")
PI = ResumeLine("pi", "pi --session {}", "pi --session")
ONE, TWO = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))

ROUTER = Router(
    [
        EngineEntry(name="codex", resume=CODEX),
        EngineEntry(name="claude", resume=CLAUDE),
        EngineEntry(name="pi", resume=PI, status="missing", advice="npm install -g pi"),
    ],
    "codex",
    {"web": "claude", "api": None, "old": "gone", "slow": "pi"},
)


def problem_of(text: str, reply: str | None = None) -> RouteError:
    with pytest.raises(RouteError) as caught:
        ROUTER.resolve(text, reply)
    return caught.value


# --- directives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "route"),
    [
        ("fix it", Route(engine="codex", prompt="fix it")),
        ("/claude fix it", Route(engine="claude", prompt="fix it")),
        ("/CLAUDE fix it", Route(engine="claude", prompt="fix it")),
        ("/claude@my_bot fix it", Route(engine="claude", prompt="fix it")),
        ("/web fix it", Route(engine="claude", prompt="fix it", project="web")),
        ("/api fix it", Route(engine="codex", prompt="fix it", project="api")),
        ("@fix/a x", Route(engine="codex", prompt="x", branch="fix/a")),
        ("@b /codex /web x", Route(engine="codex", prompt="x", project="web", branch="b")),
        ("/web @b /codex x", Route(engine="codex", prompt="x", project="web", branch="b")),
        ("\n \n  /claude  fix   it \n\n  and  that\n", Route(engine="claude", prompt="fix   it \n\n  and  that\n")),
        ("/claude\n\n  indented\n", Route(engine="claude", prompt="  indented\n")),
        ("/claude \r\nfix it\r\n", Route(engine="claude", prompt="fix it\r\n")),
    ],
)
def test_words_before_the_text(text: str, route: Route) -> None:
    assert ROUTER.resolve(text) == route


@pytest.mark.parametrize(
    "text",
    [
        "/compact now",
        "/review /claude x",
        "/usr/bin/env is missing",
        "/claude/x",
        "/claude: x",
        "please /claude fix @branch",
        "x\n/claude y",
        "@ home",
        "/",
        "  two  spaces \n\n and lines \n",
    ],
)
def test_what_is_no_directive_stays_in_the_prompt(text: str) -> None:
    assert ROUTER.resolve(text) == Route(engine="codex", prompt=text)


def test_the_engines_own_command_may_come_after_ours() -> None:
    assert ROUTER.resolve("/claude /compact  now") == Route(engine="claude", prompt="/compact  now")


@pytest.mark.parametrize(
    ("text", "both"),
    [
        ("/claude /codex x", ("/claude", "/codex")),
        ("/claude /claude x", ("/claude", "/claude")),
        ("/web @b /api x", ("/web", "/api")),
        ("@a @b x", ("@a", "@b")),
    ],
)
def test_one_of_each(text: str, both: tuple[str, str]) -> None:
    problem = problem_of(text)
    assert problem.kind == "duplicate"
    assert f"{both[0]} and {both[1]} are two" in str(problem)


@pytest.mark.parametrize("word", ["@../up", "@-x", "@a..b", "@x.lock"])
def test_no_name_of_a_branch(word: str) -> None:
    problem = problem_of(f"{word} x")
    assert (problem.kind, f"`{word}`" in str(problem)) == ("bad_branch", True)


@pytest.mark.parametrize("text", ["", " \n", "/claude", "/web @b \n "])
def test_nothing_to_do(text: str) -> None:
    assert problem_of(text).kind == "empty"


# --- engines that are not there --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "reply"), [("/pi x", None), ("/slow x", None), ("x", f"pi --session {ONE}")])
def test_a_missing_engine_says_how_to_get_it(text: str, reply: str | None) -> None:
    problem = problem_of(text, reply)
    assert (problem.kind, problem.engine) == ("unavailable", "pi")
    assert str(problem) == "pi is not installed: npm install -g pi; or begin with /codex or /claude"


def test_an_engine_of_a_project_that_nobody_knows() -> None:
    problem = problem_of("/old x")
    assert (problem.kind, problem.engine) == ("unknown_engine", "gone")
    assert ROUTER.resolve("/old /claude x").engine == "claude"


def test_the_default_has_to_be_known() -> None:
    with pytest.raises(ArgumentValueError, match="codex"):
        Router([EngineEntry(name="codex", resume=CODEX)], "claude")


def test_an_engine_is_meant_before_a_project_of_the_same_name() -> None:
    router = Router([EngineEntry(name="codex", resume=CODEX)], "codex", {"codex": None})
    assert router.resolve("/codex x") == Route(engine="codex", prompt="x")


def test_the_entry_of_an_engine() -> None:
    engine: Engine[None] = Engine(
        name="codex",
        program="codex",
        install="npm i -g codex",
        arguments=lambda request: [],
        start=lambda request: None,
        translate=lambda state, line: (),
        finish=lambda state, ending, completed: (),
        resume=CODEX,
    )
    assert EngineEntry.of(engine) == EngineEntry(name="codex", resume=CODEX, advice="npm i -g codex")
    assert EngineEntry.of(engine, missing=True).status == "missing"


# --- sessions --------------------------------------------------------------------------------------------------------


def test_a_session_in_the_text_or_in_what_it_replies_to() -> None:
    token = ResumeToken("claude", ONE)
    line = f"`claude --resume {ONE}`"
    assert ROUTER.resolve(f"go on\n\n{line}") == Route(engine="claude", prompt="go on", resume=token)
    assert ROUTER.resolve("go  on\n", f"done\n\n{line}\n") == Route(engine="claude", prompt="go  on\n", resume=token)
    assert ROUTER.resolve(line) == Route(engine="claude", prompt="continue", resume=token)
    assert ROUTER.resolve(" \n", line) == Route(engine="claude", prompt="continue", resume=token)


def test_the_text_counts_before_the_reply_and_the_last_line_before_the_others() -> None:
    first, last = f"claude --resume {ONE}", f"codex resume {TWO}"
    assert ROUTER.resolve(f"{first}\nx", last).resume == ResumeToken("claude", ONE)
    assert ROUTER.resolve(f"{first}\nx\n{last}") == Route(engine="codex", prompt="x", resume=ResumeToken("codex", TWO))
    assert ROUTER.resolve(f"{last}\nx\n{first}") == Route(
        engine="claude", prompt="x", resume=ResumeToken("claude", ONE)
    )


def test_two_engines_that_write_their_sessions_alike() -> None:
    twin = ResumeLine("twin", "codex resume {}", "codex resume")
    router = Router([EngineEntry(name=line.engine, resume=line) for line in (CODEX, twin)], "twin")
    route = router.resolve(f"a\ncodex resume {ONE}\nb")
    assert route == Route(engine="codex", prompt="a\nb", resume=ResumeToken("codex", ONE))


def test_a_session_behind_directives() -> None:
    route = ROUTER.resolve(f"/web codex resume {ONE}\ngo on", f"claude -r {TWO}")
    assert route == Route(engine="codex", prompt="go on", resume=ResumeToken("codex", ONE), project="web")


def test_lines_of_sessions_are_cut_out_and_the_rest_is_as_it_was() -> None:
    text = f"  a\n\n  b  \nclaude -r {ONE}\n\tc  \n\n`codex resume {TWO}`\n"
    assert ROUTER.resolve(text).prompt == "  a\n\n  b  \n\tc  "


def test_the_session_counts_before_another_engine_and_says_so() -> None:
    reply = f"codex resume {ONE}"
    route = ROUTER.resolve("/claude /web @b more", reply)
    assert (route.engine, route.resume, route.prompt) == ("codex", ResumeToken("codex", ONE), "more")
    assert (route.project, route.branch) == ("web", "b")
    assert route.notice == "/claude does not count here: the session belongs to codex"
    assert ROUTER.resolve("/codex more", reply).notice is None
    assert ROUTER.resolve("/web more", reply).notice is None


@pytest.mark.parametrize("text", ["codex resume --last", "claude --resume --dangerously-skip-permissions", "see codex"])
def test_what_only_looks_like_a_session_is_text(text: str) -> None:
    assert ROUTER.resolve(text) == Route(engine="codex", prompt=text)


# --- whatever is written ---------------------------------------------------------------------------------------------

WORDS = st.sampled_from(["/claude", "/codex", "/pi", "/web", "/api", "@b", "@c/d", "/compact", "x", "a  b", "/x@bot"])
PIECES = st.one_of(
    WORDS, st.sampled_from(["\n", " ", "\r\n", "\t", f"codex resume {ONE}\n", f"\nclaude -r {TWO}\n"]), st.text()
)
TEXTS = st.lists(PIECES, max_size=10).map("".join)


@given(TEXTS, st.none() | TEXTS)
@example(f"/claude codex resume {ONE}\n/claude\n", None)
def test_a_route_or_an_error_and_the_prompt_is_a_part_of_the_text(text: str, reply: str | None) -> None:
    try:
        route = ROUTER.resolve(text, reply)
    except RouteError:
        return
    assert route.engine in ("codex", "claude")
    assert route.resume is None or route.resume.engine == route.engine
    assert CODEX.extract(route.prompt) is None
    assert CLAUDE.extract(route.prompt) is None
    if CODEX.extract(text) is None and CLAUDE.extract(text) is None and PI.extract(text) is None:
        behind_directives = route.resume is not None and route.resume.value in text and route.prompt in text
        assert text.endswith(route.prompt) or (route.prompt == "continue" and route.resume) or behind_directives
    if route.resume is None:
        assert CODEX.extract(reply) is None
        assert CLAUDE.extract(reply) is None


@given(st.permutations(["/claude", "/api", "@feature/x"]), st.integers(0, 3), st.sampled_from(["", " ", "\n", " \n\t"]))
def test_directives_in_any_order(words: list[str], count: int, before: str) -> None:
    used = words[:count]
    route = ROUTER.resolve(before + "  ".join([*used, "do  it\n  now "]))
    assert route.prompt == ("do  it\n  now " if used else before + "do  it\n  now ")
    assert route.engine == ("claude" if "/claude" in used else "codex")
    assert route.project == ("api" if "/api" in used else None)
    assert route.branch == ("feature/x" if "@feature/x" in used else None)
