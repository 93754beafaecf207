"""The installation of a run: nodes of this machine, a repository, its branches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from chaos.node import Node
from chaos.s3 import Target

__all__ = ["installation"]

_REPOSITORY = "chaos"
_HARNESS = Path(__file__).parents[1]
_PATH = (_HARNESS / "chaos" / "weaken", _HARNESS, _HARNESS.parents[1])
"""Folders from which Python imports `sitecustomize`, `chaos` and `tests`."""

DROP_SECONDS = 4
"""The drop delay: so short that tokens are dropped frequently, and that workers are stopped for longer."""


@contextmanager
def installation(
    folder: Path, options: Sequence[str] = ("--workers", "4"), *, without: str = ""
) -> Iterator[tuple[Target, list[Node]]]:
    """Yields a node that serves, and its addresses for clients; stops it at the end.

    Args:
        folder: empty folder for all files.
        options: options of `tarn up`: `--config`, `--kv`, `--workers` and so on.
        without: name of a guard to disable in its workers (`weaken/sitecustomize.py`).
    """
    environment = {
        "TARN_GRAVELER_DROP_DELAY": f"{DROP_SECONDS}s",
        "TARN_GRAVELER_CLEANUP_POLL": "500ms",
    }
    if without:
        environment["CHAOS_WITHOUT"] = without
        environment["PYTHONPATH"] = os.pathsep.join(
            [*map(str, _PATH), os.environ.get("PYTHONPATH", "")]
        )
    node = Node(folder, options, environment)
    node.start()
    with ExitStack() as stack:
        stack.callback(node.stop)
        tarn = node.tarn
        tarn.ok("repo", "create", _REPOSITORY)
        tarn.ok("branch", "create", f"{_REPOSITORY}/dev")
        target = Target(
            (tarn.endpoint,),
            (tarn.server,),
            tarn.auth_server,
            tarn.access_key_id,
            tarn.secret_access_key,
            _REPOSITORY,
        )
        yield target, [node]
