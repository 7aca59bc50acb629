"""What the model can call. Each tool is a module or package of its own; nothing is loaded before it is used."""
