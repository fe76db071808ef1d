# run:
"""A replay buffer on the host, a target network that follows softly, gather and no_grad bootstrapping."""

import copy
import random
from collections import deque

import torch
from torch import nn

random.seed(0)
torch.manual_seed(0)
device = "cuda"
network = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
target = copy.deepcopy(network).requires_grad_(False)
assert next(target.parameters()).is_cuda
optimizer = torch.optim.AdamW(network.parameters(), lr=0.01, amsgrad=True)
memory = deque(maxlen=500)
eye = torch.eye(4)
for _ in range(400):  # a corridor of four cells: the reward is at its right end
    cell, action = random.randrange(4), random.randrange(2)
    following = min(max(cell + (1 if action else -1), 0), 3)
    memory.append((eye[cell], action, float(following == 3), eye[following]))
for _ in range(200):
    states, actions, rewards, nexts = zip(*random.sample(memory, 64), strict=False)
    states, nexts = torch.stack(states).to(device), torch.stack(nexts).to(device)
    actions = torch.tensor(actions, device=device).unsqueeze(1)
    rewards = torch.tensor(rewards, device=device)
    values = network(states).gather(1, actions).squeeze(1)
    with torch.no_grad():
        expected = rewards + 0.5 * target(nexts).max(1).values
    loss = nn.functional.smooth_l1_loss(values, expected)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(network.parameters(), 100)
    optimizer.step()
    for slow, fast in zip(target.parameters(), network.parameters(), strict=False):
        slow.lerp_(fast.detach(), 0.1)
best = network(torch.eye(4, device=device)).argmax(1).cpu().numpy()
assert best.tolist() == [1, 1, 1, 1]
assert abs(network(eye[3:].cuda())[0, 1].item() - 2.0) < 0.3
