"""The MindSpore adapter."""
