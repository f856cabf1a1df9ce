"""The dispatcher: the one way from an intercepted call to a distributed result.

A call goes through three stages of its strategy (see `distributed_op.py`) and then runs locally:
`preprocess` -> `infer_layout` -> `get_expand_impl` -> local run -> `wrap_output`. The second and the third are
done once per layout-cache entry. No operation is known here by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hyper_dispatch import registry
from hyper_dispatch.admission import admit_plain
from hyper_dispatch.cache import ATOMS, ENTRIES_PER_OP, CacheInfo, OpTable, freeze
from hyper_dispatch.distributed_op import DistributedOp, InferResult, to_locals
from hyper_dispatch.errors import RuleError
from hyper_dispatch.outputs import set_specs, wrap_outputs
from hyper_dispatch.random_path import run_random
from hyper_dispatch.record import Record, enter_operands, make_record, replaced
from hyper_dispatch.refusal import describe_operands, explain, two_meshes
from hyper_dispatch.unregistered import run_unregistered
from hyper_dispatch.writes import check_out, check_state, check_target, write_out
from hyper_dtensor import DTensor, Platform, get_platform, wrap
from hyper_dtensor.dtensor import enter_dispatch, exit_dispatch
from hyper_dtensor.gradients import check_tracked, derive_origin
from hyper_layout import Layout, LayoutError

# Values of these types are no tensors and hold none.
_PLAIN_VALUES = frozenset({int, float, bool, complex, str, type(None), slice, type(...)})


class OpDispatcher:
    """Runs intercepted operations on distributed tensors.

    Ranks may be threads that share one dispatcher: a cache entry is the same on every rank, provided that
    expand implementations read the rank when they run.
    """

    def __init__(self, entries_per_op: int = ENTRIES_PER_OP) -> None:
        """Make a dispatcher with an empty cache.

        Args:
            entries_per_op: Bound of the layout cache, per operation.
        """
        self._tables: dict[str, OpTable] = {}
        self._limit = entries_per_op

    def dispatch(
        self, op_name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run one operation.

        Args:
            op_name: Canonical name of the operation.
            func: The framework's function, to run on local tensors in the given form of the arguments.
            args: Positional arguments, distributed tensors among them (one level of lists).
            kwargs: Keyword arguments.

        Returns:
            The distributed result; the target itself for an in-place operation.

        Raises:
            LayoutError: If the operands cannot be combined locally; on every rank alike, before anything is
                communicated.
            NotImplementedError: If nobody registered the operation and it cannot be run otherwise.
        """
        platform = get_platform()
        table = self._tables.get(op_name) or self._open(op_name)
        op = table.op if table is not None else None
        if table is not None and op is None:
            return _run_local(func, args, kwargs)

        # The operands in order, and whether plain tensors are among the arguments.
        operands: list[DTensor] = []
        plain = False
        for value in args:
            if isinstance(value, DTensor):
                operands.append(value)
            elif value.__class__ not in _PLAIN_VALUES and _scan(platform, value, operands):
                plain = True
        out = None
        if kwargs:
            if op is not None and "out" in kwargs:
                out = kwargs["out"]
                kwargs = {name: value for name, value in kwargs.items() if name != "out"}
            plain = _scan_keywords(platform, op, kwargs, operands) or plain
        if not operands:
            raise LayoutError(f"{op_name}: found no DTensor among the arguments or in lists among them")
        for operand in operands:
            if operand._untracked and platform.grad_enabled():
                check_tracked(operand)
        if table is None or op is None:
            return run_unregistered(platform, op_name, func, operands, args, kwargs)
        if plain:
            args, kwargs = admit_plain(platform, op, op_name, operands[0].device_mesh, args, kwargs)
            return self.dispatch(op_name, func, args, kwargs if out is None else {**kwargs, "out": out})

        # Stage 1: normalise the arguments.
        enter_dispatch()
        try:
            local_args, local_kwargs, cache_values = op.preprocess(args, kwargs)
        finally:
            exit_dispatch()

        # Stages 2 and 3, once per entry: layouts and local implementation. (`cache.key_content`, in line.)
        types = tuple(map(type, cache_values))
        if ATOMS.issuperset(types):
            content = (*[operand._spec for operand in operands], *cache_values, *types)
        else:
            frozen = [freeze(op_name, value) for value in cache_values]
            content = (*[operand._spec for operand in operands], *frozen, *types)
        record = table.entries.get(content)
        if record is None:
            preprocessed = (local_args, local_kwargs, cache_values)
            record = _infer(platform, op, func, operands, (args, kwargs), preprocessed)
            table.add(content, record)
        else:
            table.hits += 1

        # Run locally.
        grad = platform.grad_enabled()
        if record.state_change is not None and grad:
            check_state(op_name, record.state_change, operands)
        if out is not None:
            check_out(op_name, record, out, operands, grad)
        if record.entrances:
            local_args, local_kwargs = enter_operands(record, operands, local_args, local_kwargs)
        impl = record.impl or func
        if record.draws is None:
            output = impl(*local_args, **local_kwargs)
        else:
            output = run_random(platform, record.draws, impl, local_args, local_kwargs)

        # Wrap.
        if op.inplace:
            return operands[0]
        if record.own_wrap is not None:
            result = record.own_wrap(output, record.layouts)
            set_specs(result, record.specs)
        elif len(record.specs) == 1 and record.specs[0] is not None and not isinstance(output, (list, tuple)):
            result = wrap(output, record.specs[0], record.shapes[0])
        else:
            result = wrap_outputs(output, record.specs, record.shapes)
        if record.source is not None and grad and operands[0].requires_grad:
            _derive_origins(record, impl, operands[0], result, local_args, local_kwargs)
        elif not grad:
            _mark_untracked(operands, result)
        return result if out is None else write_out(op_name, out, result)

    def cache_info(self, op_name: str | None = None) -> dict[str, CacheInfo]:
        """Hits, misses, entries and bound per operation (of one operation, if named)."""
        names = [op_name] if op_name is not None else sorted(self._tables)
        return {name: self._tables[name].info() for name in names if name in self._tables}

    def clear_cache(self) -> None:
        """Forget all entries and statistics."""
        for table in list(self._tables.values()):
            table.clear()

    def _open(self, op_name: str) -> OpTable | None:
        """The table of an operation that is met for the first time; None if nobody registered it."""
        op = registry.find_op(op_name)
        if op is None and not registry.is_local(op_name):
            return None
        return self._tables.setdefault(op_name, OpTable(op, self._limit))


