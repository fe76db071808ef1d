# run:
"""Every way to move a tensor copies it between devices and returns it itself on its own device."""

import numpy as np
import torch

for move in (
    lambda x: x.cuda(),
    lambda x: x.to("cuda"),
    lambda x: x.to(torch.device("cuda", 0), non_blocking=True),
    lambda x: x.to(0),
    lambda x: x.cuda(torch.cuda.current_device()),
    lambda x: torch.tensor(x.numpy(), device="cuda"),
    lambda x: torch.as_tensor(x.numpy(), device="cuda"),
    lambda x: torch.empty_like(x, device="cuda").copy_(x),
    lambda x: x.type(torch.cuda.FloatTensor),
):
    x = torch.zeros(3)
    y = move(x)
    x += 1
    assert y.is_cuda
    assert y.tolist() == [0.0] * 3
    z = y.cpu()
    y += 5
    assert not z.is_cuda
    assert z.tolist() == [0.0] * 3
    assert y.cuda() is y
    assert z.cpu() is z
    array = y.cpu().numpy()
    y += 1
    assert array.tolist() == [5.0] * 3
try:
    np.sum(torch.ones(2, device="cuda").numpy())
except TypeError as error:
    assert "can't convert cuda:0 device type tensor to numpy" in str(error)
else:
    raise AssertionError("NumPy read the memory of CUDA")
