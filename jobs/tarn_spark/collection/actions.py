"""Runs the jobs of Spark from the event loop of the driver: progress, cancellation, errors."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Final, TypeVar

from pyspark.sql import SparkSession

from tarn.collection.progress import CollectionProgress
from tarn.core.errors import Kind, Reason, TarnError
from tarn_spark.collection.executor import error_in

__all__ = ["SparkActions"]

T = TypeVar("T")

_LOOK_S: Final = 0.5
_CANCEL_AGAIN_S: Final = 0.2
_TEXT_MAX: Final = 500
_OF_SPARK: Final = ("py4j.", "pyspark.")
"""Modules of the errors of Spark. It raises some as its own, others as those of its bridge to Java."""


class SparkActions:
    """Runs actions, each as a group of jobs of its own.

    Args:
        spark: runs them.
        progress: told of the tasks of the present action.
    """

    def __init__(self, spark: SparkSession, progress: CollectionProgress) -> None:
        self._context: Any = spark.sparkContext
        self._progress = progress
        self._numbers = itertools.count()

    async def run(self, step: str, action: Callable[[], T]) -> T:
        """Runs an action of Spark in a thread and returns its result.

        If the caller is cancelled, the jobs are cancelled, and their end is waited for. Spark ends the processes of
        their tasks within two seconds after that.

        Args:
            step: the name of the step, in words.
            action: starts jobs and waits for them.

        Raises:
            TarnError: the error of an executor; INTERNAL if Spark itself fails.
        """
        self._progress.begin(step)
        return await self.run_silently(step, action)

    async def run_silently(self, step: str, action: Callable[[], T]) -> T:
        """Runs an action as one more part of the present step."""
        group = f"tarn-gc-{id(self):x}-{next(self._numbers)}"

        def work() -> T:
            self._context.setJobGroup(group, step, interruptOnCancel=True)
            return action()

        running = asyncio.get_running_loop().run_in_executor(None, work)
        shown = self._progress.total is None
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=_LOOK_S)
                if shown:
                    self._show(group)
            return running.result()
        except asyncio.CancelledError:
            # An action may start another job after each one that is cancelled.
            while not running.done():
                self._context.cancelJobGroup(group)
                await asyncio.wait({running}, timeout=_CANCEL_AGAIN_S)
            running.exception()  # the error of a cancelled job is not wanted
            raise
        except Exception as error:
            if not type(error).__module__.startswith(_OF_SPARK):
                raise
            raise _error_of(step, error) from error

    def _show(self, group: str) -> None:
        """Tells the tasks of the stages that run."""
        tracker = self._context.statusTracker()
        done = total = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                told = tracker.getStageInfo(stage)
                if told is not None:
                    done += told.numCompletedTasks
                    total += told.numTasks
        self._progress.done, self._progress.total = done, total or None


def _error_of(step: str, error: Exception) -> TarnError:
    text = str(error)
    found = error_in(text)
    if found is not None:
        return found
    told = text.partition("\n\tat ")[0].strip().splitlines() or [type(error).__name__]
    shown = " … ".join(dict.fromkeys([told[0], told[-1]]))[:_TEXT_MAX]
    text = f"Spark could not {step}: {shown}; nothing is lost, and the next run goes on; see the log of Spark"
    return TarnError(Kind.INTERNAL, Reason.INTERNAL, text)
