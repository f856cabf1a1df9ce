"""``parallelize_module``: apply styles to the modules of a tree (styles RFC section 4.2)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from hyper_layout import DeviceMesh, current_mesh
from hyper_tensor_parallel.checks import check_heads, check_sharing, warn_left_plain
from hyper_tensor_parallel.plan import Match, match_plan
from hyper_tensor_parallel.style import Module, ParallelStyle

__all__ = ["parallelize_module"]


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | Mapping[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Apply one style to ``module``, or a plan of styles to modules below it.

    Args:
        module: The root; changed in place.
        device_mesh: A mesh of one axis, such as ``mesh["tp"]``; the current mesh (``with mesh:``) if not
            given.
        parallelize_plan: A style for the root, or a mapping from fully qualified names to styles. Each
            part of a name may be a glob: ``"layers.*.attn.q_proj"``. A name that matches nothing warns and
            is skipped.
        src_data_rank: Whose parameters count: scattered or broadcast from this coordinate; ``None`` if
            all ranks hold the same values (then nothing is sent). Written into the styles.

    Returns:
        The module.

    Raises:
        TypeError: If the plan is neither a style nor a mapping of styles.
        ValueError: Without a mesh, for a mesh of several axes, a malformed name, features or head counts
            that do not divide, or a parameter that is shared with a module the plan leaves plain; the
            message names the module.
        RuntimeError: If a style was applied to a module before; the message names it.
    """
    mesh = device_mesh if device_mesh is not None else current_mesh()
    if mesh is None:
        raise ValueError("parallelize_module needs device_mesh=, or a current mesh (with mesh: ...)")
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(
            f"parallelize_module takes a DeviceMesh, got {type(mesh).__name__}: it is called as "
            "parallelize_module(module, device_mesh, parallelize_plan)"
        )
    if mesh.ndim != 1:
        names = ", ".join(repr(name) for name in mesh.mesh_dim_names)
        raise ValueError(
            f"Tensor Parallel only accepts a 1D DeviceMesh, got {mesh.ndim} axes ({names}); "
            f'pass one of them, for example device_mesh["{mesh.mesh_dim_names[-1]}"]'
        )
    if parallelize_plan is None:
        warnings.warn(
            "parallelize_module got no parallelize_plan: the module is returned as it is",
            UserWarning,
            stacklevel=2,
        )
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        return _apply(Match("", None, "", module, parallelize_plan), mesh, src_data_rank)
    if not isinstance(parallelize_plan, Mapping):
        raise TypeError(
            "parallelize_plan must be a ParallelStyle or a dict of names to ParallelStyles, "
            f"got {_instead_of_a_style(parallelize_plan)}"
        )
    for name, style in parallelize_plan.items():
        if not isinstance(style, ParallelStyle):
            raise TypeError(
                f"parallelize_plan[{name!r}] must be a ParallelStyle, got {_instead_of_a_style(style)}"
            )
    matches = match_plan(module, parallelize_plan)
    check_sharing(module, matches)
    check_heads(matches, mesh.size())
    for match in matches:
        applied = _apply(match, mesh, src_data_rank)
        if applied is not match.module:
            setattr(match.parent, match.child_name, applied)
    warn_left_plain(module)
    return module


# What a style refuses with, the first that fits: NotImplementedError is a RuntimeError.
_NAMED = (NotImplementedError, RuntimeError, ValueError)


def _instead_of_a_style(value: Any) -> str:
    if isinstance(value, type) and issubclass(value, ParallelStyle):
        return f"the class {value.__name__}: write {value.__name__}()"
    return type(value).__name__


def _apply(match: Match, mesh: DeviceMesh, src_data_rank: int | None) -> Any:
    match.style.src_data_rank = src_data_rank
    try:
        return match.style.apply(match.module, mesh)
    except _NAMED as error:
        kind = next(kind for kind in _NAMED if isinstance(error, kind))
        raise kind(f"{match.name or 'the root module'}: {error}") from error
