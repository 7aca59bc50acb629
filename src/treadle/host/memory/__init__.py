"""What the agent remembers: `MEMORY.md` and `USER.md`."""
