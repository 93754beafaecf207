"""An error keeps its fields in another process."""

from __future__ import annotations

import copy
import pickle

import pytest

from tarn.config.errors import ConfigError
from tarn.core.entry import EntryCorruptError
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import OutcomeUnknownError, Predicate, PredicateFailedError, Versioned

ERRORS = [
    TarnError(Kind.NOT_FOUND, Reason.TAG_NOT_FOUND, "tag x does not exist", tag="x"),
    PredicateFailedError(b"k", Versioned(b"value", Predicate(b"7"))),
    PredicateFailedError(b"k", None),
    OutcomeUnknownError("cut off"),
    EntryCorruptError("too short", b"ab"),
    ConfigError(["a", "b"]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_whole_in_another_process(error: TarnError) -> None:
    error.add_note("seen twice")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert vars(again) == vars(error)
        assert (str(again), repr(again), again.args) == (str(error), repr(error), error.args)
