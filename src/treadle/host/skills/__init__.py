"""What the agent knows how to do: folders with a `SKILL.md`."""
