"""graphed_callables on the CPU: the module itself."""

import torch

torch.manual_seed(3)
encoder = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.GELU())
head = torch.nn.Linear(6, 2)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)

torch.manual_seed(4)
losses = []
for _ in range(3):
    x, y = torch.randn(3, 4), torch.randn(3, 2)
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.mse_loss(head(encoder(x)), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

torch.save({"losses": losses, "encoder": encoder.state_dict()}, "result.pt")
