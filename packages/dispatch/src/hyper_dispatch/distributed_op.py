"""The three stages of an operation: what a strategy implements.

`preprocess` is the only stage that sees the arguments of a call; `infer_layout` does layout arithmetic
and all validation; `get_expand_impl` offers a local implementation where the plain one does not do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from hyper_dispatch.effects import Effects
from hyper_dispatch.outputs import wrap_outputs
from hyper_dispatch.rows import Row, infer_rows
from hyper_dispatch.signature import Signature
from hyper_dtensor import DTensor, Spec
from hyper_layout import Layout, LayoutError

Preprocessed = tuple[tuple[Any, ...], dict[str, Any], Sequence[Any]]
InferResult = tuple[tuple[Layout | None, ...], Effects | None]


class DistributedOp:
    """Base of all strategies. One instance serves one operation name.

    Attributes:
        op_name: The operation this instance serves.
        signature: The operation's parameters, where its registration states them.
        algebra: How the operation relates to sums (`none`, or a word its family knows).
        plain_operands: Names of parameters that may be plain tensors of rank >= 1 (ids, targets): they count
            as Replicate.
        takes_plain: Plain tensors are handed to `preprocess` as they are: they are a matter of the strategy.
        inplace: The operation writes into operand 0.
        view_like: The output is a view, a cast or a piece of operand 0: its varying view is the operation
            applied to the varying view of the operand.
        random: The operation draws random numbers.
        example: A call with operands as `name[sizes]` (`x[4,6], dim=1`), from which the table of accepted
            layouts is made. Empty: no one call says what the operation does. None: nothing is said of it.
    """

    algebras: ClassVar[frozenset[str]] = frozenset()
    """Words this family knows for `algebra`; empty: the key is not checked."""
    _allow_partial_inputs: bool = False
    preprocess_is_pure: bool = False
    """Whether `preprocess` depends on the arguments alone (of operands on layout, gradient state, shape,
    dtype and need of a gradient; of lists that are written in place with gradients off not the need) and on
    whether gradients are on: calls of one form then run without it."""

    shapes_follow: bool = False
    """Whether the local shape of an only output follows from the local shapes of the operands and the static
    values (not from the values of an operand): it is then not compared at each call."""

    needs_signature: bool = False
    """Whether a registration without a signature is refused; else the first call is, if it asks for one."""

    signature: Signature | None = None
    algebra: str = "none"
    plain_operands: frozenset[str] = frozenset()
    takes_plain: bool = False
    inplace: bool = False
    view_like: bool = False
    random: bool = False
    example: str | None = None

    def __init__(self, op_name: str) -> None:
        self.op_name = op_name

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The call by parameter name, defaults filled in."""
        if self.signature is None:
            strategy = type(self).__name__
            raise TypeError(f"{self.op_name} is registered without a signature, which {strategy} needs")
        return self.signature.bind(args, kwargs)

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Preprocessed:
        """Normalise the arguments.

        Args:
            args: Positional arguments of the call.
            kwargs: Keyword arguments of the call.

        Returns:
            `(local_args, local_kwargs, cache_values)`: what the local implementation is called with, and the
            layouts of the operands followed by the static values that decide layout or implementation.
        """
        raise NotImplementedError(f"{type(self).__name__} has no preprocess")

    def infer_layout(self, cache_values: Sequence[Any]) -> InferResult:
        """Derive the output layouts.

        Args:
            cache_values: As `preprocess` made them.

        Returns:
            `(output_layouts, extra_info)`; a layout None passes that output through unwrapped.

        Raises:
            LayoutError: If the operands cannot be combined locally (any `ValueError` is reported alike).
        """
        raise NotImplementedError(f"{type(self).__name__} has no infer_layout")

    def get_expand_impl(
        self, func: Callable[..., Any] | None, infer_result: Any, cache_values: Sequence[Any]
    ) -> Callable[..., Any] | None:
        """A local implementation to use instead of `func`, or None. Called once per cache entry.

        It serves later calls too: it takes everything that is not in `cache_values` from its own arguments,
        and reads the rank when it runs (ranks that are threads of one process share the entry).
        """
        return None

    def wrap_output(self, py_output: Any, output_layouts: Sequence[Layout | None]) -> Any:
        """Make distributed tensors of the local results.

        The dispatcher does this itself, with gradient states and known shapes, unless this is overridden.

        Args:
            py_output: What the local implementation returned.
            output_layouts: As `infer_layout` derived them.
        """
        specs = [None if layout is None else Spec.of(layout) for layout in output_layouts]
        return wrap_outputs(py_output, specs, [None] * len(specs))

    def numbers_are_free(self, specs: Sequence[Spec]) -> bool:
        """Whether the floats among the arguments are of no account to all stages for operands like these.

        `preprocess` then hands all arguments but the distributed tensors on as they are, and calls that
        differ in such a number alone share one plan.
        """
        return False

    def draws(self, cache_values: Sequence[Any]) -> bool:
        """Whether a call with these values draws random numbers (asked once per cache entry)."""
        return self.random

    def views(self, cache_values: Sequence[Any]) -> bool:
        """Whether the outputs of a call with these values are views of operand 0, as `view_like` says."""
        return self.view_like

    def _check_partial_inputs(self, layouts: Iterable[Layout | None]) -> None:
        """Refuse Partial operands, unless `_allow_partial_inputs` is set.

        Raises:
            LayoutError: Naming the operation, the operand's number and the mesh axis.
        """
        if self._allow_partial_inputs:
            return
        for number, layout in enumerate(layouts):
            if layout is None:
                continue
            for axis, reduce_op in enumerate(layout.partial):
                if reduce_op is not None:
                    raise LayoutError(
                        f"For {self.op_name}, operand {number} must not be Partial, but it is "
                        f"Partial({reduce_op}) on mesh axis {layout.mesh.mesh_dim_names[axis]!r}"
                    )


