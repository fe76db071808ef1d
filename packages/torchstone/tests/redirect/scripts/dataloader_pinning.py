"""Input pipeline with pinned memory, worker processes and asynchronous copies."""

import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int):
        return {"x": torch.full((2,), float(index)), "index": index}


def main() -> None:
    generator = torch.Generator().manual_seed(2)
    seen, means = [], []
    for workers in (0, 1):
        loader = DataLoader(
            Squares(),
            batch_size=4,
            shuffle=True,
            num_workers=workers,
            pin_memory=True,
            pin_memory_device="cuda" if workers else "",
            generator=generator,
            multiprocessing_context="fork" if workers else None,
        )
        for batch in loader:
            x = batch["x"].to("cuda:0", non_blocking=True)
            assert x.is_cuda
            assert batch["x"].device.type == "cpu"
            seen += batch["index"].tolist()
            means.append(x.square().mean().item())
    pinned = torch.empty(3, pin_memory=True).fill_(1)
    assert pinned.device.type == "cpu"
    torch.save({"seen": seen, "means": means, "pinned": pinned.cuda()}, "result.pt")


if __name__ == "__main__":
    main()
