"""The contract of `Kv` drivers as tests: what `tarn.kv.port` promises, made executable.

A driver's test module inherits the suite and provides a fixture that makes a store:

    from tarn.testing.contract.kv_contract import KvContract

    class TestMemKv(KvContract):
        @pytest.fixture
        async def kv(self): ...

A store that several processes can share also inherits `SharedKvContract` and provides an `opener`
instead. Partition names are `installation` plus the test's name, so that the tests of a run may share a
store.
"""

from __future__ import annotations

import pytest

_PARTS = (
    "contract_companions",
    "contract_rows",
    "contract_registers",
    "contract_life",
    "contract_listing",
    "contract_shared",
    "contract_sifted",
    "contract_together",
)
pytest.register_assert_rewrite(
    *(f"tarn.testing.contract.kv_{part}" for part in (*_PARTS, "fixtures", "history"))
)

# Imported only after pytest was told to rewrite their asserts:
from tarn.testing.contract.kv_contract_companions import CompanionsContract  # noqa: E402
from tarn.testing.contract.kv_contract_life import LifeContract  # noqa: E402
from tarn.testing.contract.kv_contract_listing import ListingContract  # noqa: E402
from tarn.testing.contract.kv_contract_registers import RegistersContract  # noqa: E402
from tarn.testing.contract.kv_contract_rows import RowsContract  # noqa: E402
from tarn.testing.contract.kv_contract_shared import Opener, SharedKvContract  # noqa: E402
from tarn.testing.contract.kv_contract_sifted import SiftedContract  # noqa: E402
from tarn.testing.contract.kv_contract_together import (  # noqa: E402
    AtOnceContract,
    BesideContract,
    TogetherContract,
)

__all__ = [
    "AtOnceContract",
    "BesideContract",
    "KvContract",
    "Opener",
    "SharedKvContract",
    "TogetherContract",
]


class KvContract(
    RowsContract,
    SiftedContract,
    RegistersContract,
    CompanionsContract,
    LifeContract,
    ListingContract,
):
    """The whole suite for one store in one process; the driver provides the fixture `kv`."""
