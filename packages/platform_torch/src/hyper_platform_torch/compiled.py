"""`torch.compile`: whatever is distributed stays out of the graphs and runs as without it.

Tracing through a dispatcher would record the decisions of one call, its caches and gradient states among
them, for all that come after it. The frames of this library are therefore never traced: a graph ends before
an operation on DTensors (or a style's hook) and the next one begins after it, so that values, gradients and
refusals are those of eager mode. What is worth compiling are functions of local tensors: inside of
`local_map`, and between such calls.
"""

from __future__ import annotations

from typing import Any, Final

from wrapt import when_imported

PACKAGES: Final = (
    "hyper_layout",
    "hyper_dtensor",
    "hyper_dispatch",
    "hyper_ops",
    "hyper_tensor_parallel",
    "hyper_platform_torch",
)


def keep_out_of_graphs() -> None:
    """Tell the compiler, as soon as it is imported, which packages it must not trace.

    Not before: importing it takes as long as half of PyTorch, and most processes never compile.
    """

    @when_imported("torch._dynamo.trace_rules")
    def _skip(trace_rules: Any) -> None:
        for package in PACKAGES:
            trace_rules.add(package)
