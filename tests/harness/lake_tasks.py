"""Tasks on a lake in memory: merges of the branch `side` into `main`, replicas that die."""

import asyncio
from typing import Any

from graveler_service import Service

from tarn.core.task import LEASE_US, Task
from tarn.kv.keys import RepositoryKeys
from tarn.kv.records import Repository
from tarn_graveler.handlers.task_works import MADE_BY_TASK
from tarn_proto.graveler.v1 import commit_service_pb2 as commit_pb
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb
from tarn_proto.graveler.v1 import task_service_pb2 as pb

__all__ = [
    "LEASE_S",
    "MAIN_KEY",
    "a_merge",
    "done",
    "done_record",
    "handler_of",
    "head",
    "kill",
    "look",
    "merges_of",
    "repository_of",
    "task_id",
    "ticks",
]

LEASE_S = LEASE_US / 1_000_000


def task_id(service: Service, number: int = 1) -> str:
    milliseconds = service.clock.now_us() // 1000
    return f"{milliseconds:012x}7{number:019x}"


def a_merge(**more: Any) -> merge_pb.MergeRequest:
    return merge_pb.MergeRequest(repository_id="lake", branch_id="main", source_ref="side", **more)


async def ticks(count: int = 200) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def done(service: Service, name: str) -> pb.Task:
    """Returns a task that ends without the clock being advanced."""
    for _ in range(500):
        task = await service.graveler.get_task(service.admin, "lake", name)
        if task.end_time.seconds:
            return task
        await asyncio.sleep(0.01)
    raise AssertionError("it has not ended")


async def done_record(service: Service, repository: Repository, name: str) -> Task:
    """As `done`, without a call: the repository, or the caller's token, may have expired."""
    for _ in range(500):
        task: Task = await handler_of(service, ".TaskService")._runner.get(repository, name)
        if task.state.is_ended:
            return task
        await asyncio.sleep(0.01)
    raise AssertionError("it has not ended")


async def merges_of(service: Service, name: str, ref: str = "main") -> list[commit_pb.Commit]:
    """Returns the commits in the history of a ref that a task made."""
    page = await service.graveler.list_commits(service.admin, "lake", ref)
    return [each for each in page.commits if each.metadata.get(MADE_BY_TASK) == name]


def handler_of(service: Service, name: str) -> Any:
    return next(each for each in service.endpoints if each.name.endswith(name)).handler


async def look(service: Service) -> None:
    """Lets the cleaner of a replica look at the tasks that are due."""
    await service.replica.cleaner.drop_due()


async def repository_of(service: Service) -> Repository:
    found: Repository = await handler_of(service, ".TaskService")._repositories.get("lake")
    return found


async def kill(service: Service) -> None:
    """Ends the tasks of all replicas at their present step, as if their processes died."""
    await service.replicas.tasks.close()


async def head(service: Service) -> str:
    return (await service.graveler.get_branch(service.admin, "lake", "main")).commit_id


MAIN_KEY = RepositoryKeys.branch("main")
