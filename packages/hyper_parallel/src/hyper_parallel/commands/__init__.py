"""One module per command, and what they share."""
