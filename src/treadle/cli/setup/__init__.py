"""Setting Treadle up: `treadle login`, `logout` and `config`, and what they share with `treadle doctor`."""
