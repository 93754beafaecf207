"""What every `Kv` driver must do, as tests: the port's text (`tarn.kv.port`) made executable.

A driver's test module inherits the suite and says how to make a store:

    from tarn.testing.contract.kv_contract import KvContract

    class TestMemKv(KvContract):
        @pytest.fixture
        async def kv(self): ...

A store that processes can share inherits `SharedKvContract` too and gives an `opener` instead. Partition
names are taken from the test's name below `installation`, so that the tests of a run may share a store.
"""

from __future__ import annotations

import pytest

_PARTS = (
    "contract_rows",
    "contract_registers",
    "contract_life",
    "contract_listing",
    "contract_shared",
)
pytest.register_assert_rewrite(
    *(f"tarn.testing.kv_{part}" for part in (*_PARTS, "fixtures", "history"))
)

# After their asserts are marked for pytest to explain:
from tarn.testing.contract.kv_contract_life import LifeContract  # noqa: E402
from tarn.testing.contract.kv_contract_listing import ListingContract  # noqa: E402
from tarn.testing.contract.kv_contract_registers import RegistersContract  # noqa: E402
from tarn.testing.contract.kv_contract_rows import RowsContract  # noqa: E402
from tarn.testing.contract.kv_contract_shared import Opener, SharedKvContract  # noqa: E402

__all__ = ["KvContract", "Opener", "SharedKvContract"]


class KvContract(RowsContract, RegistersContract, LifeContract, ListingContract):
    """The whole suite for one store in one process; `kv` is the fixture to give."""
