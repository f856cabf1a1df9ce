"""How a platform is found, and meshes on it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

import hyper_dtensor.platform as registry
from hyper_dtensor import Platform, get_platform, init_device_mesh, set_platform
from hyper_dtensor.platform import exchanged_platform
from hyper_layout import current_rank
from tests.dtensor.helpers import on_ranks, square
from tests.support import simulated as sim


class Alpha(sim.SimulatedPlatform):
    name = "alpha"


class Beta(sim.SimulatedPlatform):
    name = "beta"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Adapters that are installed, by name; no platform is chosen."""
    names: list[str] = []
    module = ModuleType("adapters_of_a_test")
    module.alpha, module.beta = Alpha, Beta  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "adapters_of_a_test", module)

    def points(group: str) -> list[EntryPoint]:
        assert group == "hyper_parallel.platforms"
        return [EntryPoint(name, f"adapters_of_a_test:{name}", group) for name in names]

    monkeypatch.setattr(registry, "entry_points", points)
    monkeypatch.delenv("HYPER_PARALLEL_PLATFORM", raising=False)
    with exchanged_platform(None):
        yield names


def test_the_simulated_platform_satisfies_the_protocol() -> None:
    platform: Platform = sim.SimulatedPlatform()
    assert isinstance(platform, Platform)


def test_the_only_installed_one(installed: list[str]) -> None:
    installed.append("alpha")
    assert get_platform().name == "alpha"
    assert get_platform() is get_platform()


