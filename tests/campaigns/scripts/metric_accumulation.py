# run: --devices 2
"""Running metrics on the device: confusion matrices, averages, and sums over devices at the end."""

import torch

torch.manual_seed(0)
predictions, targets = torch.randint(0, 3, (40,)), torch.randint(0, 3, (40,))
matrices = [torch.zeros(3, 3, dtype=torch.long, device=f"cuda:{i}") for i in range(2)]
for step, (p, t) in enumerate(zip(predictions.split(5), targets.split(5), strict=True)):
    device = matrices[step % 2].device
    index = (t.to(device) * 3 + p.to(device, non_blocking=True)).view(-1)
    matrices[step % 2] += torch.bincount(index, minlength=9).view(3, 3)
total = sum(one.to("cuda:0") for one in matrices)
assert total.device.index == 0
expected = torch.zeros(3, 3, dtype=torch.long)
for p, t in zip(predictions.tolist(), targets.tolist(), strict=True):
    expected[t, p] += 1
assert torch.equal(total.cpu(), expected)
accuracy = total.diagonal().sum().float() / total.sum()
assert abs(accuracy.item() - (predictions == targets).float().mean().item()) < 1e-6
try:
    matrices[0] + matrices[1]
except RuntimeError as error:
    message = str(error)
assert "found at least two devices, cuda:0 and cuda:1" in message
