"""Partial capture: torch.cuda.make_graphed_callables on a module inside an ordinary training loop."""

import torch

torch.manual_seed(3)
encoder = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.GELU()).cuda()
head = torch.nn.Linear(6, 2).cuda()
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)

sample = torch.randn(3, 4, device="cuda", requires_grad=True)
graphed = torch.cuda.make_graphed_callables(encoder, (sample,))

torch.manual_seed(4)
losses = []
for _ in range(3):
    x = torch.randn(3, 4, device="cuda")
    y = torch.randn(3, 2, device="cuda")
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.mse_loss(head(graphed(x)), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

torch.save({"losses": losses, "encoder": encoder.state_dict()}, "result.pt")
