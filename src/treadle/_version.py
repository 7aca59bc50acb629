__version__ = "0.1.0"
# The Codex release whose protocol this is. Clients and SDKs read it where a Codex program has its own version, and
# refuse what they think is too old.
PROTOCOL_VERSION = "0.166.0"
