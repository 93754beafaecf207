"""How the workers of xdist share the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.groups import group_of

if TYPE_CHECKING:
    from xdist.scheduler import LoadGroupScheduling


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadGroupScheduling | None:
    """With `--dist loadgroup`: groups by `group_of`.

    The mark `xdist_group` does not work: xdist 3.8 writes it into an attribute that pytest 9.2 no
    longer reads.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class Scheduling(LoadGroupScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

        def remove_node(self, node: Any) -> str | None:
            """Hands on what a worker that crashed had not begun; returns the test that it was running.

            xdist hands on the units that it had *finished*, too: the others wait for a test in them for ever.
            """
            work: dict[str, dict[str, bool]] = self.assigned_work[node]
            left = [(unit, test) for unit in work.values() for test in unit if not unit[test]]
            if left:
                unit, test = left[0]
                unit[test] = True
            self.assigned_work[node] = {
                name: unit for name, unit in work.items() if not all(unit.values())
            }
            super().remove_node(node)
            return left[0][1] if left else None

        def schedule(self) -> None:
            """Gives a worker that replaces another a second unit: it runs a test when it knows the next one."""
            super().schedule()
            if self.collection is not None:
                for node in self.nodes:
                    self._reschedule(node)

    return Scheduling(config, log)
