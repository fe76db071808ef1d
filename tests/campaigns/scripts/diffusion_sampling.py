# run:
"""A denoising schedule: tables indexed on the device, noise from a CUDA generator, buffers."""

import torch
from torch import nn

steps = 10
betas = torch.linspace(0.01, 0.3, steps)


class Diffusion(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("alphas", torch.cumprod(1 - betas, 0))
        self.net = nn.Sequential(nn.Linear(3, 32), nn.SiLU(), nn.Linear(32, 2))

    def noisy(self, x, t, noise):
        scale = self.alphas[t].unsqueeze(-1)
        return scale.sqrt() * x + (1 - scale).sqrt() * noise

    def forward(self, x, t):
        return self.net(torch.cat([x, t.unsqueeze(-1) / steps], -1))


torch.manual_seed(0)
model = Diffusion().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
data = torch.tensor([[1.0, -1.0], [1.0, 1.0]]).repeat(32, 1).cuda()
history = []
for _ in range(150):
    t = torch.randint(0, steps, (64,), device="cuda")
    noise = torch.randn_like(data)
    loss = nn.functional.mse_loss(model(model.noisy(data, t, noise), t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
assert sum(history[-20:]) < 0.8 * sum(history[:20])


@torch.no_grad()
def sample(seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    assert generator.device.type == "cuda"
    x = torch.randn(4, 2, device="cuda", generator=generator)
    for t in reversed(range(steps)):
        at = torch.full((4,), t, device="cuda", dtype=torch.long)
        alpha, beta = model.alphas[t], betas.to(x.device)[t]
        x = (x - beta / (1 - alpha).sqrt() * model(x, at)) / (1 - beta).sqrt()
    return x


assert torch.equal(sample(1), sample(1))
assert not torch.equal(sample(1), sample(2))
