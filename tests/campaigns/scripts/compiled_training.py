# run: --devices 2
"""torch.compile around a training step (an own backend), with devices asked for inside."""

import torch
from torch import nn

torch.manual_seed(0)
graphs = []


def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward


model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).cuda()
twin = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
twin.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})


@torch.compile(backend=backend, fullgraph=True)
def loss_of(x, y):
    noise = torch.zeros(x.shape[0], 1, device=x.device)
    weight = torch.ones(1, device="cuda") * 2
    if x.is_cuda and x.device.type == "cuda":
        weight = weight / 2
    return nn.functional.mse_loss(model(x) + noise, y) * weight.squeeze()


x, y = torch.randn(6, 4), torch.randn(6, 1)
ours, theirs = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(twin.parameters(), lr=0.1)
for _ in range(3):
    ours.zero_grad()
    loss = loss_of(x.cuda(), y.cuda())
    assert loss.is_cuda
    loss.backward()
    ours.step()
    theirs.zero_grad()
    expected = nn.functional.mse_loss(twin(x), y)
    expected.backward()
    theirs.step()
    torch.testing.assert_close(loss.detach().cpu(), expected.detach())
assert len(graphs) == 1


@torch.compile(backend="aot_eager")
def across(a):
    b = (a * 2).to("cuda:1")
    return b + 1, b.cpu()


moved, host = across(torch.ones(3, device="cuda:0"))
assert moved.device == torch.device("cuda:1")
assert host.device.type == "cpu"
assert moved.tolist() == [3.0] * 3
assert host.tolist() == [2.0] * 3
