"""What `treadle doctor` looks at in Treadle itself, a module for each thing. Nothing is sent unless it is asked for."""
