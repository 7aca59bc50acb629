"""Which values of an environment are secrets."""

from __future__ import annotations

from treadle.secrets import known, learn, redact, secrets_in


def test_keys_are_secrets_and_directories_are_not() -> None:
    environ = {
        "PWD": "/home/ada/loom",
        "OLDPWD": "/home/ada/wool",
        "DB_PWD": "correct horse",
        "LOOM_API_KEY": "0123456789",
        "PLAIN": "sk-abcdefgh12345678",
        "SHORT_KEY": "abc",
        "EDITOR": "/usr/bin/vim",
    }
    assert secrets_in(environ) == ["sk-abcdefgh12345678", "correct horse", "0123456789"]
    assert redact("in /home/ada/loom with correct horse", secrets_in(environ)) == "in /home/ada/loom with [redacted]"


def test_a_few_letters_are_never_taken_out_of_a_log() -> None:
    learn(["T", "a key of the loom"])
    assert "T" not in known()
    assert redact("The Turn used a key of the loom", known()) == "The Turn used [redacted]"
