"""A stage for agent programs: a model that speaks their wire APIs, and a home that points them to it."""
