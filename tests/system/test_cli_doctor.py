"""`treadle engines` and `treadle doctor`, seen from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from system.test_cli_run import Stage
from treadle.testing import MockModel

# It answers as the mock model would, and tells what it was given.
HONEST = """
if "--version" in sys.argv:
    mark("version_env", json.dumps(dict(os.environ)))
    print("codex-cli 0.163.0")
    sys.exit()
mark("env", json.dumps(dict(os.environ)))
start()
answer("pong: " + sys.stdin.read())
done()
"""
BROKEN = """
if "--version" in sys.argv:
    print("codex-cli 0.9.0")
    sys.exit()
sys.stderr.write("no such option: --json\\n")
sys.exit(2)
"""


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    stage.env["PATH"] = str(stage.programs)
    return stage


def test_engines_are_listed_with_what_is_missing(stage: Stage) -> None:
    stage.engine(BROKEN)
    done = stage.run("engines")
    assert done.returncode == 0, done.stderr
    assert f"! codex     0.9.0  not logged in  {stage.programs / 'codex'}\n" in done.stdout
    assert "older than 0.163.0" in done.stdout
    assert "to log in: codex login" in done.stdout
    assert "– claude           not installed\n            to get it: npm install -g" in done.stdout
    assert "✓ treadle" in done.stdout
    assert (done.stderr, "\x1b" in done.stdout) == ("", False)


def test_an_engine_of_another_package_is_listed_with_why_it_cannot_be_loaded(stage: Stage, tmp_path: Path) -> None:
    package = tmp_path / "site"
    (package / "odd-1.0.dist-info").mkdir(parents=True)
    (package / "odd-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (package / "odd-1.0.dist-info" / "entry_points.txt").write_text("[treadle.engines]\nodd = no_such_module:ENGINE\n")
    stage.env["PYTHONPATH"] = str(package)
    done = stage.run("engines")
    assert "✗ odd" in done.stdout
    assert "of odd cannot be loaded: ModuleNotFoundError" in done.stdout
    assert stage.run("doctor", "odd").returncode == 1


def test_the_doctor_finds_all_well_and_uses_nothing_of_the_user(stage: Stage) -> None:
    stage.engine(HONEST)
    stage.env |= {"OPENAI_API_KEY": "a-real-key", "HTTPS_PROXY": "http://127.0.0.1:9"}
    done = stage.run("doctor", "codex", "claude")
    assert done.returncode == 0, done.stdout + done.stderr
    found = [line.strip() for line in done.stdout.splitlines()]
    assert found[:4] == ["codex", f"✓ found {stage.programs / 'codex'}", found[2], "✓ login: OPENAI_API_KEY"]
    assert found[2].startswith("✓ version 0.163.0")
    assert found[4].startswith("✓ answers through a mock model")
    assert found[5:7] == ["claude", "– not installed"]
    for name in ("env", "version_env"):
        given = json.loads(stage.marked(name))
        assert not {"OPENAI_API_KEY", "HTTPS_PROXY"} & set(given)
        assert given["HOME"] != stage.env["HOME"]
        assert not Path(given["HOME"]).exists()  # the stage is gone
    assert not stage.home.exists()


def test_what_does_not_work_is_said_with_what_to_do(stage: Stage) -> None:
    stage.engine(BROKEN)
    done = stage.run("doctor", "codex")
    assert done.returncode == 1
    assert "! version 0.9.0 is older than 0.163.0" in done.stdout
    assert "✗ does not answer through a mock model: codex exec failed (rc=2)." in done.stdout
    assert "| no such option: --json" in done.stdout
    assert "install it anew: npm install -g @openai/codex" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("does not work: codex")


def test_a_wrong_answer_is_no_answer(stage: Stage) -> None:
    stage.engine(HONEST.replace("pong: ", "ping: "))
    done = stage.run("doctor", "codex")
    assert done.returncode == 1
    assert "it answered 'ping: treadle doctor'" in done.stdout


def test_our_own_engine_and_treadle_itself_as_json(stage: Stage) -> None:
    stage.env["PATH"] = f"{stage.programs}:/usr/bin:/bin"
    done = stage.run("doctor", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"], done.stderr) == (0, True, ""), found
    own = ["treadle itself", "sandbox", "providers"]
    assert list(found["subjects"]) == [*own, "codex", "claude", "opencode", "pi", "treadle"]
    ours = found["subjects"]["treadle"]
    assert ours[-1]["what"] == "answers through a mock model"
    assert ours[-1]["verdict"] == "ok"
    itself = [check["what"] for check in found["subjects"]["treadle itself"]]
    assert [words.split()[0] for words in itself][:2] == ["Python", "home"]
    assert itself[3:] == [
        "the settings can be read",
        "no threads yet: their database is made with the first one",
        "git at /usr/bin/git",
    ]
    [sandbox] = found["subjects"]["sandbox"]
    assert sandbox["what"].endswith("one was kept from writing elsewhere, and from the network")


def test_settings_that_cannot_be_used_are_found(stage: Stage) -> None:
    stage.home.mkdir()
    (stage.home / "config.toml").write_text("model = 3\n")
    stage.env["PATH"] = f"{stage.programs}:/usr/bin:/bin"
    done = stage.run("doctor")
    assert done.returncode == 1
    assert "✗ the settings cannot be used" in done.stdout
    assert "config.toml" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("does not work: treadle itself")


def test_an_unknown_engine_is_wrong_usage(stage: Stage) -> None:
    done = stage.run("doctor", "nix")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no engine 'nix'\n  why: there are codex" in done.stderr


def test_settings_are_used_or_refused(stage: Stage) -> None:
    stage.env["PATH"] = f"{stage.programs}:/usr/bin:/bin"
    assert "✗ the settings cannot be used" in stage.run("doctor", "-c", "model=3").stdout
    for arguments in (["doctor", "-c", "model=3", "codex"], ["engines", "-c", "model=3"]):
        done = stage.run(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "leave -c out" in done.stderr or "there is no option -c" in done.stderr


def test_providers_without_a_key_and_with_one(stage: Stage) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL"):
        stage.env.pop(name, None)
    stage.env["PATH"] = f"{stage.programs}:/usr/bin:/bin"
    done = stage.run("doctor", "--no-engines")
    assert done.returncode == 0, done.stdout
    assert (
        "– none: the offline model answers, with a fixed script\n      to use a real one: treadle login" in done.stdout
    )
    done = stage.run("doctor", "--no-engines", "-c", "model_provider=anthropic")
    assert done.returncode == 1
    assert "✗ anthropic (in use): there is no key\n      treadle login anthropic, or set ANTHROPIC" in done.stdout
    stage.run("login", "anthropic", stdin="sk-ant-very-s3cret")
    done = stage.run("doctor", "--no-engines")
    assert f"✓ anthropic (in use): key in {stage.home / 'keys.json'}" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr


def test_providers_are_asked_only_when_it_is_wanted(stage: Stage) -> None:
    stage.env["PATH"] = f"{stage.programs}:/usr/bin:/bin"
    with MockModel() as model:
        stage.home.mkdir(mode=0o700)
        table = f'[model_providers.mine]\nbase_url = "{model.base_url}"\nenv_key = "MINE"\n'
        (stage.home / "config.toml").write_text(f'model_provider = "mine"\nmodel = "m"\n{table}')
        stage.env["MINE"] = "very-s3cret"
        done = stage.run("doctor", "--no-engines")
        assert (done.returncode, model.requests()) == (0, [])
        model.enqueue_assistant_message("ok")
        done = stage.run("doctor", "--no-engines", "--online")
        assert done.returncode == 0, done.stdout
        assert "✓ mine: m answers" in done.stdout
        model.enqueue_error(401, {"error": {"message": "bad key very-s3cret"}})
        done = stage.run("doctor", "--no-engines", "--online")
    assert done.returncode == 1
    assert "✗ mine does not answer: " in done.stdout
    assert "      treadle login mine, or set MINE" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr


def test_help_has_examples_and_all_commands(stage: Stage) -> None:
    listing = stage.run("--help").stdout
    for name in ("run", "engines", "doctor"):
        assert f"\n  {name} " in listing
        told = stage.run(name, "--help").stdout
        assert f"Examples:\n  treadle {name}" in told
        assert max(map(len, told.splitlines())) <= 120
