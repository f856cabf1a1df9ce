"""Which layouts an operation accepts on one mesh axis: its strategy is asked, for one example call.

The calls are the key ``example`` of the registrations. Nothing is computed: operands have a shape and a dtype
but no values, and the first two stages of the strategy are run for every combination of placements.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from hyper_dispatch import Row, find_op, row_of
from hyper_dtensor import DTensor, Spec
from hyper_dtensor.dtensor import dispatching
from hyper_dtensor.platform import exchanged_platform
from hyper_layout import REDUCE_OPS, DeviceMesh, Layout, Partial, Placement, Replicate, Shard

__all__ = ["accepted_rows", "example_call"]

AXIS: Final = DeviceMesh("cpu", (2,), ("axis",))
INTEGERS: Final = frozenset({"index", "ids", "target"})
BOOLEANS: Final = frozenset({"condition", "mask"})


@dataclass(frozen=True)
class _Local:
    """A local tensor without values."""

    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool = False
    device: str = "cpu"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        return len(self.shape)


class _Operand(DTensor):
    """A distributed tensor without values."""

    def __init__(self, local: _Local, spec: Spec, shape: tuple[int, ...]) -> None:
        self._local, self._spec, self._shape = local, spec, shape

    @property
    def dtype(self) -> str:
        return str(self._local.dtype)


class _OnPaper:
    """What strategies ask a platform before anything is computed."""

    name = "none"
    framework = "no framework"
    device_types = ("cpu",)

    def rank(self) -> int:
        return 0

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, _Local)

    def dtype_name(self, x: Any) -> str:
        return str(x.dtype)

    def is_floating(self, x: Any) -> bool:
        return str(x.dtype).startswith("f")

    def tracks_gradient(self, x: Any) -> bool:
        return False

    def grad_enabled(self) -> bool:
        return False

    def version(self, x: Any) -> int:
        return 0


def example_call(op_name: str) -> str | None:
    """The arguments of the example, ``x[4,6], dim=1``; None where there is none for this operation.

    Where its registration gives no example, the parameters without a default are tensors of 4 x 6.
    """
    op = find_op(op_name)
    if op is None:
        return None
    if op.example is not None:
        return op.example or None
    if op.signature is None:
        return None
    required = [name for name in op.signature.names if op.signature.is_required(name)]
    return ", ".join(f"{name}[4,6]" for name in required) or None


def accepted_rows(op_name: str, call: str) -> list[Row]:
    """The rows that the operation accepts in a call: every combination of placements on one axis is asked.

    Args:
        op_name: A registered operation.
        call: Its arguments: ``x[4,6], dim=1``. A name with a shape is a tensor: of integers if it is called
            ``index``, ``ids`` or ``target``, of booleans if ``mask`` or ``condition``, else of floats.

    Returns:
        The rows; that in which all operands are Replicate comes first.

    Raises:
        ValueError: If the text is no call, or none of this operation, or the operation is not registered.
    """
    op = find_op(op_name)
    if op is None:
        raise ValueError(f"operation {op_name!r} is not registered")
    operands, make = _read(call)
    choices = [_placements(name, shape) for name, shape in operands]
    rows: list[Row] = []
    with exchanged_platform(_OnPaper()):  # type: ignore[arg-type]  # of the protocol, what these stages ask
        dispatching.depth += 1
        try:
            for placements in product(*choices):
                layouts = [
                    Layout(AXIS, (placement,), len(shape))
                    for placement, (_, shape) in zip(placements, operands, strict=True)
                ]
                args, kwargs = make(layouts)
                try:
                    values = op.preprocess(args, kwargs)[2]
                    outputs, effects = op.infer_layout(values)
                except (ValueError, NotImplementedError):
                    continue
                except TypeError as error:
                    raise ValueError(f"{op_name}({call}) is no call of it: {error}") from error
                rows.append(row_of(placements, outputs, effects))
        finally:
            dispatching.depth -= 1
    return rows


def _placements(name: str, shape: tuple[int, ...]) -> list[Placement]:
    shards = [Shard(dim) for dim, size in enumerate(shape) if size % 2 == 0]
    partials = () if name in INTEGERS | BOOLEANS else map(Partial, REDUCE_OPS)
    return [Replicate(), *shards, *partials]


Operands = list[tuple[str, tuple[int, ...]]]
Make = Callable[[Sequence[Layout]], tuple[tuple[Any, ...], dict[str, Any]]]


def _read(call: str) -> tuple[Operands, Make]:
    """The operands of a call as ``(name, shape)``, and what makes its arguments for their layouts."""
    try:
        parsed = ast.parse(f"f({call})", mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{call!r} is no call: {error.msg}") from None
    if not isinstance(parsed, ast.Call):
        raise ValueError(f"{call!r} is no call: it must be arguments, separated by commas")
    operands: Operands = []
    _find(parsed, operands)

    def make(layouts: Sequence[Layout]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        tensors = iter([_operand(*given, layout) for given, layout in zip(operands, layouts, strict=True)])
        args = tuple([_value(node, tensors) for node in parsed.args])
        return args, {str(node.arg): _value(node.value, tensors) for node in parsed.keywords}

    return operands, make


def _operand(name: str, shape: tuple[int, ...], layout: Layout) -> _Operand:
    dtype = "i64" if name in INTEGERS else "b" if name in BOOLEANS else "f32"
    return _Operand(_Local(layout.local_shape(shape), dtype), Spec.of(layout), shape)


def _find(node: ast.AST, operands: Operands) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Subscript):
            name = child.value
            if not isinstance(name, ast.Name):
                raise ValueError(f"a tensor is written as name[sizes], not {ast.unparse(child)!r}")
            sizes = ast.literal_eval(child.slice)
            operands.append((name.id, sizes if isinstance(sizes, tuple) else (sizes,)))
        else:
            _find(child, operands)


def _value(node: ast.AST, tensors: Iterator[_Operand]) -> Any:
    if isinstance(node, ast.Subscript):
        return next(tensors)
    if isinstance(node, (ast.List, ast.Tuple)):
        kind = list if isinstance(node, ast.List) else tuple
        return kind([_value(item, tensors) for item in node.elts])
    if isinstance(node, ast.Call):
        return slice(*map(ast.literal_eval, node.args))
    return ast.literal_eval(node)
