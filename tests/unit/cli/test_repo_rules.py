"""The commands of `tarn repo` change a part of the rules, on the newest version of them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from graveler_service import running_service

from tarn.core.errors import Reason, TarnError
from tarn_cli.commands.rules import _edit
from tarn_proto.graveler.v1 import settings_service_pb2 as pb


def protecting(pattern: str) -> pb.Protection:
    return pb.Protection(pattern=pattern, blocked=[pb.CHANGE_KIND_WRITE])


async def test_a_change_that_came_in_between_is_kept(tmp_path: Path) -> None:
    async with running_service(tmp_path) as service:
        tarn = cast("Any", SimpleNamespace(graveler=service.graveler, call=lambda: service.admin))
        seen: list[list[str]] = []

        def add(now: pb.GetSettingsResponse) -> pb.SetRulesRequest:
            seen.append([each.pattern for each in now.protections])
            return pb.SetRulesRequest(
                protections=[*now.protections, protecting(f"mine-{len(now.protections)}")]
            )

        class Interfering:
            """Lets another change come in between the read and the write, once."""

            async def get_settings(self, *given: Any) -> pb.GetSettingsResponse:
                found = await service.graveler.get_settings(*given)
                if not seen:
                    await service.graveler.set_rules(
                        service.admin,
                        "lake",
                        protections=[protecting("theirs")],
                        hidden_patterns=[],
                        if_match=found.etag,
                    )
                return found

            set_rules = service.graveler.set_rules

        tarn.graveler = Interfering()
        made = await _edit(tarn, "lake", "", add)
        assert seen == [[], ["theirs"]]
        assert [each.pattern for each in made.protections] == ["theirs", "mine-1"]
        assert made == await service.graveler.get_settings(service.admin, "lake")
        seen.clear()
        old = made.etag
        with pytest.raises(TarnError) as raised:
            await _edit(tarn, "lake", old, add)
        assert raised.value.reason is Reason.SETTINGS_CHANGED
        assert len(seen) == 1
