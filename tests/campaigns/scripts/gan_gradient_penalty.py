# run:
"""A gradient penalty: autograd.grad with create_graph, differentiated again."""

import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).cuda()
twin = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
twin.load_state_dict({name: value.cpu() for name, value in critic.state_dict().items()})
real, fake, alpha = torch.randn(6, 3), torch.randn(6, 3), torch.rand(6, 1)


def penalty(critic, real, fake, alpha):
    between = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    output = critic(between)
    (gradient,) = torch.autograd.grad(
        outputs=output,
        inputs=between,
        grad_outputs=torch.ones(output.size(), device=output.device),
        create_graph=True,
        retain_graph=True,
    )
    assert gradient.device == between.device
    return ((gradient.norm(2, dim=1) - 1) ** 2).mean()


ours = penalty(critic, real.cuda(), fake.cuda(), alpha.cuda())
theirs = penalty(twin, real, fake, alpha)
torch.testing.assert_close(ours.cpu(), theirs)
ours.backward()
theirs.backward()
for p, q in zip(critic.parameters(), twin.parameters(), strict=False):
    if q.grad is not None:
        torch.testing.assert_close(p.grad.cpu(), q.grad)
