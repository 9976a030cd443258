"""The list of shipped weights with their hashes: ``python -m tinyworld.manifest`` writes it, a test compares it."""

import hashlib
import json
from pathlib import Path
from typing import Final

from tinyworld.pipeline import WEIGHTS

MANIFEST: Final = WEIGHTS / "manifest.json"
MAX_BYTES: Final = 32 * 1024 * 1024
"""All weights together; the repository keeps 36 MiB for them."""


def describe(folder: Path) -> dict[str, dict[str, str | int]]:
    """Size in bytes and SHA-256 of every file under the folder but the manifest, by relative path."""
    return {
        path.relative_to(folder).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST.name
    }


def main() -> None:
    """Write the manifest and print the total size.

    Raises:
        SystemExit: the weights are larger than the repository allows; nothing is written.
    """
    files = describe(WEIGHTS)
    total = sum(int(entry["bytes"]) for entry in files.values())
    if total > MAX_BYTES:
        raise SystemExit(f"{total} bytes of weights, at most {MAX_BYTES} are allowed")
    MANIFEST.write_text(json.dumps(files, indent=1) + "\n", encoding="utf-8")
    print(f"{len(files)} files, {total / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
