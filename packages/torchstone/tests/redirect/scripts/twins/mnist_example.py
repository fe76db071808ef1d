"""mnist_example on the CPU."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
data = TensorDataset(torch.randn(12, 1, 8, 8), torch.randint(10, (12,)))
conv, dropout, fc = nn.Conv2d(1, 4, 3), nn.Dropout(0.25), nn.Linear(36, 10)
net = nn.ModuleDict({"conv1": conv, "dropout": dropout, "fc1": fc})
optimizer = torch.optim.Adadelta(net.parameters(), lr=0.5)


def forward(x):
    hidden = F.max_pool2d(F.relu(conv(x)), 2)
    return F.log_softmax(fc(dropout(hidden).flatten(1)), dim=1)


history = []
for epoch in range(2):
    optimizer.param_groups[0]["lr"] = 0.5 * 0.7**epoch
    net.train()
    total = 0.0
    for x, y in DataLoader(data, batch_size=4, shuffle=True):
        optimizer.zero_grad()
        loss = F.nll_loss(forward(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    net.eval()
    with torch.no_grad():
        loss, correct = 0.0, 0
        for x, y in DataLoader(data, batch_size=6):
            output = forward(x)
            loss += F.nll_loss(output, y, reduction="sum").item()
            correct += (output.argmax(dim=1) == y).sum().item()
    history.append([total, loss, correct])

torch.save({"history": torch.tensor(history), "model": net.state_dict()}, "result.pt")
