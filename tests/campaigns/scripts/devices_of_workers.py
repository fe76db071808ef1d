# run in a process: --devices 2
"""Tensors that go to other processes: the CPU's from workers, CUDA's through queues of children."""

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor(float(index)) ** 2, torch.zeros(2).device.type


def double(tensors, answers):
    x = tensors.get()
    answers.put((str(x.device), (x * 2).cpu().tolist()))
    x.add_(1)
    answers.put("written")


if __name__ == "__main__":
    for workers in (0, 2):
        loader = DataLoader(Squares(), batch_size=4, num_workers=workers, pin_memory=True)
        total = 0.0
        for batch, kinds in loader:
            assert batch.device.type == "cpu"
            assert set(kinds) == {"cpu"}
            total += batch.cuda(1, non_blocking=True).sum().item()
        assert total == 140.0

    context = mp.get_context("spawn")
    tensors, answers = context.Queue(), context.Queue()
    child = context.Process(target=double, args=(tensors, answers), daemon=True)
    child.start()
    x = torch.arange(3.0, device="cuda:1")
    tensors.put(x)
    assert answers.get(timeout=120) == ("cuda:1", [0.0, 2.0, 4.0])
    assert answers.get(timeout=120) == "written"
    child.join()
    assert x.tolist() == [1.0, 2.0, 3.0]
