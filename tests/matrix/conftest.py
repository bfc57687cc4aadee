"""The full product runs only when it is asked for by its marker: `make crash-full`."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "crash_full" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("crash_full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
