"""Hand-written mutations: plausible mistakes, each of which a test must detect."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.applying import Written
from tests.mutants.written_backup import BACKUP
from tests.mutants.written_graveler import GRAVELER
from tests.mutants.written_journal import JOURNAL
from tests.mutants.written_lifecycle import LIFECYCLE
from tests.mutants.written_merges import MERGES
from tests.mutants.written_quotas import QUOTAS
from tests.mutants.written_rebuild import REBUILD
from tests.mutants.written_stores import STORES

__all__ = ["WRITTEN"]

WRITTEN: Final[Sequence[Written]] = (
    *BACKUP,
    *GRAVELER,
    *JOURNAL,
    *LIFECYCLE,
    *MERGES,
    *QUOTAS,
    *REBUILD,
    *STORES,
)
