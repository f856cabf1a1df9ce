"""What the files of samples share."""

from __future__ import annotations

from tests.support.sample import Input, Sample

__all__ = ["few", "name_of"]


def few(*shape: int, values: str = "normal", dtype: str | None = None, grad: bool = True) -> Input:
    """A floating input whose Partials are those that linear operations know."""
    dims = tuple(f"S({dim})" for dim, size in enumerate(shape) if size > 1)
    return Input(shape, values, dtype, tokens=("R", "V", *dims, "P(sum)", "P(avg)"), grad=grad)


def name_of(sample: Sample) -> str:
    """The id of a sample: the operation, the shapes and the form of the call."""
    call = sample.call if isinstance(sample.call, str) else sample.call.__name__
    return f"{sample}-{call}"
