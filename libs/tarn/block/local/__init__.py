"""Blocks on the disk of one machine, shared by its processes.

`open_local` opens a store. Bodies up to 64 KiB are rows of one sqlite file. Larger bodies and everything
under `_tarn/` are plain files in `<root>/<namespace>/`, so that engines can read the directory themselves.
"""

from tarn.block.local.opening import open_local
from tarn.block.local.store import LocalBlockStore

__all__ = ["LocalBlockStore", "open_local"]
