# run:
"""Values that leave the device: item, tolist, formatting, bool, len, iteration, NumPy and pickles."""

import pickle

import numpy as np
import torch

x = torch.arange(6.0, device="cuda").view(2, 3)
assert float(x.sum()) == 15.0
assert int(x.max()) == 5
assert bool(x[0, 1] == 1)
assert f"{x[1, 2]:.2f}" == "5.00"
assert len(x) == 2
assert [row.tolist() for row in x] == [[0, 1, 2], [3, 4, 5]]
assert 4.0 in x
assert x.argmax().item() == 5
assert np.array_equal(x.detach().cpu().numpy(), np.arange(6).reshape(2, 3))
assert np.array_equal(np.array(x.tolist()), x.cpu().numpy())
assert x.numpy(force=True).sum() == 15
again = pickle.loads(pickle.dumps(x))
assert again.is_cuda
assert torch.equal(again, x)
again += 1
assert x.sum().item() == 15.0
values, counts = torch.unique(torch.tensor([1, 2, 1], device="cuda"), return_counts=True)
assert values.is_cuda
assert dict(zip(values.tolist(), counts.tolist(), strict=False)) == {1: 2, 2: 1}
assert x.nonzero().is_cuda
assert x.nonzero().shape == (5, 2)
assert torch.histc(x, 3, 0, 6).tolist() == [2.0, 2.0, 2.0]
total = 0
for step in range(3):
    total += x[0, step]
assert total.is_cuda
assert total.item() == 3.0
shape = torch.tensor(x.shape, device="cuda")
assert torch.zeros(*shape.tolist()).shape == x.shape
