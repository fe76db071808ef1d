"""The driver ``ascend``: it runs scripts of Ascend operators, as ``backend_config.ascend`` says."""

from __future__ import annotations

from typing import ClassVar

from .command import CommandDriver


class AscendBackendDriver(CommandDriver):
    """The command driver for NPUs; ``{chip}`` in commands and paths stands for the case's chip.

    Its chips are the values of CANN's ``--soc_version``.
    """

    kind = "npu"
    name = "ascend"
    chips = (
        "ascend310",
        "ascend310b",
        "ascend310b1",
        "ascend310b4",
        "ascend310p",
        "ascend310p1",
        "ascend310p3",
        "ascend910",
        "ascend910a",
        "ascend910b",
        "ascend910b1",
        "ascend910b2",
        "ascend910b3",
        "ascend910b4",
        "ascend910c",
        "ascend910_93",
    )
    key: ClassVar[str] = "ascend"
