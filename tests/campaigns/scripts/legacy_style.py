# run:
"""Code of the age of Variable: typed constructors, .type casts, volatile loops replaced by no_grad."""

import torch
from torch.autograd import Variable

dtype = torch.cuda.FloatTensor
x = Variable(torch.randn(8, 3).type(dtype), requires_grad=False)
w = Variable(torch.zeros(3, 1).type(dtype), requires_grad=True)
target = x.mm(torch.ones(3, 1).cuda())
for _ in range(200):
    loss = (x.mm(w) - target).pow(2).mean()
    loss.backward()
    w.data -= 0.1 * w.grad.data
    w.grad.data.zero_()
torch.testing.assert_close(w.data.cpu(), torch.ones(3, 1), rtol=1e-2, atol=1e-2)
index = torch.cuda.LongTensor([2, 0])
assert x.index_select(0, index).is_cuda
assert index.dtype is torch.int64
mask = torch.cuda.ByteTensor([1, 0, 1])
assert mask.bool().sum().item() == 2
assert torch.cuda.IntTensor(2, 3).zero_().sum().item() == 0
assert isinstance(index, torch.cuda.LongTensor)
assert not isinstance(index.cpu(), torch.cuda.LongTensor)
y = torch.ones(2).double().type_as(x)
assert y.is_cuda
assert y.dtype is torch.float32
assert x.new(2, 2).fill_(3).sum().item() == 12.0
assert x.new([1, 2]).is_cuda
assert x.cpu().type("torch.cuda.DoubleTensor").dtype is torch.float64
