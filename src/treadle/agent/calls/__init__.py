"""What happens when the model calls a tool. `toolbox` runs the calls of a turn; each kind of call has a module."""
