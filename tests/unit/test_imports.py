"""The arrows of the design: which room may import which, and which library lives where."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("harmonizer", "rewards", "learner", "actors", "deploy", "tinyworld")
ALLOWED = {
    "harmonizer": set(),
    "rewards": set(),
    "learner": {"harmonizer"},
    "actors": {"harmonizer", "learner", "rewards"},
    "deploy": {"harmonizer", "learner", "rewards", "actors"},
    "tinyworld": {"rewards", "learner", "harmonizer"},
}
ONLY_IN = {
    "ray": {"actors", "deploy"},
    "fastapi": {"deploy"},
    "cvxpy": {"harmonizer"},
}
ONLY_FILE = {("harmonizer", "torch"): "torchjd_methods.py", ("harmonizer", "torchjd"): "torchjd_methods.py"}
"""(room, library) → the one file of the room that may import it; everybody else imports that file inside functions."""
FREE_OF_TORCH = ["__init__.py", "config.py", "run_config.py"]


def imports_of(path: Path) -> Iterator[str]:
    """Top-level names that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield (node.module or "").split(".")[0]


def files_of(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_one_way(room: str) -> None:
    files = files_of(room)
    assert files, f"{room}/ has no Python file"
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in imports_of(path)
        if name in ROOMS and name != room and name not in ALLOWED[room]
    ]
    assert not wrong


@pytest.mark.parametrize("library", ONLY_IN)
def test_library_stays_in_its_rooms(library: str) -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for room in ROOMS
        if room not in ONLY_IN[library]
        for path in files_of(room)
        if library in set(imports_of(path))
    ]
    assert not wrong


@pytest.mark.parametrize(("room", "library"), ONLY_FILE)
def test_library_stays_in_its_file(room: str, library: str) -> None:
    importers = [path.name for path in files_of(room) if library in set(imports_of(path))]
    assert importers == [ONLY_FILE[room, library]]


def test_torchjd_is_imported_nowhere_else() -> None:
    files = [path for room in ROOMS for path in files_of(room)]
    assert [path.name for path in files if "torchjd" in set(imports_of(path))] == ["torchjd_methods.py"]


def test_an_arrow_that_points_the_wrong_way_is_seen(tmp_path: Path) -> None:
    """The reader itself: imports inside functions and `from` imports count too."""
    source = tmp_path / "wrong.py"
    source.write_text("def f():\n    from actors.controller import Controller\n    import ray.util\n")
    assert list(imports_of(source)) == ["actors", "ray"]


def test_configuration_loads_without_torch_or_ray() -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for room in ROOMS
        if room != "tinyworld"
        for path in files_of(room)
        if path.name in FREE_OF_TORCH
    ]
    assert "actors.run_config" in modules
    code = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "heavy = [m for m in ('torch', 'ray', 'transformers', 'diffusers', 'cvxpy') if m in sys.modules]\n"
        "print(heavy); sys.exit(bool(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
