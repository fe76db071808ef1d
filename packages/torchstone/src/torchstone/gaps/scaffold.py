"""Writing a failing test for a gap, which passes once the gap is closed, with :mod:`.settings`."""

from __future__ import annotations

import re
import textwrap

from ..errors import GapsError
from .answers import GapKind
from .log import Entry

_REDIRECTION = '''\
"""{id}: {api} ({kind})."""

from __future__ import annotations

import pytest

from torchstone.gaps.settings import SETTINGS, Setting, accelerator, check

{comment}


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_{name}(setting: Setting) -> None:
    if setting is not Setting.FALLBACK and accelerator() is None:
        pytest.skip("there is no accelerator here")
    check({api!r}, setting, {kind!r})
'''
_ANY_PROVIDER = '''\
"""{id}: {api} ({kind})."""

from __future__ import annotations

from torchstone.gaps.settings import check_provider

{comment}


def test_{name}() -> None:
    check_provider({provider!r}, {api!r}, {kind!r})
'''


def scaffold(entry: Entry, provider: str) -> str:
    """Return the text of a test module for one gap of ``provider``, which fails until the gap is closed.

    Raises :class:`GapsError` for a gap that no call can show, and for a gap that is gone.
    """
    if entry.kind is GapKind.REFINEMENT:
        raise GapsError(
            f"{entry.id} is a refinement: no call of {entry.api} gives a wrong result that a test could show",
            hint="read the conditions in its source, and write the decision down",
        )
    if entry.fixed_in:
        raise GapsError(
            f"{entry.id} of {entry.api} is gone since {entry.fixed_in}: no test of it would fail",
            hint="`torchstone gaps plan` lists the gaps that are left",
        )
    template = _REDIRECTION if provider.partition(":")[0] == "redirect" else _ANY_PROVIDER
    description = re.sub(r"\s+", " ", entry.description)
    comment = "\n".join(f"# {line}" for line in textwrap.wrap(f"{description}. {entry.action}", 100))
    return template.format(
        id=entry.id,
        api=entry.api,
        kind=str(entry.kind),
        provider=provider,
        comment=comment,
        name=re.sub(r"\W+", "_", entry.api.removeprefix("torch.")).lower(),
    )
