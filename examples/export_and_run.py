"""Export a model, save the artifact, load it, and call it with batches of other sizes.

``python export_and_run.py [FILE.stone]`` keeps the artifact in FILE.stone, if a file is named.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

import torchstone


def main(path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4)).eval()
    batch = torch.export.Dim("batch", min=1, max=1024)
    program = torchstone.export(model, (torch.randn(8, 16),), dynamic_shapes=({0: batch},))
    program.save(path, stablehlo_version="week_12")
    print(f"{path.name}: {path.stat().st_size:,} bytes, symbols {dict(program.signature.symbols)}")

    loaded = torchstone.load(path)
    for rows in (1, 8, 100):
        x = torch.randn(rows, 16)
        with torch.no_grad():
            expected = model(x)
        actual = loaded(x)
        torch.testing.assert_close(actual, expected)
        print(f"batch of {rows}: largest difference from eager {(actual - expected).abs().max():.2e}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder, "model.stone"))
