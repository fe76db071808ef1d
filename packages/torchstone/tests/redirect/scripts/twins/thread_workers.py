"""thread_workers on the CPU, in one thread."""

import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
with torch.no_grad():
    outs = [model(torch.full((2, 4), float(i))) for i in range(4)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        evaluated = [model(torch.ones(1, 4) * i) for i in range(4)]

torch.save({"outs": torch.stack(outs), "evaluated": torch.cat(evaluated)}, "result.pt")
