# ruff: noqa: UP006, UP035, UP045
"""Sort and Linear as the dispatcher RFC prints them (8.1, 8.2), with only the imports changed.

Comments are left out. What the RFC elides in Linear ("...") is completed between two marks.
"""

from typing import Callable, Optional, Tuple

from hyper_dispatch import DistributedOp
from hyper_layout import Layout, Partial


def _normalize_sort_args(x, dim=-1, descending=False, stable=False):
    return (x, dim, descending), {"stable": stable}


class SortDistributedOp(DistributedOp):
    """Distributed implementation for Sort operator."""

    _MS_PRIMITIVE_OP_NAMES = frozenset({"SortExt"})

    def preprocess(self, args: tuple, kwargs: dict) -> tuple:
        args, kwargs = _normalize_sort_args(*args, **kwargs)
        input_tensor = args[0]
        dim, descending, stable = args[1], args[2], kwargs["stable"]

        if self.op_name in self._MS_PRIMITIVE_OP_NAMES:
            local_args = (input_tensor.to_local(), dim, descending, stable)
            local_kwargs = {}
        else:
            local_args = (input_tensor.to_local(), dim, descending)
            local_kwargs = {"stable": stable}

        cache_values = [input_tensor.layout, dim]
        return local_args, local_kwargs, cache_values

    def infer_layout(self, cache_values: list) -> Tuple[tuple, None]:
        layout, dim = cache_values[0], cache_values[1]
        self._check_partial_inputs([layout])

        if not isinstance(dim, int):
            raise ValueError(f"For {self.op_name}, dimension should be int, but got {type(dim)}")

        in_tensor_map = layout.tensor_map
        ndim = len(in_tensor_map)
        if dim < -ndim or dim >= ndim:
            raise ValueError(
                f"For {self.op_name}, dimension out of range (expected [{-ndim}, {ndim - 1}], but got {dim})"
            )
        if dim < 0:
            dim += ndim

        mapping = in_tensor_map[dim]
        is_sharded = any(m != -1 for m in mapping) if isinstance(mapping, (list, tuple)) else mapping != -1
        if is_sharded:
            raise ValueError(
                f"For {self.op_name}, sorting along a sharded dimension "
                f"(dim {dim} mapped to {mapping}) is not supported."
            )

        return ((layout, layout), None)


def _normalize_linear_args(x, weight, bias=None):
    return (x, weight, bias), {}


class LinearDistributedOp(DistributedOp):
    """Distributed implementation for Linear operator."""

    def preprocess(self, args: tuple, kwargs: dict) -> tuple:
        args, _ = _normalize_linear_args(*args, **kwargs)
        x_tensor, w_tensor, bias = args[0], args[1], args[2]
        local_args = (
            x_tensor.to_local(),
            w_tensor.to_local(),
            bias.to_local() if hasattr(bias, "_layout") else bias,
        )
        local_kwargs = {}
        cache_values = [
            x_tensor.layout,
            w_tensor.layout,
            bias.layout if hasattr(bias, "_layout") else None,
        ]
        return local_args, local_kwargs, cache_values

    def infer_layout(self, cache_values: list) -> Tuple[tuple, None]:
        x_layout, w_layout, bias_layout = cache_values[0], cache_values[1], cache_values[2]
        self._check_partial_inputs([x_layout, w_layout])

        x_map = x_layout.alias_tensor_map
        w_map = w_layout.alias_tensor_map

        if len(w_map) != 2:
            raise ValueError(
                f"For {self.op_name}, weight should be 2D [out_features, in_features], but got {len(w_map)}D"
            )
        if x_layout.mesh.mesh_shape != w_layout.mesh.mesh_shape:
            raise ValueError(
                f"For {self.op_name}, x and weight must have the same mesh_shape, "
                f"but got x={x_layout.mesh.mesh_shape}, weight={w_layout.mesh.mesh_shape}"
            )

        # -- completed from here: the rules 4 to 6 of its docstring ---------------------------------------
        contracted = x_map[-1]
        if contracted != w_map[1]:
            raise ValueError(
                f"For {self.op_name}, in_features is split by {contracted} in x, by {w_map[1]} in weight"
            )
        if bias_layout is not None and bias_layout.alias_tensor_map[0] != w_map[0]:
            raise ValueError(f"For {self.op_name}, bias must be split like the out_features of weight")
        output_layout = Layout.from_device_mesh(x_layout.mesh)(*x_map[:-1], w_map[0])
        for axis in (
            () if contracted == "None" else (contracted,) if isinstance(contracted, str) else contracted
        ):
            output_layout = output_layout.replace(axis, Partial("sum"))
        # -- to here -----------------------------------------------------------------------------------------
        return (output_layout,), None

    def get_expand_impl(
        self, func: Optional[Callable], infer_result: tuple, cache_values: list
    ) -> Optional[Callable]:
        x_layout = cache_values[0]
        bias_layout = cache_values[2]
        x_map = x_layout.alias_tensor_map
        x_contract_dim = len(x_map) - 1

        if x_map[x_contract_dim] == "None" or not bias_layout:
            return None

        output_layout = infer_result[0][0]
        scaling_factor = 1
        if isinstance(x_map[x_contract_dim], tuple):
            for axis in x_map[x_contract_dim]:
                scaling_factor *= output_layout.mesh.get_device_num_along_axis(axis)
        else:
            scaling_factor *= output_layout.mesh.get_device_num_along_axis(x_map[x_contract_dim])

        def expand_impl(x: object, w: object, bias: object) -> object:
            """Pre-scale bias to counteract the AllReduce accumulation over shards."""
            return func(x, w, bias / scaling_factor)

        return expand_impl
