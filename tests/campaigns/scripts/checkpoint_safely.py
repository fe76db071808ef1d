# run:
"""Weights-only files, storages shared within a file, strict loading errors and module-level save."""

import io

import torch
from torch import nn

model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).cuda()
model[1].weight = model[0].weight
file = io.BytesIO()
torch.save(model.state_dict(), file)
file.seek(0)
state = torch.load(file, weights_only=True)
assert state["0.weight"].data_ptr() == state["1.weight"].data_ptr()
assert all(value.is_cuda for value in state.values())
try:
    nn.Linear(2, 2).cuda().load_state_dict(state)
except RuntimeError as error:
    assert "Missing key(s)" in str(error)
    assert "Unexpected key(s)" in str(error)
else:
    raise AssertionError("a strange state was loaded")
file = io.BytesIO()
torch.save(model, file)
file.seek(0)
loaded = torch.load(file, map_location="cuda", weights_only=False)
x = torch.randn(3, 2, device="cuda")
assert torch.equal(loaded(x), model(x))
cpu_model = nn.Linear(2, 2)
cpu_model.load_state_dict({"weight": state["0.weight"], "bias": state["0.bias"]})
assert cpu_model.weight.device.type == "cpu"
