"""A package of one line in as many versions as a test wants, and environments that hold one each. Reaches no index."""

import zipfile
from pathlib import Path

from deploy.reward_env import build


def wheel(folder: Path, version: str, requires: str = "") -> Path:
    """A package `tinypack` that knows its version, as pip takes it."""
    info = f"tinypack-{version}.dist-info"
    path = folder / f"tinypack-{version}-py3-none-any.whl"
    metadata = f"Metadata-Version: 2.1\nName: tinypack\nVersion: {version}\n"
    metadata += f"Requires-Dist: {requires}\n" if requires else ""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tinypack.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def environment(folder: Path, version: str, requires: str = "") -> Path:
    """Python of an environment with that version of tinypack."""
    requirements = folder / f"{version}.txt"
    requirements.write_text(f"--no-index\n{wheel(folder, version, requires)}\n")
    return build(version, requirements, folder / "envs")
