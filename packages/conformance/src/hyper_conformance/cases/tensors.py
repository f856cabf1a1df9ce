"""Questions about local tensors, and the distributed tensor around them."""

from __future__ import annotations

import numpy as np

from hyper_conformance.case import case
from hyper_conformance.here import NUMPY, Here
from hyper_dtensor import DTensor, Spec, distribute_tensor, is_dtensor
from hyper_layout import Layout, Partial, Replicate, Shard

ITEMSIZES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "b": 1}
ITEMSIZES |= {"c64": 8, "c128": 16}


@case(1, ranks=(2,), dtypes=tuple(NUMPY))
def dtypes(here: Here, dtype: str) -> None:
    """Name, bytes per element, whether it is floating, and the values there and back."""
    array = np.asarray([[0, 1, 1], [1, 0, 1]], NUMPY[dtype])
    x = here.harness.tensor(array, dtype)
    here.identical(x, array)
    here.equal(tuple(x.shape), (2, 3))
    here.equal(here.platform.dtype_name(x), dtype)
    here.equal(here.platform.itemsize(x), ITEMSIZES[dtype])
    assert here.platform.is_floating(x) is (dtype in ("f64", "f32", "f16", "bf16"))


@case(1, ranks=(2,))
def what_is_a_tensor(here: Here) -> None:
    """``is_tensor``: a tensor of the framework that is no DTensor; nothing else."""
    x = here.tensor(here.values(2, 2))
    assert here.platform.is_tensor(x) is True
    for value in (here.values(2, 2), 1.0, [x], None):
        assert here.platform.is_tensor(value) is False
    assert here.platform.is_tensor(DTensor.from_local(x, here.line())) is False


@case(1, ranks=(2,))
def a_tensor_with_data_is_not_meta(here: Here) -> None:
    """``is_meta``: whether there is a shape but no data."""
    assert here.platform.is_meta(here.tensor(here.values(2, 2))) is False


@case(1)
def a_meta_tensor_is_laid_out_without_communication(here: Here) -> None:
    """A tensor without data has a layout and a global shape; where the framework has such tensors."""
    whole = here.harness.meta((4, 8))
    if whole is None:
        return
    assert here.platform.is_meta(whole) is True
    t = distribute_tensor(whole, here.line(), [Shard(1)])
    here.equal(tuple(t.shape), (4, 8))
    assert here.platform.is_meta(t.to_local()) is True
    here.equal(tuple(t.to_local().shape), (4, 8 // here.size))


@case(1, ranks=(2,))
def shared_memory(here: Here) -> None:
    """A view shares memory with what it was taken from; a copy does not."""
    ops, x = here.platform.ops, here.tensor(here.values(4, 4))
    assert here.platform.shares_memory(x, x) is True
    assert here.platform.shares_memory(x, here.platform.detach(x)) is True
    assert here.platform.shares_memory(x, ops.clone(x)) is False
    assert here.platform.shares_memory(x, here.tensor(here.values(4, 4))) is False


@case(1, ranks=(2,))
def scaling_in_place(here: Here) -> None:
    """``scale_`` multiplies the tensor itself."""
    value = here.array(here.tensor(here.values(3, 4)))
    x = here.tensor(value)
    here.platform.scale_(x, here.tensor(np.asarray(0.25)))
    here.identical(x, value * np.asarray(0.25, value.dtype))


@case(1, ranks=(2,))
def fingerprints(here: Here) -> None:
    """``ops.fingerprint``: equal for equal tensors, another for other values, shapes and dtypes."""
    digest, value = here.platform.ops.fingerprint, here.values(2, 3)
    first = digest(here.tensor(value))
    here.equal(digest(here.tensor(value.copy())), first)
    other = value.copy()
    other[1, 2] = np.nextafter(other[1, 2], 9)
    tensors = [here.tensor(value.reshape(3, 2)), here.tensor(value + 1)]
    tensors += [here.tensor(other)] if here.precise == "f64" else []
    tensors += [here.harness.tensor(value.astype(np.float16), "f16")] if "f16" in here.harness.dtypes else []
    for x in tensors:
        assert digest(x) != first
    here.platform.all_gather_object(first, here.everyone())  # it can be sent


@case(1)
def wrapping(here: Here) -> None:
    """``wrap``: a DTensor of the platform's class, of the global shape, over this local tensor."""
    mesh = here.line()
    x = here.tensor(here.values(4, 2))
    spec = Spec.of(Layout(mesh, (Shard(0),), 2))
    t = here.platform.wrap(x, spec, (4 * here.size, 2))
    assert isinstance(t, DTensor)
    assert is_dtensor(t)
    here.equal(tuple(t.shape), (4 * here.size, 2))
    here.equal((t.ndim, t.numel(), t.placements, t.device_mesh), (2, 8 * here.size, (Shard(0),), mesh))
    assert t._spec is spec
    here.identical(t.to_local(), here.array(x))


@case(1)
def distributing(here: Here) -> None:
    """``distribute_tensor``: the data of rank 0 counts, and every rank gets its part of it."""
    mesh, value = here.line(), here.values(4, 8)
    mine = here.tensor(value if here.rank == 0 else value * 0)
    for placement in (Shard(0), Shard(1), Replicate(), Partial()):
        t = distribute_tensor(mine, mesh, [placement])
        here.close(t, value, str(placement))
        if placement.is_shard():
            here.close(t.to_local(), value[t.layout.local_slice(value.shape)], str(placement))
    everywhere = distribute_tensor(here.tensor(value), mesh, [Shard(0)], src_data_rank=None)
    here.close(everywhere, value)


@case(1)
def what_does_not_divide_is_refused(here: Here) -> None:
    """Uneven shards are refused by every rank, before anything is sent."""
    x = here.tensor(here.values(here.size + 1, 2))
    here.refused(lambda: distribute_tensor(x, here.line(), [Shard(0)]), ValueError, says=str(here.size + 1))


@case(1)
def values_that_should_be_equal_are_compared(here: Here) -> None:
    """``from_local(run_check=True)``: every rank learns which rank holds other values."""
    mesh = here.line()
    DTensor.from_local(here.tensor([1.0, 2.0]), mesh, [Replicate()], run_check=True)
    different = here.tensor([1.0, 2.0 if here.rank else 3.0])
    here.refused(
        lambda: DTensor.from_local(different, mesh, [Replicate()], run_check=True),
        RuntimeError,
        says=str(list(range(1, here.size))),
    )


@case(1)
def a_part_is_never_shown_as_the_whole(here: Here) -> None:
    """``item``, ``float``, ``bool`` of a part are refused; ``repr`` shows a layout and no value."""
    mesh = here.line()
    part = DTensor.from_local(here.tensor([1234.5]), mesh, [Partial()])
    for call in (part.item, part.tolist, lambda: float(part), lambda: int(part), lambda: bool(part)):
        here.refused(call, RuntimeError, says="full_tensor()")
    assert "1234" not in repr(part) and "tp:P(sum)" in repr(part)
    assert "1234" not in str(part)
    same = DTensor.from_local(here.tensor([2.5]), mesh, [Replicate()])
    here.equal((same.item(), float(same), bool(same), same.tolist()), (2.5, 2.5, True, [2.5]))
