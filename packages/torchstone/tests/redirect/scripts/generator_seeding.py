"""Reproducible randomness: generators on the device, seeds, saved and restored states."""

import random

import torch


def seed_everything(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


seed_everything(11)
assert torch.cuda.initial_seed() == 11
first = torch.randn(3, device="cuda")
state = torch.cuda.get_rng_state("cuda:0")
second = torch.rand(3, device="cuda:0")
torch.cuda.set_rng_state(state, 0)
again = torch.rand(3, device="cuda:0")

generator = torch.Generator(device="cuda").manual_seed(5)
assert isinstance(generator, torch.Generator)
assert generator.initial_seed() == 5
noise = torch.randn(2, 2, generator=generator, device="cuda")
saved = generator.get_state()
order = torch.randperm(6, generator=generator, device="cuda")
generator.set_state(saved)
order_again = torch.randperm(6, generator=generator, device="cuda")
bits = torch.bernoulli(torch.full((4,), 0.5, device="cuda"), generator=generator)
filled = torch.empty(3, device="cuda").normal_(generator=generator)

host = torch.Generator(device="cpu").manual_seed(5)
host_noise = torch.randn(2, 2, generator=host)
assert host_noise.device.type == "cpu"
assert noise.is_cuda

states = torch.cuda.get_rng_state_all()
torch.cuda.set_rng_state_all(states)
assert len(states) == torch.cuda.device_count()

torch.save(
    {
        "draws": [first, second, again],
        "noise": noise,
        "orders": [order, order_again],
        "bits": bits,
        "filled": filled,
        "host": host_noise,
    },
    "result.pt",
)
