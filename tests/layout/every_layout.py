"""All layouts of a tensor rank on a mesh, for tests that go through all of them."""

from itertools import permutations, product

from hyper_layout import DeviceMesh, Layout


def every_layout(mesh: DeviceMesh, ndim: int, reduce_ops: tuple[str, ...] = ("sum",)) -> list[Layout]:
    """Each way to give every mesh axis a dim (in every order where some share one), a Partial, or nothing."""
    found = []
    for uses in product([None, *reduce_ops, *range(ndim)], repeat=mesh.ndim):
        partial = [use if isinstance(use, str) else None for use in uses]
        splitters = [[axis for axis, use in enumerate(uses) if use == dim] for dim in range(ndim)]
        for dim_axes in product(*map(permutations, splitters)):
            found.append(Layout.from_dim_axes(mesh, dim_axes, partial))
    return found
