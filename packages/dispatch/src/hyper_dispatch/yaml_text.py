"""YAML as all tables of this project are read: safely, each key once, by libyaml where PyYAML has it."""

from __future__ import annotations

from typing import Any

import yaml

try:
    from yaml import CSafeLoader as _SafeLoader  # eight times as fast
except ImportError:  # PyYAML was built without libyaml
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]


class _UniqueKeyLoader(_SafeLoader):
    """A safe loader that refuses a mapping with the same key twice (YAML itself keeps the last)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                if key_node.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key_node.value!r} is given twice", key_node.start_mark
                    )
                seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def read_yaml(text: str) -> Any:
    """The content of a YAML text.

    Raises:
        yaml.YAMLError: If the text is no YAML, or gives a key of one mapping twice.
    """
    return yaml.load(text, Loader=_UniqueKeyLoader)
