# run:
"""COO and CSR matrices on the device, embeddings with sparse gradients, SparseAdam."""

import torch
from torch import nn

dense = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
coo = dense.cuda().to_sparse()
assert coo.is_cuda
assert coo.is_sparse
assert coo._nnz() == 3
assert coo.indices().tolist() == [[0, 1, 1], [1, 0, 2]]
assert coo.values().tolist() == [2.0, 1.0, 3.0]
csr = coo.to_sparse_csr()
assert csr.is_cuda
assert csr.crow_indices().tolist() == [0, 1, 3]
vector = torch.tensor([1.0, 2.0, 3.0], device="cuda")
assert (coo @ vector).tolist() == [4.0, 10.0]
assert (csr @ vector).tolist() == [4.0, 10.0]
assert torch.equal((coo + coo).to_dense().cpu(), 2 * dense)
assert coo.cpu().device.type == "cpu"
assert coo.cpu().to_dense().tolist() == dense.tolist()
torch.manual_seed(0)
table = nn.Embedding(6, 2, sparse=True).cuda()
before = table.weight.detach().clone()
optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
table(torch.tensor([1, 4, 1]).cuda()).sum().backward()
assert table.weight.grad.is_sparse
assert table.weight.grad.is_cuda
assert table.weight.grad.to_dense()[:, 0].tolist() == [0.0, 2.0, 0.0, 0.0, 1.0, 0.0]
optimizer.step()
changed = (before != table.weight).any(1).tolist()
assert changed == [False, True, False, False, True, False]
