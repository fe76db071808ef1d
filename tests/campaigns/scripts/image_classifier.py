# run:
"""Convolutions in channels_last with cudnn flags, batch norm in both modes, and top-k accuracy."""

import torch
from torch import nn

torch.backends.cudnn.benchmark = True
torch.backends.cudnn.deterministic = True
assert torch.backends.cudnn.benchmark
assert torch.backends.cudnn.deterministic
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.ReLU(inplace=True),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(128, 4),
).to("cuda", memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
criterion = nn.CrossEntropyLoss(label_smoothing=0.05).cuda()
y = torch.arange(32) % 4
x = torch.randn(32, 1, 8, 8) * 0.3
for row, label in enumerate(y.tolist()):
    x[row, 0, label * 2] += 1.0
for _ in range(30):
    images = x.cuda(non_blocking=True).to(memory_format=torch.channels_last)
    target = y.cuda(non_blocking=True)
    loss = criterion(model(images), target)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    scheduler.step()
assert optimizer.param_groups[0]["lr"] < 1e-3
model.eval()
with torch.inference_mode():
    output = model(x.cuda())
    _, predicted = output.topk(2, 1)
    correct = predicted.t().eq(y.cuda().view(1, -1).expand(2, -1))
    accuracy = correct[:1].reshape(-1).float().sum(0).mul_(100.0 / 32)
assert accuracy.item() > 90
assert accuracy.is_cuda
assert model[1].running_mean.is_cuda
assert model[1].num_batches_tracked.item() == 30
