# run: --devices 2
"""Checkpoints in every form of map_location; the resumed run takes the same step."""

import torch
from torch import nn


def make():
    torch.manual_seed(0)
    model = nn.Linear(3, 2).to("cuda:1")
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def step(model, optimizer, x):
    optimizer.zero_grad()
    model(x.to(next(model.parameters()).device)).square().sum().backward()
    optimizer.step()


x = torch.randn(4, 3)
model, optimizer = make()
step(model, optimizer, x)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}, "checkpoint.pt")
step(model, optimizer, x)
expected = model.weight.detach().cpu()
for where, device in (
    (None, "cuda:1"),
    ("cpu", "cpu"),
    ("cuda:0", "cuda:0"),
    (torch.device("cuda", 1), "cuda:1"),
    ({"cuda:1": "cuda:0"}, "cuda:0"),
    (lambda storage, location: storage, "cpu"),
    (lambda storage, location: storage.cuda(0), "cuda:0"),
):
    state = torch.load("checkpoint.pt", map_location=where)
    assert str(state["model"]["weight"].device) == device, (where, state["model"]["weight"].device)
    model, optimizer = make()
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    assert optimizer.state[model.weight]["exp_avg"].device == torch.device("cuda:1")
    step(model, optimizer, x)
    assert torch.equal(model.weight.detach().cpu(), expected)
