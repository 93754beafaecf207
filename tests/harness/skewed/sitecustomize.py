"""Skews the wall clocks of a node's workers, like clocks of different machines.

Python imports a module of this name when it starts; the folder is on the path of such nodes only. The
n-th worker that starts gets the n-th of `SKEW_SECONDS`, cyclically; `SKEW_FOLDER` counts the workers.
`CHAOS_WITHOUT` names a guard to disable in them, to show that a chaos run detects its absence
(`chaos.weakness`).
"""

import itertools
import os
import sys
from pathlib import Path
from unittest import mock

if sys.orig_argv[1:3] == ["-m", "tarn_cli.node.worker"]:
    from tarn.rpc.process.system import SystemClock

    def _number(folder: Path) -> int:
        for number in itertools.count():
            try:
                (folder / str(number)).touch(exist_ok=False)
            except FileExistsError:
                continue
            return number
        raise AssertionError("it counts without end")

    _skews = [float(text) for text in os.environ["SKEW_SECONDS"].split(",")]
    _shift_us = int(_skews[_number(Path(os.environ["SKEW_FOLDER"])) % len(_skews)] * 1e6)
    _now_us = SystemClock.now_us

    def _shifted_us(self: SystemClock) -> int:
        return _now_us(self) + _shift_us

    mock.patch.object(SystemClock, "now_us", _shifted_us).start()

    if "CHAOS_WITHOUT" in os.environ:
        from chaos.weakness import weaken

        weaken(os.environ["CHAOS_WITHOUT"])
