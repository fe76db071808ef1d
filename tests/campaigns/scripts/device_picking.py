# run:
"""The ways in which scripts pick a device, and what the device says of itself."""

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
parser.add_argument("--gpu", type=int, default=0)
args = parser.parse_args([])
args.cuda = not args.no_cuda and torch.cuda.is_available()
assert args.cuda
device = torch.device("cuda" if args.cuda else "cpu")
for other in (
    torch.device(f"cuda:{args.gpu}"),
    torch.device("cuda", args.gpu),
    torch.device(args.gpu),
    torch.device(type="cuda", index=0),
    torch.ones(1, device=device).device,
    torch.device("cuda", torch.cuda.current_device()),
):
    assert other.type == "cuda"
    assert other.index == 0
    assert str(other) == "cuda:0"
assert device == torch.device("cuda") != torch.device("cpu")
assert {device: 1}[torch.device("cuda")] == 1
assert torch.cuda.device_count() == 1
assert torch.cuda.current_device() == 0
properties = torch.cuda.get_device_properties(device)
assert properties.total_memory > 0
assert properties.multi_processor_count >= 1
assert isinstance(torch.cuda.get_device_name(0), str)
assert torch.accelerator.current_accelerator().type == "cuda"
kwargs = {"num_workers": 0, "pin_memory": True} if args.cuda else {}
loader = torch.utils.data.DataLoader(torch.arange(4), **kwargs)
assert sum(one.to(device).item() for one in loader) == 6
x = torch.randn(2, 2).to(device)
assert repr(torch.ones(1).to(device)) == "tensor([1.], device='cuda:0')"
assert x.type() == "torch.cuda.FloatTensor"
assert isinstance(x, torch.cuda.FloatTensor)
for wrong in ("cuda:x", "cuda:-1", "gpu"):
    try:
        torch.device(wrong)
    except RuntimeError:
        pass
    else:
        raise AssertionError(f"{wrong} is not a device")
