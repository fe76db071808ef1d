# run:
"""A training step captured as a CUDA graph and replayed on new data."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).cuda()
twin = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
static_x, static_y = torch.randn(6, 4, device="cuda"), torch.randn(6, 1, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        nn.functional.mse_loss(model(static_x), static_y).backward()
        optimizer.step()
torch.cuda.current_stream().wait_stream(side)
twin.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    static_loss = nn.functional.mse_loss(model(static_x), static_y)
    static_loss.backward()
    optimizer.step()
for name, value in twin.state_dict().items():
    assert torch.equal(model.state_dict()[name].cpu(), value), "capturing executed"
plain = torch.optim.SGD(twin.parameters(), lr=0.05)
for _ in range(4):
    x, y = torch.randn(6, 4), torch.randn(6, 1)
    static_x.copy_(x)
    static_y.copy_(y)
    graph.replay()
    plain.zero_grad()
    loss = nn.functional.mse_loss(twin(x), y)
    loss.backward()
    plain.step()
    torch.testing.assert_close(static_loss.detach().cpu(), loss.detach())
for ours, theirs in zip(model.parameters(), twin.parameters(), strict=False):
    torch.testing.assert_close(ours.detach().cpu(), theirs.detach())
