# run:
"""Message passing with index_add_, scatter_reduce and degrees, checked against a dense matrix."""

import torch

torch.manual_seed(0)
edges = torch.tensor([[0, 1, 2, 2, 3, 4], [1, 2, 0, 3, 4, 0]])
features = torch.randn(5, 3)
source, target = edges.cuda()
x = features.cuda().requires_grad_()
degree = torch.zeros(5, device="cuda").scatter_add_(0, target, torch.ones(6, device="cuda")).clamp(min=1)
messages = x[source]
summed = torch.zeros_like(x).index_add(0, target, messages)
mean = summed / degree.unsqueeze(-1)
most = torch.full((5, 3), -1e9, device="cuda").scatter_reduce(
    0, target.unsqueeze(-1).expand(-1, 3), messages, reduce="amax"
)
adjacency = torch.zeros(5, 5)
adjacency[edges[1], edges[0]] = 1
expected = adjacency @ features / adjacency.sum(1, keepdim=True).clamp(min=1)
torch.testing.assert_close(mean.detach().cpu(), expected)
for node in range(5):
    neighbours = features[adjacency[node].bool()]
    torch.testing.assert_close(most[node].detach().cpu(), neighbours.amax(0))
mean.sum().backward()
weights = (adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)).sum(0)
torch.testing.assert_close(x.grad.cpu(), weights.unsqueeze(1).expand(5, 3))
