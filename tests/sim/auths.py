"""Auth: production's service over the simulated store, in runs with session keys."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from tests.sim.journaled_records import WatchedLink
from tests.sim.machine import Server

from tarn_auth.application import AuthApplication

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["SECRET", "Auth"]

SECRET: Final = bytes(range(32))
"""The secret of the installation."""


class Auth(Server):
    """One process of auth."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.start()

    def start(self) -> None:
        """Starts a new process."""
        super().start()
        world, plan = self.world, self.world.plan
        self._end = world.store.open(self.clock)
        application = AuthApplication(
            WatchedLink(world, self._end, self.wire, plan.page_rows),
            "sim",
            SECRET,
            self.clock,
            self.ids,
            random_bytes=random.Random(f"auth {plan.seed} {self.name} {self._life}").randbytes,
            keeps_events=plan.keeps_events,
        )
        # Services are not simulated as callers: whoever reaches a process of auth is one.
        self.serve(application.endpoints_in_process)

    def crash(self) -> None:
        """Also drops the writes that the process has queued."""
        self._end.crash()
        super().crash()
