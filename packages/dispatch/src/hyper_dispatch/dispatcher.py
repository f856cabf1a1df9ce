"""The dispatcher: the one way from an intercepted call to a distributed result.

A call goes through three stages of its strategy (see `distributed_op.py`) and then runs locally:
`preprocess` -> `infer_layout` -> `get_expand_impl` -> local run -> `wrap_output`. The second and the third
are done once per layout-cache entry. No operation is known here by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hyper_dispatch import registry
from hyper_dispatch.admission import admit_plain, writes_number
from hyper_dispatch.cache import ATOMS, ENTRIES_PER_OP, CacheInfo, OpTable, key_content
from hyper_dispatch.call_form import (
    NO_FORM,
    OPERANDS,
    flat,
    holds_values_only,
    items,
    plain_sequences,
    visit,
)
from hyper_dispatch.call_plan import CallPlan, Place, find_places, replaced
from hyper_dispatch.distributed_op import DistributedOp, InferResult
from hyper_dispatch.errors import RuleError
from hyper_dispatch.outputs import set_specs, wrap_outputs
from hyper_dispatch.random_path import run_random
from hyper_dispatch.record import Record
from hyper_dispatch.refusal import describe_operands, explain, two_meshes
from hyper_dispatch.unregistered import run_unregistered
from hyper_dispatch.white_list import run_local
from hyper_dispatch.writes import check_copies, check_out, check_state, check_target, write_out
from hyper_dtensor import DTensor, Platform, Spec, get_platform
from hyper_dtensor.copied import mark_copied
from hyper_dtensor.dtensor import dispatching
from hyper_dtensor.gradients import check_tracked, derive_origin, enter, untrack, varying_view
from hyper_dtensor.meta import meta_of
from hyper_layout import Layout, LayoutError

_UNREGISTERED = OpTable(None, run_unregistered)


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
        self,
        op_name: str,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any = None,
    ) -> Any:
        """Run one operation.

        Args:
            op_name: Canonical name of the operation.
            func: The framework's function, to run on local tensors in the given form of the arguments.
            args: Positional arguments, distributed tensors among them (one level of lists).
            kwargs: Keyword arguments.
            out: The tensor to write the result into (`out=` among the keyword arguments ends up here).

        Returns:
            The distributed result; the target itself for an in-place operation.

        Raises:
            LayoutError: If the operands cannot be combined locally; on every rank alike, before anything is
                communicated.
            NotImplementedError: If nobody registered the operation and it cannot be run otherwise.
        """
        platform = get_platform()
        table = self._tables.get(op_name) or self._open(op_name)
        op = table.op
        if op is None:
            return table.run(platform, op_name, func, args, kwargs)

        # The operands in order, and the form of the call: all of it but the values of the operands. What
        # `visit` does to a tensor or an atom stands here once more: most arguments of most calls are one.
        grad = platform.grad_enabled()
        needs = grad or not op.inplace  # what is written without gradients starts no history
        form: list[Any] = [func, grad]
        numbers: list[Any] = []
        operands: list[DTensor] = []
        locals_: list[Any] = []
        for value in args:
            kind = type(value)
            if kind in OPERANDS:
                local = value._local
                form.append(value._meta or meta_of(value))
                form.append(local.requires_grad)
                operands.append(value)
                locals_.append(local)
            elif kind in ATOMS:
                form.append(kind)
                form.append(value)
            else:
                visit(platform, value, form, numbers, operands, locals_, needs)
        if kwargs:
            if "out" in kwargs:
                rest = {name: value for name, value in kwargs.items() if name != "out"}
                return self.dispatch(op_name, func, args, rest, kwargs["out"])
            for name, value in kwargs.items():
                kind = type(value)
                if kind in ATOMS:
                    form += (name, kind, value)
                else:
                    form.append(name)
                    visit(platform, value, form, numbers, operands, locals_, needs)

        # The plan of this form of call, or the three stages.
        key = tuple(form)
        plan = table.plans.get(key)
        if plan is None and numbers:
            # Where the values of the numbers matter, they are a part of the key; 0.0 equals -0.0.
            if 0.0 in numbers:
                numbers = [number or repr(number) for number in numbers]
            plan = table.plans.get((*key, *numbers))
        if plan is not None:
            table.hits += 1
        elif NO_FORM in key and (unnamed := plain_sequences(args, kwargs)) is not None:
            return self.dispatch(op_name, func, *unnamed, out)
        elif kwargs and (in_order := _in_order(op, kwargs)) is not None:
            return self.dispatch(op_name, func, args, in_order, out)
        elif NO_FORM in key and not op.takes_plain and any(map(platform.is_tensor, flat(args, kwargs))):
            if writes_number(platform, op, operands, args):
                return run_local(platform, op_name, func, args, kwargs)
            mesh = operands[0].device_mesh if operands else None
            args, kwargs = admit_plain(platform, op, op_name, mesh, args, kwargs)
            return self.dispatch(op_name, func, args, kwargs, out)
        else:
            read = dispatching.values_read
            plan = self._plan(platform, table, op, func, operands, args, kwargs)
            if numbers and not plan.is_free:
                key = (*key, *numbers)
            if (
                op.preprocess_is_pure
                and dispatching.values_read == read
                and NO_FORM not in key
                and (not numbers or plan.is_free or all([number == number for number in numbers]))  # no nan
                and holds_values_only(platform, (*plan.args, *plan.kwargs.values()))
            ):
                if len(locals_) > 1 and len(set(map(id, locals_))) < len(locals_):
                    plan = self._plan(platform, table, op, func, *_apart(platform, operands, args, kwargs))
                    table.hits -= 1  # of the same call
                table.keep(key, plan)

        # Run locally, and wrap.
        for number, view_axes, once_axes in plan.entrances:
            operand = operands[number]
            locals_[number] = (
                enter(operand, view_axes, once_axes) if once_axes else varying_view(operand, view_axes)
            )
        if not plan.is_simple or out is not None:
            return _run(platform, op, plan, operands, locals_, args, kwargs, out)
        if plan.is_direct:
            output = plan.impl(*locals_)
        elif plan.is_followed and not plan.is_free:
            output = plan.impl(*locals_, *plan.tail, **plan.kwargs)
        else:
            local_args, local_kwargs = plan.fill(locals_, args, kwargs)
            output = plan.impl(*local_args, **local_kwargs)
        if plan.result is not None:
            shape, dtype, meta = plan.result
            if output.dtype == dtype and (shape is None or output.shape == shape):
                result = platform.wrap(output, meta.spec, meta.shape)
                result._meta = meta
                if meta.untracked:
                    result._untracked = True
                return result
        return _wrap(platform, plan, output)

    def _plan(
        self,
        platform: Platform,
        table: OpTable,
        op: DistributedOp,
        func: Callable[..., Any],
        operands: Sequence[DTensor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> CallPlan:
        """The three stages of a call; the second and the third only if the layout cache does not know it."""
        if not operands:
            raise LayoutError(f"{op.op_name}: found no DTensor among the arguments or in lists among them")
        grad = platform.grad_enabled()
        found = []
        mesh = operands[0]._spec.layout.mesh
        for operand in operands:
            if grad and operand._untracked:
                check_tracked(operand)
            spec = operand._spec
            if spec.layout.mesh is not mesh:
                raise two_meshes(op.op_name, describe_operands(platform, op, args, kwargs))
            found.append(spec)
        dispatching.depth += 1
        try:
            local_args, local_kwargs, cache_values = op.preprocess(args, kwargs)
        finally:
            dispatching.depth -= 1
        specs = tuple(found)
        content = key_content(op.op_name, specs, cache_values)
        record = table.entries.get(content)
        if record is None:
            try:
                infer_result = _infer(op, specs, cache_values)
            except ValueError as error:
                message = _explained(platform, op, specs, args, kwargs, cache_values, error)
                raise message from (None if isinstance(error, RuleError) else error)
            record = Record(op, specs, cache_values, infer_result)
            table.add(content, record)
        else:
            table.hits += 1
        impl = record.impl(func, cache_values)
        is_free = op.numbers_are_free(specs)
        return CallPlan(record, impl, operands, local_args, local_kwargs, grad, is_free)

    def cache_info(self, op_name: str | None = None) -> dict[str, CacheInfo]:
        """Hits, misses, entries and bound per operation (of one operation, if named)."""
        names = [op_name] if op_name is not None else sorted(self._tables)
        return {name: self._tables[name].info() for name in names if name in self._tables}

    def clear_cache(self) -> None:
        """Forget all entries and statistics."""
        for table in list(self._tables.values()):
            table.clear()

    def _open(self, op_name: str) -> OpTable:
        """The table of an operation that is met for the first time."""
        op = registry.find_op(op_name)
        if op is None and not registry.is_local(op_name):
            return _UNREGISTERED  # and not kept: it may be registered later
        return self._tables.setdefault(op_name, OpTable(op, run_local, self._limit))


def _run(
    platform: Platform,
    op: DistributedOp,
    plan: CallPlan,
    operands: Sequence[DTensor],
    locals_: Sequence[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    out: Any,
) -> Any:
    """Run a call that writes, draws random numbers, derives views, or passes operands in other places."""
    record = plan.record
    if plan.checks:
        for operand in operands:
            if operand._untracked:
                check_tracked(operand)
    if record.copied:
        check_copies(op, operands)
    if record.state_change is not None and plan.grad:
        check_state(op.op_name, record.state_change, operands)
    if out is not None:
        check_out(op.op_name, record, out, operands)
    local_args, local_kwargs = plan.fill(locals_, args, kwargs)
    if record.draws is None:
        output = plan.impl(*local_args, **local_kwargs)
    else:
        output = run_random(platform, record.draws, plan.impl, local_args, local_kwargs)
    if op.inplace:
        # An operator's method says so of an operand it does not take: nothing was written.
        target = args[0] if args else _holder(operands[0], kwargs)
        return target if output is not NotImplemented else output
    result = _wrap(platform, plan, output)
    if record.copied or plan.loses_alias:
        for item in items(result):
            if isinstance(item, DTensor) and (
                item._spec.copied or platform.shares_memory(item._local, operands[0]._local)
            ):
                mark_copied(item, operands[0])
    if plan.source is not None:
        _derive_origins(plan.impl, plan.source, operands[0], result, local_args, local_kwargs)
    return result if out is None else write_out(op.op_name, out, result)


def _holder(operand: DTensor, kwargs: dict[str, Any]) -> Any:
    """The keyword argument that is an operand, or a list that holds it."""
    return next(value for value in kwargs.values() if any(item is operand for item in items(value)))


def _wrap(platform: Platform, plan: CallPlan, output: Any) -> Any:
    """Wrap the local result; the plan remembers what one tensor has in common with the next."""
    if output is NotImplemented:
        return output
    record = plan.record
    if record.wrap_output is None:
        result = wrap_outputs(output, record.specs, plan.shapes)
        if plan.shapes is record.shapes and record.shapes_follow and type(result) in (list, tuple):
            plan.shapes = [getattr(item, "_shape", None) for item in result]
    else:
        result = record.wrap_output(output, record.layouts)
        set_specs(result, record.specs)
    if plan.untracked:
        # Made with gradients off from operands that need one (rule 7).
        for item in items(result):
            if isinstance(item, DTensor):
                untrack(item)
    if plan.is_simple and record.wrap_output is None and isinstance(result, DTensor) and result is not output:
        shape = None if plan.record.shapes_follow else output.shape
        plan.result = (shape, output.dtype, meta_of(result))
    return result


def _apart(
    platform: Platform, operands: Sequence[DTensor], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[DTensor], tuple[Any, ...], dict[str, Any]]:
    """A call of the same form, each of whose operands has a local tensor of its own.

    From `f(x, x)` alone nobody can tell which operand a strategy passes where, as `f(x, y)` needs it.
    """
    others = []
    for operand in operands:
        local = platform.detach(operand._local)
        if operand.requires_grad:
            local.requires_grad = True
        other = platform.wrap(local, operand._spec, operand._shape)
        other._untracked = operand._untracked
        others.append(other)
    places = find_places(operands, args, kwargs)
    changes = [(place, other) for place, other in zip(places, others, strict=True) if place is not None]
    new_args, new_kwargs = replaced(args, kwargs, changes)
    return others, tuple(new_args), new_kwargs


def _in_order(op: DistributedOp, kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Keyword arguments in the order of their parameters, in which operands count; None if they are."""
    if op.signature is None:
        return None
    order = op.signature.keyword_order(list(kwargs))
    return None if order == list(kwargs) else {name: kwargs[name] for name in order}