def test_the_one_whose_framework_is_imported(installed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    installed.extend(["alpha", "beta"])
    monkeypatch.setitem(sys.modules, "beta", ModuleType("beta"))
    assert get_platform().name == "beta"


def test_the_environment_and_set_platform_come_first(
    installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.extend(["alpha", "beta"])
    monkeypatch.setitem(sys.modules, "beta", ModuleType("beta"))
    monkeypatch.setenv("HYPER_PARALLEL_PLATFORM", "alpha")
    assert get_platform().name == "alpha"
    with exchanged_platform(None):
        assert set_platform("beta").name == "beta"
        assert get_platform().name == "beta"
    mine = sim.SimulatedPlatform()
    with exchanged_platform(None):
        assert set_platform(mine) is mine
        assert get_platform() is mine
    assert get_platform().name == "alpha"


def test_one_process_uses_one_platform(installed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    installed.extend(["alpha", "beta"])
    chosen = set_platform("alpha")
    assert set_platform("alpha") is set_platform(chosen) is get_platform() is chosen
    cure = "one process uses one platform; run what needs the other one in a process of its own"
    here = rf"since set_platform at {__file__}:\d+"
    with pytest.raises(
        RuntimeError, match=rf"uses the platform 'alpha' \({here}\) and cannot change to 'beta': {cure}"
    ):
        set_platform("beta")
    with pytest.raises(RuntimeError, match="cannot change to another instance of 'alpha'"):
        set_platform(Alpha())
    with pytest.raises(ValueError, match="unknown platform 'jax'"):
        set_platform("jax")
    monkeypatch.setenv("HYPER_PARALLEL_PLATFORM", "beta")
    assert get_platform() is chosen


@pytest.mark.parametrize(
    ("others", "imported", "environment", "since"),
    [
        ([], [], "", "its first use, as the only adapter that is installed, at"),
        (["beta"], ["alpha"], "", "its first use, when alpha was the only framework imported, at"),
        (["beta"], ["beta"], "alpha", "its first use, because of HYPER_PARALLEL_PLATFORM=alpha, at"),
    ],
)
def test_the_first_use_is_a_choice(
    installed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    others: list[str],
    imported: list[str],
    environment: str,
    since: str,
) -> None:
    installed.extend(["alpha", *others])
    for name in imported:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setenv("HYPER_PARALLEL_PLATFORM", environment)
    assert init_device_mesh("cpu", (1,), init_backend=False).get_local_rank(0) == 0
    installed.append("gamma")
    with pytest.raises(RuntimeError, match=rf"'alpha' \(since {since} {__file__}:\d+\)"):
        set_platform("gamma")


def test_when_nothing_singles_one_out(installed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        RuntimeError,
        match=r"installed none, frameworks imported none.*set_platform\(name\).*PLATFORM=name, or install the",
    ):
        get_platform()
    installed.extend(["beta", "alpha"])
    with pytest.raises(
        RuntimeError, match=r"installed alpha, beta, frameworks imported none.*PLATFORM=name$"
    ):
        get_platform()
    for name in installed:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    with pytest.raises(RuntimeError, match="installed alpha, beta, frameworks imported alpha, beta"):
        get_platform()
    assert set_platform("beta") is get_platform()


def test_an_unknown_name(installed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    installed.append("alpha")
    with pytest.raises(ValueError, match=r"unknown platform 'jax'; installed: alpha\..*set_platform\(name\)"):
        set_platform("jax")
    monkeypatch.setenv("HYPER_PARALLEL_PLATFORM", "jax")
    with pytest.raises(ValueError, match="unknown platform 'jax'"):
        get_platform()


@on_ranks(4)
def test_the_platform_tells_the_rank_and_the_groups() -> None:
    assert current_rank() == sim.rank()
    mesh = square()
    assert mesh.get_group("tp") == mesh.ranks_along("tp")
    assert mesh["tp"].get_group() == mesh.ranks_along("tp")


# -- meshes -------------------------------------------------------------------------------------------------
@on_ranks(4)
def test_init_device_mesh() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    assert init_device_mesh("cpu", [2, 2], mesh_dim_names=["dp", "tp"]) is mesh
    assert (mesh.rank_list, mesh.mesh_dim_names) == ((0, 1, 2, 3), ("dp", "tp"))
    assert init_device_mesh("cpu", (4,)).mesh_dim_names == ("dim_0",)
    listed = init_device_mesh("cpu", (2, 2), rank_list=[3, 1, 2, 0])
    assert listed.get_coordinate(3) == (0, 0)


@on_ranks(4)
def test_a_mesh_smaller_than_the_world_is_the_block_of_the_rank() -> None:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    assert mesh.rank_list == ((0, 1) if sim.rank() < 2 else (2, 3))


def test_the_blocks_do_not_wait_for_each_other() -> None:
    from hyper_dtensor import CommDebugMode
    from tests.dtensor.helpers import S0, R, equal, make, values

    def body() -> None:
        if sim.rank() >= 2:
            return
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        with CommDebugMode() as comm:
            equal(make(values(4), mesh, [S0]).redistribute([R]), values(4))
        assert comm.total == 1

    sim.run_ranks(4, body)


@on_ranks(2)
def test_meshes_that_do_not_fit() -> None:
    with pytest.raises(
        ValueError, match=r"a mesh of shape \(4,\) needs 4 ranks, but the world has 2: start 4 processes"
    ):
        init_device_mesh("cpu", (4,))
    with pytest.raises(
        ValueError, match=r"rank_list names the ranks \[7\], but the world has the ranks 0 to 1"
    ):
        init_device_mesh("cpu", (2,), rank_list=(0, 7))
    with pytest.raises(ValueError, match=r"needs 1 axis names, but got \('a', 'b'\)"):
        init_device_mesh("cpu", (2,), mesh_dim_names=("a", "b"))
    with pytest.raises(ValueError, match="unknown device type 'abacus'"):
        init_device_mesh("abacus", (2,))


def test_the_backend_is_started_once_it_is_asked_for() -> None:
    def started(init_backend: bool) -> set[str]:
        init_device_mesh("cpu", (2,), init_backend=init_backend)
        world, _ = sim.world.current_world()
        assert world is not None
        return world.started

    assert sim.run_ranks(2, started, True) == [{"cpu"}] * 2
    assert sim.run_ranks(2, started, False) == [set()] * 2
