# run: --devices 3
"""Current devices: contexts nest, device_of follows tensors, threads start at 0, defaults are obeyed."""

import threading

import torch

assert torch.cuda.device_count() == 3
with torch.cuda.device(2):
    x = torch.ones(1, device="cuda")
    assert x.get_device() == torch.cuda.current_device() == 2
    with torch.cuda.device("cuda:1"), torch.cuda.device_of(x):
        assert torch.cuda.current_device() == 2
    with torch.cuda.device(-1):
        assert torch.cuda.current_device() == 2
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.cuda.current_device()))
    thread.start()
    thread.join()
    assert found == [0]
assert torch.cuda.current_device() == 0
torch.cuda.set_device("cuda:1")
assert torch.randn(2).cuda().device.index == 1
assert x.new_zeros(3).device.index == 2
assert torch.zeros_like(x).device.index == 2
with torch.device("cuda"):
    assert torch.zeros(1).device.index == 1
torch.cuda.set_device(0)
y = torch.nn.Linear(2, 2, device="cuda:2")
assert {p.device.index for p in y.parameters()} == {2}
assert {str(torch.device("cuda", i)) for i in range(3)} == {"cuda:0", "cuda:1", "cuda:2"}
assert torch.device("cuda:1").index == 1
assert torch.device(2) == torch.device("cuda:2")
assert len({torch.cuda.get_device_name(i) for i in range(3)}) == 1
assert torch.cuda.can_device_access_peer(0, 2)
