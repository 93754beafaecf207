import io

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from tarn_cli.bars import PlainColumn, bar


def test_the_total_of_one_phase_is_not_that_of_the_next() -> None:
    """It was: a phase of seven items, then one of unknown size, showed `190000/7`."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with bar(console, "start", MofNCompleteColumn()) as shown:
        shown.show("lake: ranges", 7, 7)
        shown.show("lake: blocks", 190_000, None)
        assert str(MofNCompleteColumn().render(shown._progress.tasks[0])) == "190000/?"


def test_a_pipe_gets_no_trace_of_a_bar() -> None:
    stream = io.StringIO()
    with bar(Console(file=stream), "uploading") as shown:
        shown.add_total(5)
        shown.advance(5)
    assert stream.getvalue() == ""


def test_the_total_grows_with_what_is_found() -> None:
    with bar(Console(quiet=True), "uploading") as shown:
        shown.add_total(5)
        shown.add_total(7)
        assert shown._progress.tasks[0].total == 12


def test_a_name_cannot_drive_the_terminal_from_a_bar() -> None:
    with Progress(console=Console(quiet=True)) as progress:
        progress.add_task("a\nb\x1b[2J[red]\u202e")
        shown = PlainColumn("{task.description}").render(progress.tasks[0])
        assert shown.plain == r"a\nb\x1b[2J[red]\u202e"
