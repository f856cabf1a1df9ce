"""All attributes of ``mindspore.Tensor`` on a split DTensor: the whole result, or refused. Run in the ranks."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np

# What they answer is the same for this rank's part, is a matter of objects, or is said of the storage on purpose.
ALIKE = {
    "dtype", "device", "itemsize", "has_init", "is_floating_point", "is_complex", "is_signed", "is_contiguous",
    "layout", "init", "init_mode", "init_finished", "virtual_flag", "const_arg", "param_info", "hooks",
    "is_sparse", "delta_seed", "requires_grad", "offload_file_path", "dim", "ndim", "is_init", "set_const_arg",
    "init_data", "flush_from_cache", "set_dtype", "set_cast_dtype", "set_init_flag", "set_param_info",
    "set_device_address", "register_hook", "remove_hook", "requires_grad_", "value", "is_leaf", "retains_grad", "retain_grad",
    "from_numpy", "convert_bytes_to_tensor", "is_persistent_data", "check_mode", "is_forward_output", "stub_sync",
    "wait_pipeline", "sync", "type", "get_device", "is_shared", "adapter_flag", "parent_tensor_", "index_of_parent_",
    "data_sync", "assign_value_cpp",
}  # fmt: skip
"""Names that are asked no further."""

ARGUMENTS: list[tuple[Any, ...]] = [(), (0,), (1,), (2.0,), ("x",), (0, 1), ((2, 2),), ("x", "x")]


def walk() -> tuple[list[str], dict[str, int]]:
    """Attributes that gave a local value, and how many attributes came to what."""
    from mindspore import Tensor

    from hyper_dtensor import DTensor, init_device_mesh
    from hyper_layout import Shard

    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    leaks, counts = [], {"equal": 0, "distributed": 0, "refused": 0, "alike": 0, "no call": 0}
    for name in sorted(set(dir(Tensor)) - set(dir(object))):
        if name.startswith("_") or name in ALIKE:
            counts["alike"] += 1
            continue
        outcome = "no call"
        for arguments in ARGUMENTS:
            whole = np.random.default_rng(0).uniform(0.2, 0.8, (4, 4)).astype(np.float32)
            plain = Tensor(whole)
            split = DTensor.from_local(
                Tensor(np.split(whole, 2)[mesh.get_local_rank(0)].copy()), mesh, [Shard(0)]
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = _ask(split, name, [split if a == "x" else a for a in arguments])
                if found is _REFUSED:
                    outcome = "refused" if outcome == "no call" else outcome
                    continue
                expected = _ask(plain, name, [plain if a == "x" else a for a in arguments])
            if _leaks(found, expected, split, Tensor, DTensor):
                leaks.append(f"{name}{arguments}: {found!r}")
                break
            kind = "distributed" if _has(found, DTensor) else "equal"
            outcome = kind if outcome in ("no call", "refused") else outcome
        counts[outcome] += 1
    return leaks, counts


_REFUSED = object()


def _ask(x: Any, name: str, arguments: list[Any]) -> Any:
    try:
        found = getattr(x, name)
        return found(*arguments) if inspect.isroutine(found) or callable(found) else found
    except Exception:
        return _REFUSED


def _has(value: Any, kind: type) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_has(item, kind) for item in value)
    return isinstance(value, kind)


def _leaks(found: Any, expected: Any, split: Any, tensor: type, distributed: type) -> bool:
    """Whether the result of a split tensor is neither distributed nor that of the whole one."""
    if isinstance(found, (list, tuple)):
        same = isinstance(expected, (list, tuple)) and len(found) == len(expected)
        pairs = zip(found, expected, strict=True) if same else [(item, None) for item in found]
        return any(_leaks(one, other, split, tensor, distributed) for one, other in pairs)
    if isinstance(found, distributed):
        if isinstance(expected, tensor):
            return tuple(found.shape) != tuple(expected.shape)  # type: ignore[attr-defined]
        return False
    if found is None or isinstance(found, bool):
        return False
    if isinstance(found, tensor):
        return True
    if isinstance(found, np.ndarray):
        return not (isinstance(expected, np.ndarray) and np.array_equal(found, expected))
    return bool(found != expected)
