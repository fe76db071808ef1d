# run:
"""Pairwise overlaps, non-maximum suppression by hand, boolean masks and padding of ragged lists."""

import torch
from torch.nn.utils.rnn import pad_sequence

boxes = torch.tensor([[0, 0, 4, 4], [1, 1, 5, 5], [8, 8, 9, 9], [0, 0, 4, 3.9]], device="cuda")
scores = torch.tensor([0.9, 0.6, 0.8, 0.7], device="cuda")


def overlaps(a, b):
    def area(box):
        return (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])

    low = torch.maximum(a[:, None, :2], b[None, :, :2])
    high = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inner = (high - low).clamp(min=0).prod(-1)
    return inner / (area(a)[:, None] + area(b)[None] - inner)


iou = overlaps(boxes, boxes)
assert iou.is_cuda
assert torch.allclose(iou.diagonal(), torch.ones(4, device="cuda"))
assert abs(iou[0, 1].item() - 9 / 23) < 1e-6
order = scores.argsort(descending=True)
keep = []
while order.numel() > 0:
    first = order[0]
    keep.append(first.item())
    order = order[1:][iou[first, order[1:]] < 0.3]
assert keep == [0, 2]
chosen = boxes[scores > 0.65]
assert chosen.shape == (3, 4)
padded = pad_sequence([torch.ones(n, device="cuda") for n in (1, 3, 2)], batch_first=True, padding_value=-1)
assert padded.is_cuda
assert padded.tolist() == [[1, -1, -1], [1, 1, 1], [1, 1, -1]]
grid = torch.stack(
    torch.meshgrid(torch.arange(2, device="cuda"), torch.arange(3, device="cuda"), indexing="ij"), -1
)
assert grid.is_cuda
assert grid.shape == (2, 3, 2)
resized = torch.nn.functional.interpolate(
    boxes.view(1, 1, 4, 4), scale_factor=2, mode="bilinear", align_corners=False
)
assert resized.shape == (1, 1, 8, 8)
assert resized.is_cuda
