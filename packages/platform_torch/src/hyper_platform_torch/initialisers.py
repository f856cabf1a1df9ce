"""Initialisers of ``torch.nn.init`` that redraw until all values fit.

``trunc_normal_`` decides by the values how often it draws, so that ranks would draw differently often. The
other random initialisers ask for an override; this one is made to, and runs as one random operation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary

__all__ = ["make_overridable"]


def make_overridable() -> None:
    """Let ``torch.nn.init.trunc_normal_`` ask for an override, however it was imported. Once per process."""
    # The public function looks its body up by this name; users may have imported the public one already.
    body = torch.nn.init._no_grad_trunc_normal_
    if getattr(body, "_asks_for_override", False):
        return
    public = torch.nn.init.trunc_normal_

    def asking(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if has_torch_function_unary(tensor):
            return handle_torch_function(public, (tensor,), tensor, *args, **kwargs)
        return body(tensor, *args, **kwargs)

    asking._asks_for_override = True  # type: ignore[attr-defined]
    torch.nn.init._no_grad_trunc_normal_ = asking
