# run: --devices 2
"""Seeds, states, generators and fork_rng, for each device by itself."""

import torch

torch.cuda.manual_seed_all(11)
first = [torch.rand(2, device=f"cuda:{index}") for index in range(2)]
torch.cuda.manual_seed_all(11)
again = [torch.rand(2, device=f"cuda:{index}") for index in range(2)]
assert all(torch.equal(x, y) for x, y in zip(first, again, strict=False))
states = torch.cuda.get_rng_state_all()
assert len(states) == 2
assert states[0].device.type == "cpu"
assert states[0].dtype is torch.uint8
ahead = torch.randn(3, device="cuda:1")
torch.cuda.set_rng_state_all(states)
assert torch.equal(torch.randn(3, device="cuda:1"), ahead)
generator = torch.Generator(device="cuda")
assert isinstance(generator, torch.Generator)
assert generator.device == torch.device("cuda:0")
generator.manual_seed(5)
drawn = torch.randint(0, 100, (4,), device="cuda", generator=generator)
generator.manual_seed(5)
assert torch.equal(torch.randint(0, 100, (4,), device="cuda", generator=generator), drawn)
assert torch.equal(torch.randperm(5, device="cuda", generator=generator).sort().values.cpu(), torch.arange(5))
with torch.random.fork_rng(devices=[0, 1]):
    torch.manual_seed(0)
    torch.rand(1, device="cuda:1")
torch.cuda.set_rng_state(states[1], 1)
assert torch.equal(torch.randn(3, device="cuda:1"), ahead)
torch.manual_seed(3)
assert torch.cuda.initial_seed() == torch.initial_seed() == 3
x = torch.empty(4, device="cuda").normal_(generator=torch.Generator("cuda").manual_seed(1))
y = torch.empty(4, device="cuda").normal_(generator=torch.Generator("cuda").manual_seed(1))
assert torch.equal(x, y)
for device, generator in (("cpu", torch.Generator("cuda")), ("cuda", torch.Generator())):
    try:
        torch.rand(2, device=device, generator=generator)
    except RuntimeError as error:
        assert f"Expected a '{device}' device type for generator" in str(error)
    else:
        raise AssertionError("a generator of another device was accepted")
