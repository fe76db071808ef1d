# run:
"""REINFORCE on a two-armed bandit: actions sampled on the device, rewards computed on the host."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
policy = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()
optimizer = torch.optim.Adam(policy.parameters(), lr=0.05)
for _episode in range(60):
    state = torch.ones(16, 1).cuda()
    chosen = Categorical(logits=policy(state))
    action = chosen.sample()
    assert action.is_cuda
    rewards = [1.0 if one == 1 else 0.0 for one in action.tolist()]
    returns = torch.tensor(rewards, device="cuda")
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    loss = -(chosen.log_prob(action) * returns).mean() - 0.01 * chosen.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
assert policy(torch.ones(1, 1, device="cuda")).softmax(1)[0, 1].item() > 0.8
