"""Checkpoints of cells whose parameters are DTensors: a file holds the part of the rank that wrote it."""

from __future__ import annotations

import functools
import threading
from typing import Any

from mindspore.train import serialization

from hyper_dtensor import DTensor

__all__ = ["is_saving", "keep_parts"]


class _Saving(threading.local):
    depth = 0


_saving = _Saving()


def is_saving() -> bool:
    """Whether this thread writes a checkpoint, for which ``Tensor(x)`` of a DTensor is this rank's part."""
    return _saving.depth > 0


def keep_parts() -> None:
    """Let ``mindspore.save_checkpoint`` and ``load_param_into_net`` know DTensor parameters."""
    _save_parts()
    _load_parts()


def _save_parts() -> None:
    convert = serialization._convert_cell_to_param_list

    @functools.wraps(convert)
    def converting(*args: Any, **kwargs: Any) -> Any:
        _saving.depth += 1
        try:
            return convert(*args, **kwargs)
        finally:
            _saving.depth -= 1

    serialization._convert_cell_to_param_list = converting


def _load_parts() -> None:
    """Let ``mindspore.load_param_into_net`` give DTensor parameters this rank's part, or the whole tensor."""
    update = serialization._update_param

    @functools.wraps(update)
    def asking(param: Any, new_param: Any, strict_load: bool) -> None:
        if not isinstance(param, DTensor):
            update(param, new_param, strict_load)
            return
        if strict_load and param.dtype != new_param.dtype:  # type: ignore[attr-defined]
            raise RuntimeError(
                f"{param!r} cannot take {new_param.dtype}: use load_param_into_net(..., strict_load=False)"
            )
        param.set_data(new_param)  # type: ignore[attr-defined]

    serialization._update_param = asking
