"""Whole-step capture in a CUDA graph with static buffers, replayed on new data."""

import torch

torch.manual_seed(0)
device = torch.device("cuda")
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
static_input = torch.zeros(5, 4, device=device)
static_target = torch.zeros(5, 1, device=device)

side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(static_input), static_target)
        loss.backward()
        optimizer.step()
torch.cuda.current_stream().wait_stream(side)

graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    static_loss = torch.nn.functional.mse_loss(model(static_input), static_target)
    static_loss.backward()
    optimizer.step()

losses = []
address = static_loss.data_ptr()
for i in range(3):
    static_input.copy_(torch.full((5, 4), 0.1 * (i + 1)))
    static_target.copy_(torch.full((5, 1), float(i)))
    graph.replay()
    losses.append(static_loss.item())
assert static_loss.data_ptr() == address

doubled = torch.zeros(3, device=device)
source = torch.zeros(3, device=device)
pool = torch.cuda.graph_pool_handle()
manual = torch.cuda.CUDAGraph()
manual.capture_begin(pool=pool)
torch.mul(source, 2, out=doubled)
view = doubled[1:].add(1)
manual.capture_end()
source.copy_(torch.tensor([1.0, 2.0, 3.0]))
manual.replay()

torch.save({"losses": losses, "doubled": doubled, "view": view}, "result.pt")
