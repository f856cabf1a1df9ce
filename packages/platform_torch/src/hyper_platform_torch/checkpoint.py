"""`torch.distributed.checkpoint`: each rank writes and reads its own block of a DTensor.

PyTorch asks a tensor subclass for three methods (`torch.distributed._checkpointable`): what to write, what
to read, and the memory of a block. A checkpoint holds blocks by where they begin in the whole tensor; so it
may be loaded on another mesh, in other layouts, or on one device.

The modules of that library are imported when it asks: then they are there, and who never saves does not pay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hyper_dtensor.copied import check_current, refuse_write
from hyper_layout import LayoutError

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
    from torch.distributed.checkpoint.planner import WriteItem

    from hyper_platform_torch.tensor import TorchDTensor

__all__ = ["block_of", "blocks_to_read", "blocks_to_write"]


def blocks_to_write(x: TorchDTensor, name: str, _value: object) -> list[WriteItem]:
    """What this rank writes: its block, if it is on the mesh.

    Ranks that hold the same block all say so, and PyTorch chooses who writes.

    Raises:
        LayoutError: If ``x`` is Partial on an axis, or is a copy whose source was written since.
    """
    if x.device_mesh.get_coordinate() is None:
        return []
    check_current(x)
    from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
    from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

    block = _block(x, f"save {name!r}")
    data = TensorWriteData(
        chunk=block, properties=TensorProperties.create_from_tensor(x._local), size=torch.Size(x.shape)
    )
    return [WriteItem(index=MetadataIndex(name, block.offsets), type=WriteItemType.SHARD, tensor_data=data)]


def blocks_to_read(x: TorchDTensor) -> list[ChunkStorageMetadata]:
    """What this rank reads: its block, if it is on the mesh.

    Raises:
        RuntimeError: If ``x`` is Partial on an axis, or is a copy that stands for a view. Not as LayoutError:
            PyTorch takes every ValueError here for a value of the wrong type, and hides what it says.
    """
    if x.device_mesh.get_coordinate() is None:
        return []
    try:
        if x._spec.copied:
            refuse_write(x, "torch.distributed.checkpoint.load")
        return [_block(x, "load into it")]
    except LayoutError as error:
        raise RuntimeError(str(error)) from error


def block_of(x: TorchDTensor, index: MetadataIndex) -> torch.Tensor:
    """The memory of this rank's block, of the local shape; it is read, or written in place.

    Raises:
        ValueError: If ``index`` names a block of another rank.
    """
    block = _block(x, "look up a block of it")
    if index.offset is not None and index.offset != block.offsets:
        raise ValueError(
            f"this rank holds the block of {x!r} at {tuple(block.offsets)}, not that of {index.fqn!r} at "
            f"{tuple(index.offset)}"
        )
    return x._local.detach()  # type: ignore[no-any-return]


def _block(x: TorchDTensor, what: str) -> ChunkStorageMetadata:
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

    layout = x.layout
    if layout.partial_axes:
        raise LayoutError(
            f"cannot {what}: {x!r} is Partial, and a checkpoint holds values of the whole tensor, of which "
            "no rank has any; redistribute its Partial axes to Replicate or Shard first"
        )
    place = layout.local_slice(x.shape)
    return ChunkStorageMetadata(
        offsets=torch.Size([each.start for each in place]),
        sizes=torch.Size([each.stop - each.start for each in place]),
    )
