"""``python -m torchstone.redirect train.py --lr 0.1``: the same as ``torchstone redirect run``."""

from __future__ import annotations

import sys

from ..cli.main import cli

cli.main(["redirect", "run", *sys.argv[1:]], prog_name="torchstone")
