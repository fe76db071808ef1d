"""pinned_inference on the CPU."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv1d(2, 3, 2), torch.nn.ReLU(), torch.nn.Flatten()).half().eval()
with torch.inference_mode():
    results = [model(torch.full((2, 2, 5), 0.5 * i, dtype=torch.float16)) for i in range(3)]
torch.save({"results": torch.stack(results).clone()}, "result.pt")
