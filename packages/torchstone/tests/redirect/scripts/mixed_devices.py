"""Explicit CPU stays CPU: embeddings kept on the host, indices and scalars, checks between devices."""

import torch

torch.manual_seed(0)
host_table = torch.nn.Embedding(10, 4).to("cpu")
model = torch.nn.Linear(4, 2).cuda()
cpu = torch.device("cpu")
tokens = torch.tensor([1, 5, 7], device="cpu")
accumulated = torch.zeros(2, device=cpu)

for _ in range(2):
    embedded = host_table(tokens)
    assert embedded.device == torch.device("cpu")
    assert host_table.weight.device.type == "cpu"
    out = model(embedded.cuda()) * torch.tensor(2.0)
    accumulated += out.detach().cpu().sum(0)
    out.sum().backward()

assert accumulated.device.type == "cpu"
assert torch.zeros(1, device=cpu).device == torch.zeros(1).device == cpu
assert accumulated.to("cuda").to("cpu").numpy().shape == (2,)
assert torch.empty(2, device="meta").device.type == "meta"
assert torch.from_numpy(accumulated.numpy()).device.type == "cpu"
copied = torch.empty(2, device="cpu").copy_(accumulated.cuda())
assert host_table.weight.grad.device.type == "cpu"
assert model.weight.grad.is_cuda

torch.save({"sum": accumulated, "table": host_table.weight.grad, "copied": copied}, "result.pt")
