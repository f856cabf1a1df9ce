"""What is checked when a plan is applied: sharing, head counts, parameters left plain (design section 6)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from hyper_dtensor import DTensor, get_platform
from hyper_dtensor.platform import modules_below
from hyper_tensor_parallel.plan import Match
from hyper_tensor_parallel.prepare import PrepareModuleInput, PrepareModuleInputOutput, PrepareModuleOutput
from hyper_tensor_parallel.style import Module

__all__ = ["check_heads", "check_sharing", "warn_left_plain"]

_BOUNDARY_STYLES = (PrepareModuleInput, PrepareModuleOutput, PrepareModuleInputOutput)


def check_sharing(root: Module, matches: Sequence[Match]) -> None:
    """Refuse a plan that distributes a parameter in one of the modules that share it, but not in another.

    Raises:
        ValueError: Names the parameter and both modules.
    """
    platform = get_platform()
    planned = {
        id(module)
        for match in matches
        if not isinstance(match.style, _BOUNDARY_STYLES)
        for _, module in modules_below(platform, match.module)
    }
    holders: dict[int, list[tuple[str, str, bool]]] = {}
    seen: set[int] = set()
    for name, module in modules_below(platform, root):
        if id(module) in seen:
            continue
        seen.add(id(module))
        for key, value in platform.parameters(module).items():
            if not isinstance(value, DTensor):
                holders.setdefault(id(value), []).append((name, key, id(module) in planned))
    for shared in holders.values():
        split = next((entry for entry in shared if entry[2]), None)
        plain = next((entry for entry in shared if not entry[2]), None)
        if split is not None and plain is not None:
            raise ValueError(
                f"parameter {split[1]!r} of {split[0]!r} is shared with {plain[0] or 'the root module'!r}, "
                "which the plan leaves plain: both would compute with a DTensor. Add "
                f"{plain[0] or 'the root module'!r} to the plan (for tied embeddings RowwiseParallel on the "
                "embedding and ColwiseParallel on the head give the same split)"
            )


def check_heads(matches: Sequence[Match], size: int) -> None:
    """Refuse to cut an attention projection inside of a head.

    The parent tells its ``head_dim``, or its number of heads (``num_heads``, ``n_heads``, ``n_head``,
    ``num_attention_heads``), by which its features must divide.

    Raises:
        ValueError: Names the module, the number of heads and the size of the mesh.
    """
    for match in matches:
        features = match.style.head_features(match.module)
        if features is None or match.parent is None:
            continue
        head_dim = getattr(match.parent, "head_dim", None)
        if not isinstance(head_dim, int):
            counts = [
                getattr(match.parent, key, None)
                for key in ("num_heads", "n_heads", "n_head", "num_attention_heads")
            ]
            heads = next((count for count in counts if isinstance(count, int) and count > 0), None)
            head_dim = features // heads if heads and features % heads == 0 else None
        if head_dim and features % head_dim == 0 and (features // head_dim) % size:
            raise ValueError(
                f"{match.name}: its {features // head_dim} heads of {head_dim} features do not divide by the "
                f"{size} ranks of the mesh, a rank would hold a part of a head; use a mesh that divides "
                "them, or for fewer key and value heads than ranks "
                "NoParallel(local_grad_placements=Partial()) with rank-local slicing"
            )


def warn_left_plain(root: Module) -> None:
    """Warn once about parameters that stayed plain in modules beside others that were split.

    Their local gradients miss what the other ranks see, silently, as those of norms over split heads do.
    A module with split ones below it was planned at that level, and its own children are judged there.
    """
    platform = get_platform()
    left: dict[int, str] = {}
    for prefix, module in modules_below(platform, root):
        children = platform.children(module)
        if not any(_is_split(child) for child in children.values()):
            continue
        for name, child in children.items():
            below = list(modules_below(platform, child, f"{prefix}.{name}" if prefix else name))
            if any(_is_split(owner) for _, owner in below):
                continue
            for owner_name, owner in below:
                for key, value in platform.parameters(owner).items():
                    if not isinstance(value, DTensor):
                        left.setdefault(id(value), f"{owner_name}.{key}")
    if left:
        names = list(left.values())
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        warnings.warn(
            f"parallelize_module left these parameters plain beside modules that were split: {shown}. If "
            "they see split activations their gradients will be wrong: add RowwiseParallel() to the plan "
            "(for the linear layer behind a column-wise one) or SequenceParallel() (for a norm over split "
            "heads: SequenceParallel(sequence_dim=2, use_local_output=True)), or NoParallel() where they see "
            "whole ones",
            UserWarning,
            stacklevel=3,
        )


def _is_split(module: Module) -> bool:
    """Whether the module itself holds a sharded parameter."""
    return any(
        isinstance(value, DTensor) and value.layout.shard_axes
        for value in get_platform().parameters(module).values()
    )
