"""`tarn task`: long work that goes on in the background."""

from __future__ import annotations

import click

from tarn_cli.background import state_of, task_record
from tarn_cli.foreground import follow, result_of
from tarn_cli.objects.uri import parse_ref, parse_repository
from tarn_cli.session import Group, Session, pass_session

__all__ = ["task"]

_COLUMNS = ("task", "state", "done", "what", "user", "created")


@click.group(cls=Group)
def task() -> None:
    """Long work that goes on in the background, on the servers.

    `tarn merge` is a task: it goes on if you press Ctrl-C, and `--background` does not wait for it. If a server dies,
    another one goes on. Tasks are kept for one day after their end.
    """


@task.command(name="list")
@click.argument("repository")
@click.option("--all-users", is_flag=True, help="Also the tasks of other users.")
@pass_session
def list_(session: Session, repository: str, all_users: bool) -> None:
    """List your tasks in a repository, oldest first."""
    from tarn_cli.connection import collect

    name = parse_repository(repository)
    found = session.run(
        lambda tarn: collect(
            lambda size, token: tarn.graveler.list_tasks(
                tarn.call(), name, all_users=all_users, page_size=size, page_token=token
            ),
            lambda page: page.tasks,
        )
    )
    session.output.many(map(task_record, found), _COLUMNS, empty="no tasks")


@task.command()
@click.argument("task_uri", metavar="REPOSITORY/TASK")
@pass_session
def show(session: Session, task_uri: str) -> None:
    """Show one task, with its result or its error."""
    uri = parse_ref(task_uri)
    found = session.run(lambda tarn: tarn.graveler.get_task(tarn.call(), uri.repository, uri.ref))
    session.output.one(task_record(found))


@task.command()
@click.argument("task_uri", metavar="REPOSITORY/TASK")
@pass_session
def cancel(session: Session, task_uri: str) -> None:
    """Ask for the end of a task.

    The task may go on for some seconds. A merge that is being published is not stopped: `tarn task wait` tells how it
    ended.
    """
    uri = parse_ref(task_uri)
    found = session.run(
        lambda tarn: tarn.graveler.cancel_task(tarn.call(), uri.repository, uri.ref)
    )
    session.output.one(task_record(found), state_of(found))


@task.command()
@click.argument("task_uri", metavar="REPOSITORY/TASK")
@pass_session
def wait(session: Session, task_uri: str) -> None:
    """Wait until a task has ended, and show it. The command fails if the task failed.

    \b
    Example:
      tarn task wait $(tarn merge lake/feature lake/main --background)
    """
    uri = parse_ref(task_uri)
    session.output.one(task_record(result_of(follow(session, uri.repository, uri.ref))))
