"""checkpoint_resume on the CPU: every way to resume leads to the same weights."""

import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).pow(2).sum().backward()
    optimizer.step()

forms = ("none", "string", "indexed", "device", "cpu", "cpu device", "dict", "function", "keep")
torch.save(
    {"direct": model.state_dict(), "resumed": {name: model.state_dict() for name in forms}}, "result.pt"
)
