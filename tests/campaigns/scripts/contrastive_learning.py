# run:
"""In-batch negatives, a momentum encoder with a queue on the device, normalize and cross entropy."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
encoder = nn.Linear(8, 4, bias=False).cuda()
momentum = copy.deepcopy(encoder).requires_grad_(False)
bank = F.normalize(torch.randn(4, 32), dim=0).cuda()
pointer = torch.zeros(1, dtype=torch.long).cuda()
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.5)
losses = []
for _ in range(40):
    x = torch.randn(8, 8)
    one, two = (x + 0.1 * torch.randn_like(x)).cuda(), (x + 0.1 * torch.randn_like(x)).cuda()
    query = F.normalize(encoder(one), dim=1)
    with torch.no_grad():
        for slow, fast in zip(momentum.parameters(), encoder.parameters(), strict=False):
            slow.data = slow.data * 0.9 + fast.data * 0.1
        key = F.normalize(momentum(two[torch.randperm(8).cuda()[:8].sort().indices.sort().values]), dim=1)
    positive = torch.einsum("nc,nc->n", query, key).unsqueeze(-1)
    negative = torch.einsum("nc,ck->nk", query, bank.clone().detach())
    labels = torch.zeros(8, dtype=torch.long).cuda()
    loss = F.cross_entropy(torch.cat([positive, negative], dim=1) / 0.2, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    start = int(pointer)
    bank[:, start : start + 8] = key.T
    pointer[0] = (start + 8) % 32
    losses.append(loss.item())
assert sum(losses[-5:]) < sum(losses[:5])
assert momentum.weight.is_cuda
assert bank.is_cuda
assert int(pointer) == 0
