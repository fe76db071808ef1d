# run:
"""Attention over a sparse adjacency: coo matrices, sparse softmax, and torch.sparse.mm with gradients."""

import torch

torch.manual_seed(0)
index = torch.tensor([[0, 0, 1, 2, 2], [1, 2, 0, 1, 2]], device="cuda")
weights = torch.randn(5, device="cuda", requires_grad=True)
adjacency = torch.sparse_coo_tensor(index, weights, (3, 3)).coalesce()
assert adjacency.is_cuda
assert adjacency.is_sparse
assert adjacency.indices().is_cuda
x = torch.randn(3, 2, device="cuda", requires_grad=True)
attention = torch.sparse.softmax(adjacency, dim=1)
output = torch.sparse.mm(attention, x)
dense = torch.full((3, 3), float("-inf"))
dense[index.cpu()[0], index.cpu()[1]] = weights.detach().cpu()
w = dense.requires_grad_()
y = x.detach().cpu().requires_grad_()
expected = torch.softmax(w, 1) @ y
torch.testing.assert_close(output.detach().cpu(), expected.detach())
output.square().sum().backward()
expected.square().sum().backward()
torch.testing.assert_close(x.grad.cpu(), y.grad)
torch.testing.assert_close(weights.grad.cpu(), w.grad[index.cpu()[0], index.cpu()[1]])
