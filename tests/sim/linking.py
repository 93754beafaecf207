"""Clients that write to the bucket themselves and then link their objects (docs/design/links.md), beside collections.

An issued address is kept by its record alone until its object is staged, often for longer than the staging limit and
than a mark and its sweep take. A link is one write, like an upload.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Final

from tests.sim.branch_life import BranchLife
from tests.sim.outcomes import note_refusal
from tests.sim.workload import Client
from tests.support.check.history import Op, OpKind, Outcome

from tarn.block.port import BlockKey
from tarn.core.errors import Kind, Reason, TarnError
from tarn_proto.graveler.v1 import link_service_pb2 as pb

__all__ = ["Linker"]

_TRIES: Final = 3
_SLOW_FACTOR: Final = 3.0
"""Writes and links take up to so many times the age at which an address may not be staged any more."""
_AGAIN_RATE: Final = 0.3
_LINKS_MAX: Final = 200
_REFUSALS: Final = {Kind.NOT_FOUND, Kind.INVALID, Kind.FAILED_PRECONDITION, Kind.ALREADY_EXISTS}


class Linker(Client):
    """Links objects, one after the other."""

    async def run(self) -> None:
        """Links until the faults end; in a run that takes very long, some of the time."""
        for _ in range(_LINKS_MAX):
            if not self.world.has_faults:
                return
            await asyncio.sleep(self.random.expovariate(1 / self.world.plan.link_seconds))
            await self.link(self.random.choice(self.branches), self.random.choice(self.keys))

    async def link(self, branch: str, key: str) -> None:
        """Asks for an address, writes to it, and links it, sometimes once more."""
        repository_id, branch_id = branch.split("/")
        life = BranchLife.of(self.history, branch)
        try:
            issued = await self.graveler.get_physical_address(
                self.call(), repository_id, branch_id, key
            )
        except TarnError as error:
            self.world.statistics[f"link: no address: {error.reason}"] += 1
            return
        body = f"linked by {self.name} as {issued.token}".encode()
        namespace, _, path = issued.physical_address.rpartition("/data/")
        block = BlockKey(namespace, f"data/{path}")
        await self._tarry()
        await self.world.blocks.put(block, body)
        await self._tarry()
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        address = bytes.fromhex(path.rpartition("/")[2])
        value = self.world.values.joined(etag, namespace, address, body)
        op = self.history.begin(self.name, OpKind.PUT, branch, key, value)
        op.is_upload, op.calls = True, 0
        await self._ask(op, issued, len(body), etag, life)
        if op.is_ok and self.random.random() < _AGAIN_RATE:
            await self._tarry()
            await self._send(op, issued, len(body), etag)  # a repetition is never a second write

    async def _tarry(self) -> None:
        collecting = self.world.plan.collecting
        assert collecting is not None, "links are played beside collections"
        await asyncio.sleep(self.random.uniform(0, _SLOW_FACTOR * collecting.staging_seconds))

    async def _ask(
        self,
        op: Op,
        issued: pb.GetPhysicalAddressResponse,
        size: int,
        etag: str,
        life: BranchLife,
    ) -> None:
        """Repeats the request until there is an answer."""
        is_refused = True
        for _ in range(_TRIES):
            op.calls += 1
            error = await self._send(op, issued, size, etag)
            if error is None:
                self.history.finish(op, Outcome.OK, "link")
                return
            note_refusal(op, error)
            op.grounds = self._objects.grounds(op.value or 0)
            if life.may_be_over(self.history):
                op.grounds |= {Reason.UPLOAD_NOT_FOUND}
            if error.reason is Reason.BLOCK_NOT_FOUND:
                self.world.problem(f"{issued.physical_address} was issued, and its block is gone")
            if error.kind in _REFUSALS:
                break
            is_refused = False
            await asyncio.sleep(self.random.uniform(0, 1.0))
        if not is_refused:
            op.reason = ""  # an earlier request may have taken effect
        self.history.finish(op, Outcome.FAIL if is_refused else Outcome.INFO, "link")

    async def _send(
        self, op: Op, issued: pb.GetPhysicalAddressResponse, size: int, etag: str
    ) -> TarnError | None:
        assert op.key is not None, "a link has a path"
        repository_id, branch_id = op.branch.split("/")
        try:
            await self.graveler.link_physical_address(
                self.call(),
                repository_id,
                branch_id,
                op.key,
                token=issued.token,
                size_bytes=size,
                etag=etag,
            )
        except TarnError as error:
            self.world.statistics[f"link: {error.reason}"] += 1
            return error
        self.world.statistics["link: ok"] += 1
        return None
