"""Save a checkpoint, and resume from it with map_location in every form that is in use."""

import torch

torch.manual_seed(0)


def build():
    model = torch.nn.Linear(3, 3).cuda()
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2, 3, device="cuda")).pow(2).sum().backward()
    optimizer.step()


model, optimizer = build()
step(model, optimizer)
torch.save(
    {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.cuda.get_rng_state()},
    "checkpoint.pt",
)
step(model, optimizer)

device = torch.device("cuda", torch.cuda.current_device())
locations = {
    "none": None,
    "string": "cuda",
    "indexed": "cuda:0",
    "device": device,
    "cpu": "cpu",
    "cpu device": torch.device("cpu"),
    "dict": {"cuda:1": "cuda:0", "cpu": "cuda:0"},
    "function": lambda storage, location: storage.cuda(0),
    "keep": lambda storage, location: storage,
}
resumed = {}
for name, location in locations.items():
    checkpoint = torch.load("checkpoint.pt", map_location=location)
    weight = checkpoint["model"]["weight"]
    if name in ("cpu", "cpu device"):
        assert weight.device.type == "cpu"
    elif name != "keep":
        assert weight.is_cuda, name
        assert weight.device.type == device.type, name
    model_2, optimizer_2 = build()
    model_2.load_state_dict(checkpoint["model"])
    optimizer_2.load_state_dict(checkpoint["optimizer"])
    assert all(p.is_cuda for p in model_2.parameters())
    torch.cuda.set_rng_state(checkpoint["rng"].cpu())
    step(model_2, optimizer_2)
    resumed[name] = model_2.state_dict()

torch.save({"direct": model.state_dict(), "resumed": resumed}, "result.pt")