def _run_local(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operation of the white list: runs on locals, its result is not wrapped."""
    enter_dispatch()
    try:
        local_args, local_kwargs = to_locals(args, kwargs)
    finally:
        exit_dispatch()
    return func(*local_args, **local_kwargs)


def _scan(platform: Platform, value: Any, operands: list[DTensor]) -> bool:
    """Collect the operands in an argument (one level of lists); True if it holds a plain tensor."""
    if isinstance(value, DTensor):
        operands.append(value)
        return False
    if isinstance(value, (list, tuple)):
        plain = False
        for item in value:
            if isinstance(item, DTensor):
                operands.append(item)
            elif item.__class__ not in _PLAIN_VALUES and platform.is_tensor(item):
                plain = True
        return plain
    return platform.is_tensor(value)


def _scan_keywords(
    platform: Platform, op: DistributedOp | None, kwargs: dict[str, Any], operands: list[DTensor]
) -> bool:
    """Collect the operands among keyword arguments, in the order of their parameters."""
    names: Sequence[str] = list(kwargs)
    if len(names) > 1 and op is not None and op.signature is not None:
        names = op.signature.keyword_order(names)
    return any([_scan(platform, kwargs[name], operands) for name in names])


def _infer(
    platform: Platform,
    op: DistributedOp,
    func: Callable[..., Any],
    operands: Sequence[DTensor],
    call: tuple[tuple[Any, ...], dict[str, Any]],
    preprocessed: tuple[tuple[Any, ...], dict[str, Any], Sequence[Any]],
) -> Record:
    """Stages 2 and 3 of a call that the cache does not know.

    Raises:
        LayoutError: With the operands, the reason and tried cures.
    """
    local_args, local_kwargs, cache_values = preprocessed
    mesh = operands[0].device_mesh
    if any(operand.device_mesh is not mesh for operand in operands):
        raise two_meshes(op.op_name, describe_operands(platform, op, *call))

    def infer(values: Sequence[Any]) -> InferResult:
        result = op.infer_layout(values)
        if op.inplace:
            check_target(op, operands[0].layout, result[0][0])
        return result

    def accepts(layouts: list[Layout]) -> bool:
        try:
            infer(_with_layouts(cache_values, layouts))
        except ValueError:
            return False
        return True

    try:
        infer_result = infer(cache_values)
    except ValueError as error:
        # A strategy may count other layouts than the operands'; then no cure can be tried.
        known = [value for value in cache_values if isinstance(value, Layout)]
        tried = accepts if known == [operand.layout for operand in operands] else lambda layouts: False
        message = explain(error, op, describe_operands(platform, op, *call), tried)
        raise message from (None if isinstance(error, RuleError) else error)
    return make_record(op, func, operands, local_args, local_kwargs, cache_values, infer_result)


def _with_layouts(cache_values: Sequence[Any], layouts: Sequence[Layout]) -> list[Any]:
    """The cache values with other layouts, in order."""
    others = iter(layouts)
    return [next(others) if isinstance(value, Layout) else value for value in cache_values]


def _derive_origins(
    record: Record,
    impl: Callable[..., Any],
    source: DTensor,
    result: Any,
    local_args: tuple[Any, ...],
    local_kwargs: dict[str, Any],
) -> None:
    """The varying view of each output is the operation on the varying view of its source (rule 4)."""
    place = record.source
    assert place is not None

    def rerun(local: Any) -> Any:
        args, kwargs = replaced(local_args, local_kwargs, [(place, local)])
        return impl(*args, **kwargs)

    if isinstance(result, DTensor):
        derive_origin(result, source, rerun, None)
    else:
        for index, item in enumerate(result):
            if isinstance(item, DTensor):
                derive_origin(item, source, rerun, index)


def _mark_untracked(operands: Sequence[DTensor], result: Any) -> None:
    """Results made with gradients off from operands that need one are not tracked (rule 7)."""
    if any(operand.requires_grad for operand in operands):
        for item in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(item, DTensor):
                item._untracked = True


dispatcher = OpDispatcher()
"""The dispatcher of this process."""

dispatch = dispatcher.dispatch
