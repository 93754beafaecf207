"""Sample data of a new repository, for whoever tries Tarn: a few small files and a commit of them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tarn.core.ids import BranchId
from tarn.objects.headers import stored_headers
from tarn.objects.incoming import StreamedBody
from tarn.objects.writing import store_object
from tarn_api.context import Context

__all__ = ["SAMPLES", "add_samples"]

_README: Final = """# A repository of Tarn
This repository was made with sample data, to try things out.

- `data/lakes.csv`: lakes, their areas and depths.
- `data/rivers/*.csv`: rivers by continent.

Make a branch, change a file there, look at the difference, and merge it.
"""
_LAKES: Final = """name,continent,area_km2,depth_max_m
Baikal,Asia,31722,1642
Tanganyika,Africa,32900,1470
Superior,North America,82100,406
Victoria,Africa,68870,81
Titicaca,South America,8372,281
"""
_RIVERS: Final = {
    "africa": "name,length_km\nNile,6650\nCongo,4700\nNiger,4180\n",
    "asia": "name,length_km\nYangtze,6300\nYellow River,5464\nMekong,4350\n",
    "south-america": "name,length_km\nAmazon,6400\nParaná,4880\n",
}

SAMPLES: Final = MappingProxyType(
    {
        "README.md": ("text/markdown", _README),
        "data/lakes.csv": ("text/csv", _LAKES),
        **{
            f"data/rivers/{continent}.csv": ("text/csv", text)
            for continent, text in _RIVERS.items()
        },
    }
)
"""Path → content type and text."""


async def add_samples(context: Context, repository: str, branch: BranchId) -> None:
    """Writes the sample data to a branch, and commits them.

    Raises:
        TarnError: an error of graveler or of the block store.
    """
    made = await context.objects.repository(context, repository)
    for path, (content_type, text) in SAMPLES.items():
        content = text.encode()
        body = StreamedBody.held(content, bytes_max=len(content))
        headers = stored_headers(content_type)
        await store_object(context.objects, context, made, branch, path, body, headers)
    await context.graveler.create_commit(context.change(), repository, branch, "Add sample data")
