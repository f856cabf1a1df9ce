"""``PrepareModuleInput``, ``PrepareModuleOutput``, ``PrepareModuleInputOutput``: layouts at a boundary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Any, TypeAlias

from hyper_dtensor import DTensor, get_platform
from hyper_layout import DeviceMesh, Placement
from hyper_tensor_parallel.boundary import enter, leave, one_axis
from hyper_tensor_parallel.style import Module, ParallelStyle

__all__ = ["PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput"]

Slot: TypeAlias = tuple[Placement, ...] | None
Layouts: TypeAlias = Placement | Sequence[Placement | None]


def _slots(layouts: Layouts | None) -> tuple[Slot, ...] | None:
    """One entry per value: placements, or ``None`` for a value that passes through."""
    if layouts is None:
        return None
    several = (layouts,) if isinstance(layouts, Placement) else tuple(layouts)
    return tuple(None if slot is None else one_axis(slot) for slot in several)


def _named_slots(layouts: Mapping[str, Placement | None] | None) -> dict[str, Slot]:
    return {name: None if slot is None else one_axis(slot) for name, slot in (layouts or {}).items()}


def _check_pair(name: str, layouts: Sized | None, desired_name: str, desired: Sized | None) -> None:
    """Refuse layouts without as many desired ones (RFC section 4.4; raised, so that -O keeps it).

    Raises:
        AssertionError: Names both.
    """
    if (layouts is None) != (desired is None):
        given, missing = (name, desired_name) if desired is None else (desired_name, name)
        raise AssertionError(f"{given} is given, so {missing} must be too")
    if layouts is not None and desired is not None and len(layouts) != len(desired):
        raise AssertionError(
            f"{name} ({len(layouts)}) and {desired_name} ({len(desired)}) should have same length"
        )


class PrepareModuleInput(ParallelStyle):
    """Change the layout of a module's inputs before its forward; no parameter is touched.

    Args:
        input_layouts: Per positional input how a plain tensor is laid out; ``None`` passes it through.
        desired_input_layouts: Per positional input the layout that the forward gets.
        input_kwarg_layouts: The same for keyword inputs, by name; others pass through.
        desired_input_kwarg_layouts: The same for keyword inputs, by name.
        use_local_output: Give the forward local tensors. (The name is PyTorch's; it is about the inputs.)
        local_grad_placements: For local inputs: what their gradient is, as for `ColwiseParallel`.

    Raises:
        AssertionError: If layouts and desired layouts do not pair up; from the forward, if an input with
            a layout is no tensor.
        ValueError: From the forward, if the number of positional inputs differs.
    """

    def __init__(
        self,
        *,
        input_layouts: Layouts | None = None,
        desired_input_layouts: Layouts | None = None,
        input_kwarg_layouts: Mapping[str, Placement | None] | None = None,
        desired_input_kwarg_layouts: Mapping[str, Placement | None] | None = None,
        use_local_output: bool = False,
        local_grad_placements: Placement | None = None,
    ) -> None:
        self.input_layouts = _slots(input_layouts)
        self.desired_input_layouts = _slots(desired_input_layouts)
        self.use_local_output = use_local_output
        self.local_grad_placements = (
            None if local_grad_placements is None else one_axis(local_grad_placements)
        )
        self.input_kwarg_layouts = _named_slots(input_kwarg_layouts)
        self.desired_input_kwarg_layouts = _named_slots(desired_input_kwarg_layouts)
        _check_pair("input_layouts", self.input_layouts, "desired_input_layouts", self.desired_input_layouts)
        if self.input_kwarg_layouts.keys() != self.desired_input_kwarg_layouts.keys():
            raise AssertionError(
                f"input_kwarg_layouts {sorted(self.input_kwarg_layouts)} and desired_input_kwarg_layouts "
                f"{sorted(self.desired_input_kwarg_layouts)} should have same length and names"
            )

    def apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Hook the forward; see the class."""

        def before(
            module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> tuple[Any, dict[str, Any]]:
            return self._positional(module, args, device_mesh), self._keywords(module, kwargs, device_mesh)

        get_platform().before_forward(module, before)
        return module

    def _positional(self, module: Module, args: tuple[Any, ...], mesh: DeviceMesh) -> tuple[Any, ...]:
        if self.input_layouts is None or self.desired_input_layouts is None:
            return args
        if len(args) != len(self.input_layouts):
            raise ValueError(
                f"PrepareModuleInput: {type(module).__name__} got {len(args)} positional inputs and there "
                f"are {len(self.input_layouts)} input_layouts; they should have same length (None passes an "
                "input through, keyword inputs go into input_kwarg_layouts)"
            )
        slots = zip(args, self.input_layouts, self.desired_input_layouts, strict=True)
        return tuple(
            self._prepare(module, f"input {i}", value, slot, desired, mesh)
            for i, (value, slot, desired) in enumerate(slots)
        )

    def _keywords(self, module: Module, kwargs: dict[str, Any], mesh: DeviceMesh) -> dict[str, Any]:
        return {
            name: self._prepare(
                module,
                name,
                value,
                self.input_kwarg_layouts[name],
                self.desired_input_kwarg_layouts[name],
                mesh,
            )
            if name in self.input_kwarg_layouts
            else value
            for name, value in kwargs.items()
        }

    def _prepare(
        self, module: Module, name: str, value: Any, slot: Slot, desired: Slot, mesh: DeviceMesh
    ) -> Any:
        if slot is None:
            return value
        if not (isinstance(value, DTensor) or get_platform().is_tensor(value)):
            raise AssertionError(
                f"PrepareModuleInput: {name} of {type(module).__name__} has a layout but is a "
                f"{type(value).__name__}, expecting a tensor or DTensor; give it the layout None"
            )
        prepared = enter(value, mesh, slot, slot if desired is None else desired)
        if not self.use_local_output:
            return prepared
        return prepared.to_local(grad_placements=self.local_grad_placements)


class PrepareModuleOutput(ParallelStyle):
    """Change the layout of a module's outputs after its forward; no parameter is touched.

    Args:
        output_layouts: Per output how a plain tensor is laid out; ``None`` passes it through.
        desired_output_layouts: Per output the target layout.
        reduce_dtype: Floating dtype in which a Partial output is reduced; the result is rounded back.
        use_local_output: Return local tensors instead of DTensors.
        local_grad_placements: As for `ColwiseParallel`.

    Raises:
        AssertionError: If the two do not pair up.
        ValueError: From the forward, if the number of outputs differs or one with a layout is no tensor.
    """

    def __init__(
        self,
        *,
        output_layouts: Layouts,
        desired_output_layouts: Layouts,
        reduce_dtype: Any = None,
        use_local_output: bool = True,
        local_grad_placements: Placement | None = None,
    ) -> None:
        self.output_layouts = _slots(output_layouts) or ()
        self.desired_output_layouts = _slots(desired_output_layouts) or ()
        self.reduce_dtype = reduce_dtype
        self.use_local_output = use_local_output
        self.local_grad_placements = (
            None if local_grad_placements is None else one_axis(local_grad_placements)
        )
        _check_pair(
            "output_layouts", self.output_layouts, "desired_output_layouts", self.desired_output_layouts
        )

    def apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Hook the forward; see the class."""

        def after(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
            several = isinstance(output, (tuple, list))
            outputs = tuple(output) if several else (output,)
            if len(outputs) != len(self.output_layouts):
                raise ValueError(
                    f"PrepareModuleOutput: {type(module).__name__} returned {len(outputs)} outputs and there "
                    f"are {len(self.output_layouts)} output_layouts; they should have same length (None "
                    "passes one through)"
                )
            slots = zip(outputs, self.output_layouts, self.desired_output_layouts, strict=True)
            finished = tuple(self._finish(module, *slot, device_mesh) for slot in slots)
            return finished if several else finished[0]

        get_platform().after_forward(module, after)
        return module

    def _finish(self, module: Module, value: Any, slot: Slot, desired: Slot, mesh: DeviceMesh) -> Any:
        if slot is None:
            return value
        if not isinstance(value, DTensor):
            if not get_platform().is_tensor(value):
                raise ValueError(
                    f"PrepareModuleOutput: an output of {type(module).__name__} has a layout but is a "
                    f"{type(value).__name__}; give it the layout None"
                )
            value = DTensor.from_local(value, mesh, slot)
        return leave(
            value,
            slot if desired is None else desired,
            self.use_local_output,
            reduce_dtype=self.reduce_dtype,
            grad_placements=self.local_grad_placements,
        )


class PrepareModuleInputOutput(ParallelStyle):
    """`PrepareModuleInput` and `PrepareModuleOutput` on one module.

    Args:
        input_layouts: As there.
        desired_input_layouts: As there.
        input_kwarg_layouts: As there.
        desired_input_kwarg_layouts: As there.
        use_local_input: Give the forward local tensors.
        output_layouts: As there.
        desired_output_layouts: As there.
        reduce_dtype: As there.
        use_local_output: Return local tensors.
    """

    def __init__(
        self,
        *,
        input_layouts: Layouts | None = None,
        desired_input_layouts: Layouts | None = None,
        input_kwarg_layouts: Mapping[str, Placement | None] | None = None,
        desired_input_kwarg_layouts: Mapping[str, Placement | None] | None = None,
        use_local_input: bool = False,
        output_layouts: Layouts,
        desired_output_layouts: Layouts,
        reduce_dtype: Any = None,
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            reduce_dtype=reduce_dtype,
            use_local_output=use_local_output,
        )

    def apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Hook the forward on both sides."""
        self.prepare_module_input.apply(module, device_mesh)
        return self.prepare_module_output.apply(module, device_mesh)
