"""amp_bfloat16 on the CPU."""

import torch
import torch.nn.functional as F

torch.manual_seed(7)
net = torch.nn.ModuleDict(
    {"conv": torch.nn.Conv2d(1, 4, 3, padding=1), "head": torch.nn.Linear(4 * 6 * 6, 5)}
)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)

norms = []
for _ in range(3):
    images = torch.randn(8, 1, 6, 6)
    labels = torch.randint(5, (8,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        normal = (images - images.mean()) / images.std()
        logits = net["head"](F.relu(net["conv"](normal)).flatten(1))
    F.cross_entropy(logits.float(), labels).backward()
    norms.append(torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5).item())
    optimizer.step()
    optimizer.zero_grad()

torch.save(
    {"dtype": "torch.bfloat16", "norms": norms, "scaling": False, "model": net.state_dict()}, "result.pt"
)
