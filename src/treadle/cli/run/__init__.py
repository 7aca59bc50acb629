"""`treadle run` and `treadle engines`: agent programs of others, run once and listed."""
