# run: --devices 2 -m torch.distributed.run --nproc-per-node 2 --standalone
"""Every common collective on CUDA tensors over "cpu:gloo,cuda:nccl"."""

import torch
import torch.distributed as dist

dist.init_process_group("cpu:gloo,cuda:nccl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank % torch.cuda.device_count())
here = torch.device("cuda", rank)

x = torch.full((3,), rank + 1.0, device="cuda")
dist.all_reduce(x)
assert x.tolist() == [3.0] * 3
assert x.device == here
dist.all_reduce(x, op=dist.ReduceOp.MAX)
work = dist.all_reduce(x, op=dist.ReduceOp.SUM, async_op=True)
work.wait()
assert x.tolist() == [6.0] * 3

y = torch.arange(4, device=here) * (rank + 1)
dist.broadcast(y, src=1)
assert y.tolist() == [0, 2, 4, 6]
parts = [torch.empty(2, device=here) for _ in range(size)]
dist.all_gather(parts, torch.full((2,), float(rank), device=here))
assert [part.tolist() for part in parts] == [[0.0, 0.0], [1.0, 1.0]]
assert {part.device for part in parts} == {here}
flat = torch.empty(4, device=here)
dist.all_gather_into_tensor(flat, torch.full((2,), float(rank), device=here))
assert flat.tolist() == [0.0, 0.0, 1.0, 1.0]

z = torch.ones(2, device=here) * (rank + 1)
dist.reduce(z, dst=0)
assert rank != 0 or z.tolist() == [3.0, 3.0]
mine = torch.empty(2, device=here)
dist.scatter(
    mine, [torch.full((2,), 5.0 + i, device=here) for i in range(size)] if rank == 0 else None, src=0
)
assert mine.tolist() == [5.0 + rank] * 2
if rank == 0:
    dist.send(torch.arange(3.0, device=here), dst=1)
else:
    got = torch.empty(3, device=here)
    dist.recv(got, src=0)
    assert got.tolist() == [0.0, 1.0, 2.0]
    assert got.device == here
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank, "tensor": torch.ones(1, device=here)})
assert [one["rank"] for one in objects] == [0, 1]
assert [one["tensor"].device.type for one in objects] == ["cuda", "cuda"]
message = [{"seed": 42}] if rank == 0 else [None]
dist.broadcast_object_list(message, src=0, device=here)
assert message == [{"seed": 42}]
group = dist.new_group([0, 1], backend="nccl")
dist.all_reduce(z, group=group)
on_host = torch.ones(1)
dist.all_reduce(on_host)
assert on_host.item() == 2.0
assert on_host.device.type == "cpu"
dist.barrier()
dist.destroy_process_group()
