"""The vocabulary of the protocols as msgspec structs. No behaviour."""
