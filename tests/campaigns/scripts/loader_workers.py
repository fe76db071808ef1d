# run: --devices 1
"""A DataLoader with pinning, a prefetcher class on a side stream, and a collate function."""

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset


class Prefetcher:
    def __init__(self, loader):
        self.loader, self.stream = iter(loader), torch.cuda.Stream()
        self.fetch()

    def fetch(self):
        try:
            self.following = next(self.loader)
        except StopIteration:
            self.following = None
            return
        with torch.cuda.stream(self.stream):
            self.following = [one.cuda(non_blocking=True) for one in self.following]

    def __iter__(self):
        while self.following is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
            batch = self.following
            for one in batch:
                one.record_stream(torch.cuda.current_stream())
            self.fetch()
            yield batch


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(5))


x, y = torch.arange(10.0).view(10, 1), torch.arange(10)
seen = []
for inputs, targets in Prefetcher(DataLoader(TensorDataset(x, y), batch_size=4, pin_memory=True)):
    assert inputs.is_cuda
    assert targets.is_cuda
    seen += targets.tolist()
assert seen == list(range(10))
batches = list(DataLoader(Stream(), batch_size=2, collate_fn=lambda items: torch.tensor(items).cuda()))
assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3], [4]]
assert all(batch.is_cuda for batch in batches)
generator = torch.Generator().manual_seed(3)
order = [int(one) for one in DataLoader(y, shuffle=True, generator=generator)]
again = [int(one) for one in DataLoader(y, shuffle=True, generator=torch.Generator().manual_seed(3))]
assert order == again != list(range(10))
