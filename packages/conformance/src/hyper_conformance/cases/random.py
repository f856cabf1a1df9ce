"""Random numbers: Replicate pieces agree, shards differ, recomputation repeats."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyper_conformance.case import case
from hyper_conformance.here import Here
from hyper_dtensor import init_device_mesh, rand, randn
from hyper_layout import LayoutError, Partial, Replicate, Shard


@case(1)
def seeds_agree_on_ranks_seeded_alike(here: Here) -> None:
    """``draw_seed``: equal on ranks that were seeded alike, another with each draw, below 2**62."""
    device, platform = here.harness.device_type, here.platform
    here.harness.seed(5)
    drawn = [platform.draw_seed(device) for _ in range(4)]
    assert all(0 <= seed < 2**62 for seed in drawn)
    assert all(isinstance(seed, int) for seed in drawn)
    here.equal(len(set(drawn)), 4)
    here.equal(platform.all_gather_object(drawn, here.everyone()), [drawn] * here.size)
    here.harness.seed(5)
    here.equal([platform.draw_seed(device) for _ in range(4)], drawn)
    here.harness.seed(6)
    assert platform.draw_seed(device) != drawn[0]


@case(1)
def a_seeded_block_leaves_the_default_generator_alone(here: Here) -> None:
    """``seeded``: what is drawn inside depends on the seed alone; outside nothing was drawn."""
    device, platform = here.harness.device_type, here.platform

    def block(seed: int) -> NDArray[Any]:
        with platform.seeded(seed, device):
            return here.array(platform.create("rand", (8,), device))

    here.harness.seed(5)
    undisturbed = [platform.draw_seed(device) for _ in range(2)]
    here.harness.seed(5)
    first = platform.draw_seed(device)
    one, two, other = block(1), block(1), block(2)
    here.equal([first, platform.draw_seed(device)], undisturbed)
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)
    try:
        with platform.seeded(3, device):
            raise KeyError
    except KeyError:
        pass
    here.harness.seed(5)
    here.equal(platform.draw_seed(device), undisturbed[0])


@case(2)
def replicate_pieces_agree_and_shards_differ(here: Here) -> None:
    """``rand`` and ``randn`` on a mesh."""
    mesh = here.line()
    for make in (rand, randn):
        here.harness.seed(7)
        whole = here.array(make(4, 8, device_mesh=mesh, placements=[Replicate()]).to_local())
        everyone = here.platform.all_gather_object(whole.tolist(), here.everyone())
        assert all(other == everyone[0] for other in everyone)
        split = here.array(make(4, 8, device_mesh=mesh, placements=[Shard(0)]))
        here.equal(len(np.unique(split)), split.size, "two shards have the same numbers")
        here.harness.seed(7)
        np.testing.assert_array_equal(
            here.array(make(4, 8, device_mesh=mesh, placements=[Replicate()]).to_local()), whole
        )


@case(2, ranks=(4,))
def on_two_axes(here: Here) -> None:
    """Shards of one axis differ, the copies along the other agree."""
    mesh = here.square()
    here.harness.seed(7)
    t = rand(4, 8, device_mesh=mesh, placements=[Shard(0), Replicate()])
    local = here.array(t.to_local()).tolist()
    pieces = here.platform.all_gather_object(local, here.everyone())
    assert pieces[0] == pieces[1] and pieces[2] == pieces[3] and pieces[0] != pieces[2]


@case(2)
def ranks_seeded_differently_are_told(here: Here) -> None:
    """The first random op on a mesh compares the generators, and every rank raises if they differ."""
    here.harness.seed(here.rank)
    # A mesh that no other case has used: the comparison is made once per mesh.
    number = here.platform.all_gather_object(id(here), here.everyone())[0]
    mesh = init_device_mesh(here.harness.device_type, (here.size,), mesh_dim_names=(f"seeds{number}",))
    here.refused(
        lambda: rand(4, 8, device_mesh=mesh, placements=[Replicate()]),
        RuntimeError,
        says="seed all ranks alike",
    )


@case(2)
def no_random_summands(here: Here) -> None:
    """A random tensor cannot be made Partial."""
    here.refused(
        lambda: rand(4, device_mesh=here.line(), placements=[Partial()]),
        ValueError,
        LayoutError,
        says="Partial",
    )
