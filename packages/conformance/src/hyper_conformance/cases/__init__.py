"""The cases, a module per chapter."""
