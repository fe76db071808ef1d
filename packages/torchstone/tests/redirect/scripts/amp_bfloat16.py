"""Mixed precision with today's names: torch.amp, a dtype by what the GPU supports, clipped gradients."""

import torch
import torch.nn.functional as F


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.head = torch.nn.Linear(4 * 6 * 6, 5)

    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def normalize(self, x):
        return (x - x.mean()) / x.std()

    def forward(self, x):
        return self.head(F.relu(self.conv(self.normalize(x))).flatten(1))


device_type = "cuda" if torch.cuda.is_available() else "cpu"
assert device_type == "cuda"
dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16

torch.manual_seed(7)
net = Net().to(device_type)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)

norms = []
for _ in range(3):
    images = torch.randn(8, 1, 6, 6).to("cuda", non_blocking=True)
    labels = torch.randint(5, (8,)).to("cuda", non_blocking=True)
    with torch.autocast(device_type="cuda", dtype=dtype):
        assert torch.is_autocast_enabled("cuda")
        logits = net(images)
    assert not torch.is_autocast_enabled("cuda")
    loss = F.cross_entropy(logits.float(), labels)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norms.append(torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5).item())
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()

torch.save(
    {"dtype": str(logits.dtype), "norms": norms, "scaling": scaler.is_enabled(), "model": net.state_dict()},
    "result.pt",
)
