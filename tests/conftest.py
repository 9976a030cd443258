"""What a machine lacks deselects by marker, and says so in one line; nothing else is ever left out."""

import shutil

import pytest


def _missing() -> dict[str, str]:
    """Marker -> why tests that carry it cannot run here."""
    import torch

    missing: dict[str, str] = {}
    if not torch.cuda.is_available():
        missing["gpu"] = "no CUDA device"
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        missing["browser"] = "no Chromium with its driver"
    return missing


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marked = {item for item in items if item.get_closest_marker("gpu") or item.get_closest_marker("browser")}
    if not marked:
        return
    missing = _missing()
    left_out = [item for item in items if item in marked and any(item.get_closest_marker(m) for m in missing)]
    if not left_out:
        return
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]
    reasons = "; ".join(f"{marker}: {why}" for marker, why in missing.items())
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"{len(left_out)} tests deselected ({reasons})")
