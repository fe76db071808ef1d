"""A failing test for a gap, to be made to pass: one call in the four settings of :mod:`.settings`."""

from __future__ import annotations

import re
import textwrap

from ..errors import GapsError
from .answers import GapKind
from .log import Entry

_TEMPLATE = '''\
"""{id}: {api} ({kind})."""

from __future__ import annotations

import pytest

from torchstone.gaps.settings import SETTINGS, Setting, accelerator, check

{comment}


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_{name}(setting: Setting) -> None:
    if setting is not Setting.FALLBACK and accelerator() is None:
        pytest.skip("there is no accelerator here")
    check({api!r}, setting)
'''


def scaffold(entry: Entry) -> str:
    """The text of a test module for one gap. Raises :class:`GapsError` for one that no call can show."""
    if entry.kind is GapKind.REFINEMENT:
        raise GapsError(
            f"{entry.id} is a refinement: no call of {entry.api} gives a wrong result that a test could show",
            hint="read the conditions in its source, and write the decision down",
        )
    description = re.sub(r"\s+", " ", entry.description)
    comment = "\n".join(f"# {line}" for line in textwrap.wrap(f"{description}. {entry.action}", 100))
    return _TEMPLATE.format(
        id=entry.id,
        api=entry.api,
        kind=entry.kind,
        comment=comment,
        name=re.sub(r"\W+", "_", entry.api.removeprefix("torch.")).lower(),
    )
