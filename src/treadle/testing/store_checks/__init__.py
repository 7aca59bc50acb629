"""The checks of `treadle.testing.check_store`, by theme."""
