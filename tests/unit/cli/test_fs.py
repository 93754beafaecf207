import json
import threading
from collections.abc import Iterator

import pytest

from tarn_cli.commands.fs import _transfer
from tarn_cli.exits import CliError, Exit
from tarn_cli.objects.local_files import FileRefusedError
from tarn_cli.objects.transfer import Advance, Transfer
from tarn_cli.session import Session
from tarn_cli.settings import Settings


def session(*, as_json: bool = False) -> Session:
    return Session(Settings(), {}, None, 1.0, as_json=as_json)


def arrives(advance: Advance) -> None:
    advance(1)


def refused(_advance: Advance) -> None:
    raise FileRefusedError("is a device")


def fails(_advance: Advance) -> None:
    raise CliError(Exit.DENIED, "access denied")


@pytest.mark.parametrize("as_json", [False, True])
def test_an_interruption_tells_how_many_files_arrived(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    began = threading.Event()

    def last(_advance: Advance) -> None:
        began.set()

    def transfers() -> Iterator[Transfer]:
        yield Transfer("a", 1, arrives)
        yield Transfer("b", 1, last)
        assert began.wait(60)  # work that has begun ends; what waits is dropped
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _transfer(session(as_json=as_json), transfers(), "uploaded", 1)
    said = capsys.readouterr()
    if as_json:
        assert json.loads(said.out) == {"uploaded": 2, "interrupted": True}
    else:
        assert said.err == "interrupted: 2 files were uploaded\n"


def test_a_failure_tells_how_many_files_had_arrived() -> None:
    found = iter([Transfer("a", 1, arrives), Transfer("b", 1, fails)])
    with pytest.raises(CliError) as caught:
        _transfer(session(), found, "uploaded", 1)
    assert caught.value.exit_code is Exit.DENIED
    assert caught.value.details == ("1 files had been uploaded",)


def test_refused_files_are_named_and_counted() -> None:
    found = [Transfer("a", 1, arrives)]
    found += [Transfer(f"{number:04}", 1, refused) for number in range(1003)]
    with pytest.raises(CliError) as caught:
        _transfer(session(), iter(found), "downloaded", 2)
    assert caught.value.exit_code is Exit.FAILURE
    assert caught.value.message == "1003 of 1004 files were not downloaded"
    assert len(caught.value.details) == 1001
    assert caught.value.details[0].endswith(": is a device")
    assert caught.value.details[-1] == "and 3 more"
