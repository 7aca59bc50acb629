"""`find_injection`: whether a text that is to be remembered looks like an attack on the agent that will read it again.

Memory goes into every later prompt, so one poisoned web page would speak to the model forever. This is a coarse filter
and no proof: it stops blunt attempts and says why. The reason never quotes what was found, since it may be a secret.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# Joiners and marks of direction that people need for their scripts and emoji, beside characters that are not ASCII.
_JOINERS: Final = frozenset("\u200c\u200d\u200e\u200f\ufe0e\ufe0f")
# They take no room on the screen and are letters to Python.
_FILLERS: Final = frozenset("\u115f\u1160\u3164\uffa0\u034f\u17b4\u17b5")

# Selectors of variants that hardly any text needs: a row of them can spell anything.
_SELECTORS: Final = re.compile("[\ufe00-\ufe0d\U000e0100-\U000e01ef]")
_SHOW_NOTHING: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")

# Letters that look Latin and are not: enough to read a disguised English word.
_LOOKALIKES: Final = str.maketrans("аеорсухіјѕһԁԛԝοαιενρτυχѵ", "aeopcyxijshdqwoaievptuxv")

_RULES: Final = r"(instructions?|rules?|guidelines?|prompts?|directives?|constraints?|polic(y|ies)|guardrails?)"
_PERSON: Final = r"(the|your) (user|owner|human|operator)"
_SECRETS: Final = (
    r"(api[ _-]?keys?|access[ _-]?tokens?|tokens?|passwords?|secrets?|credentials?|private[ _-]?keys?|ssh[ _-]?keys?)"
)
_SECRET_FILE: Final = (
    r"([/ @]\.env\b|\.ssh/|\bid_(rsa|ed25519|ecdsa)\b|\.netrc\b|\.aws/|\.npmrc\b|\.pypirc\b|/auth\.json\b)"
)
_SECRET_VARIABLE: Final = r"\$[({]?\w*(key|token|secret|passw|credential)\w*"
_AWAY: Final = r"(-d|--data[\w-]*|-f|--form|-t|--upload-file|--post-(data|file))"

# A blank is any white space. In a header a token is what people note down; in an address or a body it is given away.
_ATTACKS: Final = tuple(
    (reason, re.compile(pattern.replace(" ", r"\s")))
    for reason, pattern in (
        (
            "it tells the agent to ignore its instructions",
            r"\b(ignore|disregard|forget|override|bypass)( \w+){0,2} (all|any|previous|prior|above|earlier|preceding|"
            rf"existing|your|these|system|developer|safety)( \w+){{0,3}} {_RULES}",
        ),
        (
            "it tells the agent to ignore its instructions",
            rf"\b(ignore|disregard|forget)( \w+)? (the|those|everything)( \w+){{0,3}} ({_RULES}|you were told)",
        ),
        (
            "it gives the agent another role without rules",
            r"\byou are (now|no longer) (dan\b|free (of|from|to)\b|unrestricted|jailbroken|bound|limited|restricted|in "
            r"(developer|god|admin|debug) mode)",
        ),
        (
            "it gives the agent another role without rules",
            rf"\b(act|behave|respond|pretend)( \w+){{0,6}} (no|without)( any)? (restrictions|limits|filters|{_RULES})",
        ),
        (
            "it tells the agent to hide something from the user",
            r"\b(do not|don't|dont|never|without)( \w+)? (tell|inform|notify|alert)(ing)? "
            rf"{_PERSON}(?! to\b)",
        ),
        (
            "it tells the agent to hide something from the user",
            r"\b((hide|conceal) (this|it|that|these|your)|keep( \w+){0,2} (secret|hidden))( \w+){0,4} from "
            rf"{_PERSON}",
        ),
        (
            "it asks for the agent's own instructions",
            r"\b(reveal|print|show|repeat|leak|output|disclose|send)( \w+){0,3} (your|the) (system|hidden|developer|"
            r"initial) (prompt|instructions?|message)",
        ),
        (
            "it imitates the marks that separate the speakers of a conversation",
            r"<\|?/?(im_start|im_end|system|developer|assistant|endoftext|start_header_id|turn_aborted)\b[^>\n]{0,80}>"
            r"|\[/?inst\]|<</?sys>>"
            r"|(^|\n)(#+ (system|developer)( (prompt|message))?|(system|developer) (prompt|message)) ?:",
        ),
        (
            "it sends secrets somewhere",
            rf"\b(send|post|upload|exfiltrate|forward|e-?mail|transmit|leak|paste|submit)\b[^.\n]{{0,40}}\b{_SECRETS}\b"
            r"[^\n]{0,60}(https?://|\bto \S+@\S|\bwebhook|\bpastebin)",
        ),
        (
            "it sends secrets somewhere",
            rf"\b(curl|wget)\b[^\n]{{0,200}}([?&]\w+=\S{{0,40}}{_SECRET_VARIABLE}"
            rf"|{_AWAY} ?\S{{0,40}}({_SECRET_VARIABLE}|{_SECRET_FILE}))",
        ),
        (
            "it sends secrets somewhere",
            rf"({_SECRET_VARIABLE}|{_SECRET_FILE})[^\n]{{0,100}}\| ?(curl|wget|nc|ncat|ssh)\b",
        ),
        ("it opens a back door", r">> ?\S{0,40}\.(ssh/authorized_keys|bashrc|profile|zshrc|bash_profile)\b"),
    )
)

_KEYS: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\b(sk|rk|pk)-(?=[\w-]*\d)[\w-]{20,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{30,}|\bglpat-[\w-]{18,}"
    r"|\b(AKIA|ASIA)[A-Z0-9]{16}\b|\bxox[abprs]-[A-Za-z0-9-]{10,}|\bAIza[\w-]{35}\b"
    r"|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"
)


def find_injection(text: str) -> str | None:
    """Why a text should not be stored, or shown to a model; None when nothing speaks against it."""
    hidden = _hidden(text)
    if hidden is not None:
        return f"it has a character that nobody can see (U+{ord(hidden):04X})"
    if _KEYS.search(text):
        return "it has what looks like a key or a password in it"
    # As a reader takes it: one case, one width, one blank, no marks between or around words.
    folded = unicodedata.normalize("NFKC", text).casefold().translate(_LOOKALIKES).replace("’", "'")
    shown = "".join(char for char in folded if char.isascii() or unicodedata.category(char) != "Cf")
    words = re.sub(r"[*`]+(?=\w)|(?<=\w)[*`]+|(?<!\w)_+(?=\w)|(?<=[^\W_])_+(?!\w)", "", shown)
    plain = re.sub(r"\s*\n\s*", "\n", re.sub(r"[^\S\n]+", " ", words))
    return next((reason for reason, pattern in _ATTACKS if pattern.search(plain)), None)


def _hidden(text: str) -> str | None:
    """The first character that shows nothing and is no white space."""
    for index, char in enumerate(text):
        if char in "\n\t" or " " <= char <= "~":
            continue
        if char in _JOINERS:
            if not _joins(text, index):
                return char
        elif char in _FILLERS or _SELECTORS.match(char) or unicodedata.category(char) in _SHOW_NOTHING:
            return char
    return None


def _joins(text: str, index: int) -> bool:
    """Whether a joiner stands where a script or an emoji needs it. Several in a row can spell a message."""
    before = text[index - 1] if index else " "
    if text[index] == "\u200d" and before == "\ufe0f":
        return index > 1 and text[index - 2] > "~"
    return (before > "~" and before not in _JOINERS) or text[index + 1 : index + 2] == "\u20e3"
