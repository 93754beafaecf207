"""The loop of a session: pick an interesting input, mutate it, try it, and keep it if it reached something
new.

The seed decides everything, and time nothing: the n-th input of a session is the same on every machine
with the same Python and packages, so a session of N inputs can be repeated.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.support.fuzz.coverage import Lines, constants_of, files_of
from tests.support.fuzz.limits import HangError, PeakMemory, cpu_limit
from tests.support.fuzz.minimising import minimised
from tests.support.fuzz.mutating import Mutator
from tests.support.fuzz.target import Target

__all__ = ["Bug", "Session", "Statistics"]

_TRIES_MAX = 400
_MINIMISING_S = 10.0
"""Processor time, in seconds. Time affects later inputs only after a bug."""
_BUGS_MAX = 10
_KEPT_MAX = 4000
_WORDS_MAX = 200
_VARIABLE = re.compile(r"""'[^']*'|"[^"]*"|\w*\d\w*|[^\x00-\x7f]""")
"""Parts of a message that depend on the input, not on the code: quotations and numbers."""


@dataclass(frozen=True, slots=True)
class Bug:
    """An input that a parser neither accepts nor refuses properly.

    Attributes:
        signature: kind and place of the failure; each signature is reported once.
        data: the input, minimised.
        story: the traceback or the measurement.
    """

    signature: str
    data: bytes
    story: str


@dataclass(slots=True)
class Statistics:
    """Counters of a session. `digest` covers all inputs in order: equal digests mean equal sessions."""

    inputs: int = 0
    refused: int = 0
    kept: int = 0
    features: int = 0
    digest: str = ""


@dataclass(slots=True)
class _Kept:
    """An input that reached something new."""

    data: bytes
    children: int = field(default=0)


class Session:
    """A fuzzing session of one target with one seed.

    Args:
        target: the target to fuzz.
        seed: decides every input.
        before: called with each input before it is tried.
        report: called with each bug once.
    """

    def __init__(
        self,
        target: Target,
        seed: int,
        before: Callable[[bytes], None],
        report: Callable[[Bug], None],
    ) -> None:
        self.statistics = Statistics()
        self._target = target
        self._before, self._report = before, report
        self._rng = random.Random(seed)
        tokens = [*target.tokens, *constants_of(target.traced)]
        self._mutator = Mutator(self._rng, tokens, target.mutations, target.input_bytes_max)
        self._files = files_of(target.traced)
        self._lines = Lines(self._files)
        self._memory = PeakMemory()
        self._seen: set[int | str] = set()
        self._kept: list[_Kept] = []
        self._words: set[str] = set()
        self._signatures: set[str] = set()
        self._digest = hashlib.sha256()

    def run(self, corpus: Iterable[bytes], goes_on: Callable[[], bool]) -> Statistics:
        """Tries the corpus, then generated inputs while `goes_on` returns true."""
        for data in corpus:
            self._try(data[: self._target.input_bytes_max], keep=True)
        if not self._kept:
            self._kept.append(_Kept(b""))
        while goes_on() and len(self._signatures) < _BUGS_MAX:
            self._try(self._mutator.mutate(self._pick(), self._pick()))
        self.statistics.kept = len(self._kept)
        self.statistics.features = len(self._seen)
        self.statistics.digest = self._digest.hexdigest()
        return self.statistics

    def _pick(self) -> bytes:
        """Picks two inputs and returns the one with fewer children, so that all inputs are used."""
        one, two = self._rng.choice(self._kept), self._rng.choice(self._kept)
        chosen = one if one.children <= two.children else two
        chosen.children += 1
        return chosen.data

    def _try(self, data: bytes, *, keep: bool = False) -> None:
        self.statistics.inputs += 1
        self._digest.update(len(data).to_bytes(4, "little") + data)
        outcome = self._outcome(data)
        if isinstance(outcome, Bug):
            self._found(outcome)
            return
        features: set[int | str] = set(self._lines.features())
        if len(self._words) < _WORDS_MAX:
            self._words.add(outcome)
            features.add(outcome)
        if keep or not features <= self._seen:
            self._seen |= features
            self._kept.append(_Kept(data))
            if len(self._kept) > _KEPT_MAX:
                self._kept.pop(self._rng.randrange(len(self._kept) // 2))

    def _outcome(self, data: bytes) -> str | Bug:
        """Returns a word for the target's result, or the bug."""
        self._before(data)
        self._memory.begin()
        try:
            with cpu_limit(self._target.cpu_s):
                word = f"{self._lines.run(self._target.check, data)}"
        except HangError:
            return Bug("hang", data, f"more than {self._target.cpu_s} s of processor time")
        except MemoryError as error:
            return Bug("memory", data, f"an allocation failed: {error!r}")
        except self._target.refusals as error:
            self.statistics.refused += 1
            # Without numbers, a C parser's messages identify its branches.
            word = f"{type(error).__name__}: {_VARIABLE.sub('#', str(error))[:80]}"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any error here is a bug
            return Bug(self._signature(error), data, traceback.format_exc())
        growth = self._memory.growth()
        if growth > self._target.memory_bytes:
            return Bug("memory", data, f"the peak rose by {growth >> 20} MiB")
        return word

    def _signature(self, error: BaseException) -> str:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if frame.filename.startswith(self._files)]
        last = (ours or frames)[-1]
        place = "/".join(last.filename.split("/")[-2:])
        return f"{type(error).__name__} in {place}:{last.name}:{last.lineno}"

    def _found(self, bug: Bug) -> None:
        if bug.signature in self._signatures:
            return
        self._signatures.add(bug.signature)
        data = bug.data
        if bug.signature not in ("hang", "memory"):  # minimising those is slow or not repeatable
            end = time.process_time() + _MINIMISING_S

            def fails(smaller: bytes) -> bool:
                if time.process_time() > end:
                    return False
                found = self._outcome(smaller)
                return isinstance(found, Bug) and found.signature == bug.signature

            data = minimised(bug.data, fails, _TRIES_MAX)
        self._report(Bug(bug.signature, data, bug.story))
