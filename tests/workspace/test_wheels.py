"""The distributions: what is in them, and that each core wheel works alone where no framework is installed."""

from __future__ import annotations

import email
import email.message
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import check_output
from tests.support.package_readmes import programs_of

# One build for all tests of a group; it and the installations take longer than a test usually may.
pytestmark = [pytest.mark.wheels, pytest.mark.xdist_group("wheels"), pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
MEMBERS = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
ADAPTERS = {"platform_torch": "torch", "platform_ms": "mindspore"}
CORE = [member for member in MEMBERS if member.name not in ADAPTERS]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
FRAMEWORKS = {"torch", "torch-npu", "mindspore"}

IMPORT_ALONE = """
import importlib, importlib.util, sys
module = importlib.import_module(sys.argv[1])
assert "site-packages" in module.__file__, module.__file__
found = [name for name in ("torch", "torch_npu", "mindspore") if importlib.util.find_spec(name)]
assert not found, found
"""
USE_ADAPTER = """
from hyper_dtensor import get_platform
print(get_platform().name)
"""


def uv(*arguments: str) -> str:
    """Run uv in this tree, but not in the environment that the tests run in."""
    own = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(
        ["uv", *arguments],
        cwd=ROOT,
        env=own,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def project(member: Path) -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads((member / "pyproject.toml").read_text())["project"]
    return settings


def import_name(member: Path) -> str:
    name: str = project(member)["name"]
    return name.replace("-", "_")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """All distributions. uv makes each sdist from the tree and the wheel from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--all-packages", "--out-dir", str(folder))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def constraints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The versions of uv.lock, so that what is installed is what everything else is tested with."""
    file = tmp_path_factory.mktemp("constraints") / "constraints.txt"
    uv("export", "--quiet", "--locked", "--all-packages", "--all-extras", "--no-emit-workspace",
       "--no-hashes", "--output-file", str(file))  # fmt: skip
    return file


def wheel_of(dist: Path, member: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(dist / f"{import_name(member)}-{VERSION}-py3-none-any.whl")


def metadata_of(dist: Path, member: Path) -> email.message.Message:
    content = wheel_of(dist, member).read(f"{import_name(member)}-{VERSION}.dist-info/METADATA")
    return email.message_from_bytes(content)


def long_description(dist: Path, member: Path) -> str:
    payload = metadata_of(dist, member).get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload.decode()


def install(dist: Path, constraints: Path, member: Path, environment: Path) -> Path:
    """The Python of a new environment that holds one wheel and what that declares."""
    uv("venv", "--quiet", "--python", sys.executable, str(environment))
    python = environment / "bin" / "python"
    uv("pip", "install", "--quiet", "--no-compile-bytecode", "--python", str(python), "--find-links", str(dist),
       "--constraint", str(constraints), f"{project(member)['name']}=={VERSION}")  # fmt: skip
    return python


def installed(python: Path) -> set[str]:
    return {
        each["name"] for each in json.loads(uv("pip", "list", "--python", str(python), "--format", "json"))
    }


def run(python: Path, folder: Path, code: str, *arguments: str) -> str:
    """Run code in an isolated interpreter: nothing of this tree or of the caller's environment is seen."""
    folder.mkdir(exist_ok=True)
    command = [str(python), "-I", "-W", "error", "-c", code, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_is_one_wheel_and_one_sdist_of_each(dist: Path) -> None:
    expected = [
        f"{import_name(member)}-{VERSION}{kind}"
        for member in MEMBERS
        for kind in ("-py3-none-any.whl", ".tar.gz")
    ]
    assert sorted(path.name for path in dist.iterdir() if path.name != ".gitignore") == sorted(expected)


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_the_metadata_says_what_it_is(dist: Path, member: Path) -> None:
    metadata, settings = metadata_of(dist, member), project(member)
    assert (metadata["Name"], metadata["Version"]) == (settings["name"], VERSION)
    assert metadata["Summary"] == settings["description"]
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert metadata["Keywords"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert long_description(dist, member) == (member / "README.md").read_text()
    classifiers = metadata.get_all("Classifier", [])
    assert "Typing :: Typed" in classifiers
    assert not any(classifier.startswith("License ::") for classifier in classifiers)
    siblings = [each for each in metadata.get_all("Requires-Dist", []) if each.startswith("hyper-")]
    assert all(f"=={VERSION}" in requirement for requirement in siblings)
    declared = [each for each in settings["dependencies"] if each.startswith("hyper-")]
    assert {each for each in siblings if "extra ==" not in each} == set(declared)


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_the_wheel_holds_the_package_and_its_licence(dist: Path, member: Path) -> None:
    source = member / "src"
    files = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    package = {name for name in files if "__pycache__" not in name}
    about = f"{import_name(member)}-{VERSION}.dist-info/"
    wheel = wheel_of(dist, member)
    assert {name for name in wheel.namelist() if not name.startswith(about)} == package
    assert f"{import_name(member)}/py.typed" in package
    assert wheel.read(f"{about}licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()

    with tarfile.open(dist / f"{import_name(member)}-{VERSION}.tar.gz") as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {f"src/{name}" for name in package} | {"pyproject.toml", "README.md", "LICENSE"} <= names


@pytest.mark.parametrize("member", CORE, ids=lambda member: member.name)
def test_a_core_wheel_works_alone(dist: Path, constraints: Path, member: Path, tmp_path: Path) -> None:
    python = install(dist, constraints, member, tmp_path / "environment")
    present = installed(python)
    declared = {
        each.partition("=")[0] for each in project(member)["dependencies"] if each.startswith("hyper-")
    }
    assert {name for name in present if name.startswith("hyper-")} == {project(member)["name"], *declared}
    assert not present & FRAMEWORKS
    run(python, tmp_path / "elsewhere", IMPORT_ALONE, import_name(member))

    examples = programs_of(member, "python")
    assert examples, "the README has no program that runs without a framework"
    for example in examples:
        check_output(example, run(python, tmp_path / "elsewhere", example.source))


@pytest.mark.xdist_group("adapters")  # their frameworks take as long to install as all else here
@pytest.mark.parametrize("member", [m for m in MEMBERS if m.name in ADAPTERS], ids=lambda member: member.name)
def test_an_adapter_is_found_where_its_wheel_is_installed(
    dist: Path, constraints: Path, member: Path, tmp_path: Path
) -> None:
    python = install(dist, constraints, member, tmp_path / "environment")
    assert installed(python) & FRAMEWORKS == {ADAPTERS[member.name]}
    found = run(python, tmp_path / "elsewhere", USE_ADAPTER)
    assert found.strip().splitlines()[-1] == ADAPTERS[member.name]
    shutil.rmtree(tmp_path / "environment")
