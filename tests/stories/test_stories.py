"""Each story happens as it is told, and otherwise without its guards.

`pytest tests/stories --rewrite` writes what happens now. Commit the difference only if you understand what caused it,
and if it is desired.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sim import named_guards
from tests.stories.guards import STORY_GUARDS
from tests.stories.player import play
from tests.stories.script import Happened, Script
from tests.support.faults.guards import Guard, switched_off

FOLDER = Path(__file__).parent
GUARD = named_guards.GUARD | {guard.name: guard for guard in STORY_GUARDS}


async def play_without(guard: Guard, script: Script, directory: Path) -> Happened:
    """Plays a story while one guard is off."""
    with switched_off(guard):
        return await play(script, directory)


@pytest.mark.parametrize("story", sorted(path.stem for path in FOLDER.glob("*.txt")))
async def test_a_story_happens_as_it_is_told(
    story: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    file = FOLDER / f"{story}.txt"
    script = Script.parse(file.read_text())
    assert script.guards, "the head of a story names the guard that it shows"
    happened = await play(script, tmp_path / "now")
    otherwise = [
        await play_without(GUARD[name], script, tmp_path / name) for name, _ in script.guards
    ]
    headings = [f"Without {name}: {GUARD[name].without}" for name, _ in script.guards]
    text = script.tell(happened, list(zip(headings, otherwise, strict=True)))
    if request.config.getoption("--rewrite", default=False):
        file.write_text(text)
    assert file.read_text() == text
    for (name, command), then in zip(script.guards, otherwise, strict=True):
        place = script.commands.index(command)
        assert then[place] != happened[place], f"{command!r} happens alike without {name}"
