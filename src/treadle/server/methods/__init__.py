"""What each method does. A handler gets a `Call` and returns the result, or replies early and goes on."""
