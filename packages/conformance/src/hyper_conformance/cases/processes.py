"""Processes and groups."""

from __future__ import annotations

from hyper_conformance.case import case
from hyper_conformance.here import Here
from hyper_dtensor import init_device_mesh, set_platform


@case(1, ranks=(1, 2, 4))
def every_rank_has_its_number(here: Here) -> None:
    """The ranks are 0 .. world_size - 1, one each, in the order of the launcher."""
    here.platform.start(here.harness.device_type)
    everyone = here.everyone()
    here.equal(here.platform.all_gather_object(here.rank, everyone), list(range(here.size)))
    here.equal(here.platform.all_gather_object(here.platform.world_size(), everyone), [here.size] * here.size)


@case(1)
def it_says_what_it_is(here: Here) -> None:
    """Name, framework, and device types, among them the one that the suite runs on."""
    platform = here.platform
    here.equal(platform.name, here.harness.name)
    assert platform.framework and isinstance(platform.framework, str)
    assert here.harness.device_type in platform.device_types


@case(1)
def starting_twice_is_starting_once(here: Here) -> None:
    """``start`` leaves a process group that is there alone."""
    group = here.everyone()
    here.platform.start(here.harness.device_type)
    here.equal(here.platform.all_gather_object(here.rank, group), list(range(here.size)))


@case(1)
def an_unknown_device_type_is_named(here: Here) -> None:
    """``start`` refuses a device type that the platform does not know, and lists those that it does."""
    message = here.refused(lambda: here.platform.start("abacus"), ValueError, says="abacus")
    assert here.harness.device_type in message
    here.refused(lambda: init_device_mesh("abacus", (here.size,)), ValueError, says="abacus")


@case(1)
def it_counts_its_devices(here: Here) -> None:
    """``device_count`` is at least 1 where the suite runs, else 0 or more; an unknown type is refused."""
    platform = here.platform
    assert platform.device_count(here.harness.device_type) >= 1
    assert all(platform.device_count(each) >= 0 for each in platform.device_types)
    here.refused(lambda: platform.device_count("abacus"), ValueError, says="abacus")


@case(1)
def an_unknown_platform_is_named(here: Here) -> None:
    """``set_platform`` refuses a name that no adapter has, and lists the installed ones."""
    here.refused(lambda: set_platform("no such platform"), ValueError, says="no such platform")


@case(1)
def a_group_keeps_the_order_of_its_ranks(here: Here) -> None:
    """``group_ranks`` are the ranks as they were given, ascending or not."""
    everyone = tuple(range(here.size))
    for ranks in (everyone, everyone[::-1], (*everyone[1:], 0)):
        here.equal(here.platform.group_ranks(here.group(ranks)), ranks)
        here.equal(here.platform.group_ranks(here.group(ranks)), ranks, "asked for again")


@case(1)
def a_group_of_one(here: Here) -> None:
    """[a] -> [a]: a rank may be alone in its group."""
    alone = here.group((here.rank,))
    x = here.tensor(here.values(2, 3))
    here.equal(here.platform.group_ranks(alone), (here.rank,))
    for result in (here.platform.all_reduce(x, "sum", alone), here.platform.all_gather(x, 1, alone)):
        here.identical(result, here.array(x))
        assert not here.platform.shares_memory(result, x), "the result must be fresh"


@case(1)
def the_native_group_is_what_users_get(here: Here) -> None:
    """``mesh.get_group`` is the framework's own object, whose ranks the platform knows too."""
    native = here.line().get_group("tp")
    assert native is not None
    here.equal(sorted(here.platform.group_ranks(native)), list(range(here.size)))


@case(1, ranks=(4,))
def rows_and_columns(here: Here) -> None:
    """The groups of a 2 x 2 mesh overlap and do not disturb each other."""
    mesh = here.square()
    row, column = here.platform.group(mesh.ranks_along("tp")), here.platform.group(mesh.ranks_along("dp"))
    for _ in range(2):
        here.equal(here.platform.all_gather_object(here.rank, row), list(mesh.ranks_along("tp")))
        here.equal(here.platform.all_gather_object(here.rank, column), list(mesh.ranks_along("dp")))


@case(1, ranks=(4,))
def ranks_outside_of_a_group_take_no_part(here: Here) -> None:
    """A group is made and used by its members alone; the others go on."""
    if here.rank < 2:
        pair = here.group((0, 1))
        total = here.platform.all_reduce(here.tensor([1.0 + here.rank]), "sum", pair)
        here.identical(total, here.array(here.tensor([3.0])))
    here.equal(here.platform.all_gather_object(here.rank, here.everyone()), [0, 1, 2, 3])


@case(1, ranks=(4,))
def a_mesh_smaller_than_the_world(here: Here) -> None:
    """Each block of ranks has a mesh of its own, and no block waits for another."""
    mesh = init_device_mesh(here.harness.device_type, (2,), mesh_dim_names=("tp",))
    block = (0, 1) if here.rank < 2 else (2, 3)
    here.equal(mesh.rank_list, block)
    for _ in range(1 + here.rank // 2):
        here.equal(here.platform.all_gather_object(here.rank, here.platform.group(block)), list(block))