def _infer(op: DistributedOp, specs: Sequence[Spec], cache_values: Sequence[Any]) -> InferResult:
    """Stage 2, and whether the target of a call in place can take the result."""
    result = op.infer_layout(cache_values)
    if op.inplace:
        check_target(op, specs[0].layout, result[0][0])
    return result


def _explained(
    platform: Platform,
    op: DistributedOp,
    specs: Sequence[Spec],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    cache_values: Sequence[Any],
    error: ValueError,
) -> LayoutError:
    """A refusal of stage 2 with the operands, the reason and tried cures."""

    def accepts(layouts: list[Layout]) -> bool:
        try:
            _infer(op, specs, _with_layouts(cache_values, layouts))
        except ValueError:
            return False
        return True

    # A strategy may count other layouts than the operands'; then no cure can be tried.
    known = [value for value in cache_values if isinstance(value, Layout)]
    tried = accepts if known == [spec.layout for spec in specs] else lambda layouts: False
    return explain(error, op, describe_operands(platform, op, args, kwargs), tried)


def _with_layouts(cache_values: Sequence[Any], layouts: Sequence[Layout]) -> list[Any]:
    """The cache values with other layouts, in order."""
    others = iter(layouts)
    return [next(others) if isinstance(value, Layout) else value for value in cache_values]


def _derive_origins(
    impl: Callable[..., Any],
    place: Place,
    source: DTensor,
    result: Any,
    local_args: Sequence[Any],
    local_kwargs: dict[str, Any],
) -> None:
    """The varying view of each output is the operation on the varying view of its source (rule 4)."""

    def rerun(local: Any) -> Any:
        args, kwargs = replaced(local_args, local_kwargs, [(place, local)])
        return impl(*args, **kwargs)

    if isinstance(result, DTensor):
        derive_origin(result, source, rerun, None)
    else:
        for index, item in enumerate(result):
            if isinstance(item, DTensor):
                derive_origin(item, source, rerun, index)


dispatcher = OpDispatcher()
"""The dispatcher of this process."""

dispatch = dispatcher.dispatch
