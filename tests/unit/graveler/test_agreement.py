"""A replica of graveler starts only with the settings of the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from lake import Replicas
from tests.support.clock import SeededIds

from tarn.client.auth import AuthClient
from tarn.config import load
from tarn.core.errors import Kind, TarnError
from tarn.gate.access import Access
from tarn.kv.agreement import read_settings
from tarn.kv.port import Kv
from tarn_auth.config import AuthConfig
from tarn_graveler.application import GravelerApplication
from tarn_graveler.assembly import GravelerSettings
from tarn_graveler.collection.online_deletion import OnlineSettings
from tarn_graveler.config import settings_of

SETTINGS = GravelerSettings("tarn", drop_delay_seconds=30.0)


async def start_and_stop(replicas: Replicas, kv: Kv, settings: GravelerSettings) -> None:
    """Starts and stops one replica, without callers."""
    async with replicas.replica() as graveler:
        application = GravelerApplication(
            settings=settings,
            kv=kv,
            blocks=replicas.blocks,
            committed=graveler.committed,
            access=Access(cast("AuthClient", None), replicas.clock),
            clock=replicas.clock,
            ids=SeededIds(replicas.clock, seed=7),
        )
        async with application:
            pass


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (replace(SETTINGS, drop_delay_seconds=60.0), "drop_delay is 60000ms here and 30000ms"),
        (replace(SETTINGS, clock_skew_seconds=1.0), "clock_skew is 1000ms here and 5000ms"),
        (
            replace(SETTINGS, online=OnlineSettings(is_enabled=True)),
            "online.enabled is true here and false",
        ),
        (replace(SETTINGS, keeps_events=True), "journal.enabled is true here and false"),
    ],
)
async def test_a_replica_whose_shared_settings_differ_does_not_start(
    other: GravelerSettings, said: str, tmp_path: Path
) -> None:
    replicas = Replicas(tmp_path)
    kv = replicas.kv
    await start_and_stop(replicas, kv, SETTINGS)
    await start_and_stop(replicas, kv, replace(SETTINGS, cleanup_poll_seconds=1.0))
    with pytest.raises(TarnError, match=said) as raised:
        await start_and_stop(replicas, kv, other)
    assert raised.value.kind is Kind.FAILED_PRECONDITION
    assert await read_settings(kv, "tarn") == SETTINGS.shared
    await replicas.tasks.close()


def test_there_is_a_journal_with_a_place_of_its_own_without_any_setting(tmp_path: Path) -> None:
    variables = {"TARN_DATA_DIR": str(tmp_path), "TARN_INSTALLATION_SECRET": "5" * 64}
    config = load(None, variables)
    assert AuthConfig.of(config).keeps_events
    assert settings_of(config).keeps_events
    assert settings_of(config).drain.namespace == "local://tarn-journal-tarn"
    s3 = {
        "TARN_BLOCKSTORE_TYPE": "s3",
        "TARN_BLOCKSTORE_DEFAULT_NAMESPACE_PREFIX": "s3://bucket/tarn",
        "TARN_INSTALLATION_ID": "lab",
    }
    found = settings_of(load(None, {**variables, **s3})).drain.namespace
    assert found == "s3://bucket/tarn/tarn-journal-lab"


def test_settings_are_noted_under_the_names_of_their_keys(tmp_path: Path) -> None:
    config = load(None, {"TARN_DATA_DIR": str(tmp_path), "TARN_GRAVELER_DROP_DELAY": "1500ms"})
    assert settings_of(config).shared == {
        "graveler.drop_delay": "1500ms",
        "graveler.clock_skew": "5000ms",
        "lifecycle.online.enabled": "false",
        "lifecycle.reads.enabled": "false",
        "journal.enabled": "true",
    }
