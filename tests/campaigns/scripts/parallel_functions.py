# run: --devices 2
"""replicate, scatter, parallel_apply and gather, called one by one, with gradients through all of them."""

import torch
from torch import nn
from torch.nn.parallel import gather, parallel_apply, replicate, scatter

torch.manual_seed(1)
module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).cuda()
module.eval()
x = torch.randn(6, 4, device="cuda", requires_grad=True)

replicas = replicate(module, [0, 1])
assert [next(one.parameters(), one[0].weight).device.index for one in replicas] == [0, 1]
parts = scatter(x, [0, 1])
assert [(part.device.index, tuple(part.shape)) for part in parts] == [(0, (3, 4)), (1, (3, 4))]
outputs = parallel_apply(replicas, [(part,) for part in parts])
joined = gather(outputs, 1)
assert joined.device == torch.device("cuda:1")
joined.square().sum().backward()

twin = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
twin.load_state_dict({name: value.cpu() for name, value in module.state_dict().items()})
y = x.detach().cpu().requires_grad_()
expected = twin(y)
torch.testing.assert_close(joined.cpu(), expected)
expected.square().sum().backward()
torch.testing.assert_close(x.grad.cpu(), y.grad)
assert x.grad.device == torch.device("cuda:0")
for ours, theirs in zip(module.parameters(), twin.parameters(), strict=False):
    torch.testing.assert_close(ours.grad.cpu(), theirs.grad)

nested = scatter((x.detach(), {"a": [torch.arange(4).cuda()]}, "text"), [0, 1])
assert [one[1]["a"][0].tolist() for one in nested] == [[0, 1], [2, 3]]
assert nested[1][2] == "text"


class Failing(nn.Module):
    def forward(self, x):
        raise KeyError("inside a replica")


try:
    parallel_apply([Failing(), Failing()], [(parts[0],), (parts[1],)], devices=[0, 1])
except KeyError as error:
    assert "inside a replica" in str(error)
    assert "replica 0 on device 0" in str(error)
else:
    raise AssertionError("the error of a replica was lost")