class RowsOp(DistributedOp):
    """A strategy whose rule is rows of placements (see `rows.py`): the normal way to write a family.

    A family gives `rows` and `output_ndims`; it overrides `statics` to keep out of the cache key what
    cannot change layout or implementation.
    """

    preprocess_is_pure = True

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Preprocessed:
        """Bind the call; local tensors take the place of distributed ones, the form of the call is kept."""
        bound = self.bind(args, kwargs)
        local_args, local_kwargs = to_locals(args, kwargs)
        return local_args, local_kwargs, [*operand_layouts(bound), *self.statics(bound)]

    def statics(self, bound: dict[str, Any]) -> tuple[Any, ...]:
        """The static values of a call: by default every argument that holds no distributed tensor."""
        return tuple(
            tuple(value) if isinstance(value, list) else value
            for value in bound.values()
            if not _holds_operand(value)
        )

    def rows(self, cache_values: Sequence[Any]) -> Sequence[Row]:
        """The rule, one column per layout among `cache_values`. All validation of arguments belongs here."""
        raise NotImplementedError(f"{type(self).__name__} has no rows")

    def output_ndims(self, cache_values: Sequence[Any]) -> Sequence[int | None]:
        """Rank of each output; None for an output that is passed through unwrapped."""
        raise NotImplementedError(f"{type(self).__name__} has no output_ndims")

    def output_shapes(self, cache_values: Sequence[Any]) -> tuple[tuple[int, ...] | None, ...] | None:
        """Global shape of each output where `cache_values` holds the sizes; by default unknown."""
        return None

    def letters(self, cache_values: Sequence[Any]) -> Sequence[str] | None:
        """Names of the dims of each operand (`["mk", "kn"]`), for messages; by default unknown."""
        return None

    def infer_layout(self, cache_values: Sequence[Any]) -> InferResult:
        """Apply the rows to the layouts among `cache_values`."""
        layouts = layouts_of(cache_values)
        outputs, effects = infer_rows(
            self.op_name,
            self.rows(cache_values),
            layouts,
            self.output_ndims(cache_values),
            letters=lambda: self.letters(cache_values),
        )
        shapes = self.output_shapes(cache_values)
        if shapes is not None:
            effects = Effects(invariant=effects.invariant, once=effects.once, shapes=shapes)
        return outputs, effects


def layouts_of(cache_values: Iterable[Any]) -> list[Layout]:
    """The layouts among cache values: one per operand that is there."""
    found = []
    for value in cache_values:
        if isinstance(value, Layout):
            found.append(value)
    return found


def operand_layouts(bound: Mapping[str, Any]) -> list[Layout]:
    """Layouts of the distributed tensors among bound arguments (one level of lists), in order."""
    found = []
    for value in bound.values():
        if isinstance(value, DTensor):
            found.append(value._spec.layout)
        elif type(value) is list or type(value) is tuple:
            for item in value:
                if isinstance(item, DTensor):
                    found.append(item._spec.layout)
    return found


def to_locals(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with the local tensor for every distributed one (one level of lists), its form kept."""
    local_args = list(args)
    for position, value in enumerate(args):
        if isinstance(value, DTensor):
            local_args[position] = value._local
        elif type(value) is list or type(value) is tuple:
            local_args[position] = to_local(value)
    return tuple(local_args), {name: to_local(value) for name, value in kwargs.items()} if kwargs else {}


def to_local(value: Any) -> Any:
    """The local tensor of a distributed one; lists and tuples item by item; anything else as it is."""
    if isinstance(value, DTensor):
        return value._local
    if type(value) is list or type(value) is tuple:
        return type(value)([to_local(item) for item in value])
    return value


def _holds_operand(value: Any) -> bool:
    if type(value) is list or type(value) is tuple:
        return any(isinstance(item, DTensor) for item in value)
    return isinstance(value, DTensor)
