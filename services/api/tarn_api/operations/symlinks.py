"""Symlink manifests, for engines that read the bucket by themselves."""

from __future__ import annotations

import re
from typing import Final

from tarn.block.keys import REPLACED_PREFIX
from tarn.core.access.actions import Action, object_resource
from tarn.core.ids import parse_branch_id
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.symlinks import SymlinkPlace, SymlinkWriter
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = ["create_symlink_file"]

_COMMIT_ID: Final = re.compile("[0-9a-f]{64}")


async def create_symlink_file(context: Context, at: op.CreateSymlinkFile) -> schemas.StorageURI:
    """Writes a manifest of the committed objects of each directory at or below `location`, and returns where they
    begin: that of a directory is `<location>/<repository>/<branch>/<directory>/symlink.txt`.

    `branch` may be a tag or a whole commit id, too. The caller needs to write the branch below the location, as in
    lakeFS, and to read the objects.
    """
    ref = at.branch if _COMMIT_ID.fullmatch(at.branch) else parse_branch_id(at.branch)
    directory = (at.location or "").rstrip("/")
    location = f"{directory}/" if directory else ""
    context.require(Action.WRITE_REPO, object_resource(at.repository, ref, location))
    backend = context.backend
    if backend.writing_symlinks.locked():
        text = "other requests of this process write manifests; try again in a moment"
        raise ApiError(503, text, reason="OVERLOADED")
    async with backend.writing_symlinks:
        found = await context.graveler.get_repository(context.read(), at.repository)
        place = SymlinkPlace(at.repository, ref, found.storage_namespace, location)
        writer = SymlinkWriter(
            context.graveler,
            context.blocks,
            backend.clock,
            context.read,
            place,
            backend.symlink_limits,
        )
        await writer.run(context.request_id)
    root = found.storage_namespace.rstrip("/")
    return schemas.StorageURI(location=f"{root}/{REPLACED_PREFIX.rstrip('/')}")
