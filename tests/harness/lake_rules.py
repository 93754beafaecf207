"""Rules of repositories, as tests set them."""

from collections.abc import Sequence

from graveler_service import Service

from tarn.core.change_kind import ChangeKind
from tarn_proto.graveler.v1 import settings_service_pb2 as pb

__all__ = ["ALL", "NUMBERS", "WRITE", "protect", "with_dev"]

NUMBERS = {
    ChangeKind.WRITE: pb.CHANGE_KIND_WRITE,
    ChangeKind.COMMIT: pb.CHANGE_KIND_COMMIT,
    ChangeKind.MERGE: pb.CHANGE_KIND_MERGE,
    ChangeKind.DELETE: pb.CHANGE_KIND_DELETE,
    ChangeKind.FORCE: pb.CHANGE_KIND_FORCE,
}
ALL = tuple(NUMBERS.values())
WRITE = (pb.CHANGE_KIND_WRITE,)


async def protect(service: Service, *protections: pb.Protection, hidden: Sequence[str] = ()) -> str:
    """Sets all rules; returns the ETag."""
    etag = (await service.graveler.get_settings(service.admin, "lake")).etag
    return await service.graveler.set_rules(
        service.admin, "lake", protections=protections, hidden_patterns=hidden, if_match=etag
    )


async def with_dev(service: Service) -> Service:
    await service.graveler.create_branch(service.admin, "lake", "dev", "main")
    return service
