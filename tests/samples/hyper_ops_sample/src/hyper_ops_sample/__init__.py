"""An operator family outside of hyper_parallel: `distance.py` says what it does, `yaml/distance.yaml` to whom."""

from importlib import import_module
from importlib.resources import as_file, files

from hyper_dispatch import load_yaml


def register() -> None:
    """What the entry point of the group ``hyper_parallel.ops`` names: make strategies and operators known."""
    import_module("hyper_ops_sample.distance")
    with as_file(files("hyper_ops_sample") / "yaml" / "distance.yaml") as path:
        load_yaml(path)
