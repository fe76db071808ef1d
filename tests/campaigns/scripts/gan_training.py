# run:
"""Two networks, two optimizers, labels made on the device, and a legacy default tensor type."""

import torch
from torch import nn

cuda = torch.cuda.is_available()
assert cuda
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
torch.manual_seed(4)
generator = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)).cuda()
critic = nn.Sequential(nn.Linear(1, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1), nn.Sigmoid()).cuda()
loss = nn.BCELoss().cuda()
g_optimizer = torch.optim.Adam(generator.parameters(), lr=0.01, betas=(0.5, 0.999))
d_optimizer = torch.optim.Adam(critic.parameters(), lr=0.01, betas=(0.5, 0.999))
for _ in range(150):
    real = (torch.randn(64, 1) * 0.1 + 3.0).type(Tensor)
    valid, fake = Tensor(64, 1).fill_(1.0), Tensor(64, 1).fill_(0.0)
    assert valid.is_cuda
    assert real.is_cuda
    made = generator(torch.randn(64, 2).type(Tensor))
    g_optimizer.zero_grad()
    loss(critic(made), valid).backward()
    g_optimizer.step()
    d_optimizer.zero_grad()
    ((loss(critic(real), valid) + loss(critic(made.detach()), fake)) / 2).backward()
    d_optimizer.step()
mean = generator(torch.randn(256, 2, device="cuda")).mean().item()
assert 1.5 < mean < 6.0, mean
