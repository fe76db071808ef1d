"""storage_pickle on the CPU."""

import torch

x = torch.arange(6.0).view(2, 3)
pair = x.clone()
pair[0] += 10
torch.save(
    {
        "x": x * 2,
        "rebuilt": torch.arange(6.0).view(3, 2),
        "unpickled": {"x": x, "row": x[1]},
        "pair": [pair, pair[0]],
    },
    "result.pt",
)
