"""The end-to-end tests: which scenarios there are, how one is run, and what is said about it."""
