# run:
"""A variational autoencoder: reparametrization with randn_like, a KL term, and samples moved to the CPU."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.mu, self.logvar, self.decoder = (
            nn.Linear(6, 12),
            nn.Linear(12, 2),
            nn.Linear(12, 2),
            nn.Linear(2, 6),
        )

    def forward(self, x):
        h = torch.tanh(self.encoder(x))
        mu, logvar = self.mu(h), self.logvar(h)
        noise = torch.randn_like(mu)
        assert noise.device == x.device
        return torch.sigmoid(self.decoder(mu + noise * torch.exp(0.5 * logvar))), mu, logvar


device = torch.device("cuda:0")
model = VAE().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
data = (torch.arange(6) < torch.randint(1, 6, (64, 1))).float()
history = []
for _ in range(60):
    x = data.to(device)
    output, mu, logvar = model(x)
    divergence = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    loss = F.binary_cross_entropy(output, x, reduction="sum") + divergence
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item() / len(x))
assert history[-1] < 0.85 * history[0]
with torch.no_grad():
    sample = torch.sigmoid(model.decoder(torch.randn(3, 2).to(device))).cpu()
assert sample.device.type == "cpu"
assert sample.numpy().shape == (3, 6)
normal = torch.distributions.Normal(mu.detach(), logvar.detach().exp().sqrt())
prior = torch.distributions.Normal(torch.zeros_like(mu), torch.ones_like(mu))
kl = torch.distributions.kl_divergence(normal, prior).sum()
torch.testing.assert_close(kl.cpu(), divergence.detach().cpu(), rtol=1e-4, atol=1e-3)
