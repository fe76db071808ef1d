"""static_graph on the CPU: warm-up, then one ordinary step for each replay.

On a GPU the capture itself computes nothing.
"""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step(x, y):
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


for _ in range(2):
    step(torch.zeros(5, 4), torch.zeros(5, 1))
losses = [step(torch.full((5, 4), 0.1 * (i + 1)), torch.full((5, 1), float(i))) for i in range(3)]

torch.save(
    {"losses": losses, "doubled": torch.tensor([2.0, 4.0, 6.0]), "view": torch.tensor([5.0, 7.0])},
    "result.pt",
)
