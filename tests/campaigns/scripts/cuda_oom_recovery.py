# run:
"""A batch size halved after an out-of-memory error, raised by hand as test suites raise it."""

import torch


def step(size):
    if size > 8:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    return torch.ones(size, device="cuda").sum().item()


size, tried = 32, []
while True:
    try:
        tried.append(size)
        result = step(size)
        break
    except torch.cuda.OutOfMemoryError as error:
        assert "out of memory" in str(error)
        assert isinstance(error, RuntimeError)
        torch.cuda.empty_cache()
        size //= 2
assert tried == [32, 16, 8]
assert result == 8.0
assert torch.OutOfMemoryError is torch.cuda.OutOfMemoryError
