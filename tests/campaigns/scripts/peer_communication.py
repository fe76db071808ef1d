# run: --devices 4
"""torch.cuda.comm between four devices: broadcast, scatter, gather, reductions, and their out= forms."""

import torch
import torch.cuda.comm as comm

everyone = list(range(torch.cuda.device_count()))
assert everyone == [0, 1, 2, 3]
x = torch.arange(12.0, device="cuda").view(4, 3)
copies = comm.broadcast(x, everyone)
copies[1].add_(1)
assert x.sum().item() == 66.0
assert copies[1].sum().item() == 78.0
assert [one.get_device() for one in copies] == everyone

outs = [torch.empty(4, 3, device=f"cuda:{index}") for index in (1, 3)]
comm.broadcast(x, out=outs)
assert all(torch.equal(one.cpu(), x.cpu()) for one in outs)

chunks = comm.scatter(x, everyone, dim=0)
assert [one.tolist() for one in chunks] == [[row] for row in x.tolist()]
uneven = comm.scatter(x, [2, 0], chunk_sizes=[3, 1])
assert [(one.get_device(), len(one)) for one in uneven] == [(2, 3), (0, 1)]
assert torch.equal(comm.gather(chunks, destination=3).cpu(), x.cpu())
assert comm.gather(chunks, destination=torch.device("cpu")).device.type == "cpu"
out = torch.empty(4, 3, device="cuda:2")
comm.gather(chunks, out=out)
assert torch.equal(out.cpu(), x.cpu())

total = comm.reduce_add([torch.full((2,), float(index), device=f"cuda:{index}") for index in everyone], 1)
assert total.device.index == 1
assert total.tolist() == [6.0, 6.0]
pairs = [[torch.ones(2, device=f"cuda:{i}"), torch.full((3,), 2.0, device=f"cuda:{i}")] for i in everyone]
first, second = comm.reduce_add_coalesced(pairs, destination=0)
assert first.tolist() == [4.0, 4.0]
assert second.tolist() == [8.0, 8.0, 8.0]
coalesced = comm.broadcast_coalesced(pairs[0], [0, 2])
assert [[one.get_device() for one in row] for row in coalesced] == [[0, 0], [2, 2]]
try:
    comm.broadcast(x)
except RuntimeError as error:
    assert "Exactly one of" in str(error)
else:
    raise AssertionError("neither devices nor out were given")
