"""Device handling in the manner of a Hugging Face Trainer: TrainingArguments picks, the loop follows."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class TrainingArguments:
    output_dir: str
    no_cuda: bool = False
    fp16: bool = True
    seed: int = 42
    per_device_train_batch_size: int = 2
    max_steps: int = 3
    device_map: dict[str, str | torch.device] = field(default_factory=lambda: {"head": "cuda:0"})

    @functools.cached_property
    def _setup_devices(self) -> torch.device:
        if self.no_cuda or not torch.cuda.is_available():
            self._n_gpu = 0
            return torch.device("cpu")
        device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        self._n_gpu = torch.cuda.device_count()
        if device.type == "cuda":
            torch.cuda.set_device(device)
        return device

    @property
    def device(self) -> torch.device:
        return self._setup_devices

    @property
    def n_gpu(self) -> int:
        _ = self.device
        return self._n_gpu

    @property
    def train_batch_size(self) -> int:
        return self.per_device_train_batch_size * max(1, self.n_gpu)


class Trainer:
    def __init__(self, model: nn.Module, args: TrainingArguments) -> None:
        self.args = args
        self.model = model.to(args.device)
        if args.n_gpu > 1:
            self.model = nn.DataParallel(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scaler = torch.cuda.amp.GradScaler() if args.fp16 and torch.cuda.is_available() else None

    def _prepare_input(self, data):
        if isinstance(data, dict):
            return type(data)({k: self._prepare_input(v) for k, v in data.items()})
        if isinstance(data, torch.Tensor):
            return data.to(device=self.args.device)
        return data

    def train(self) -> list[float]:
        history = []
        for _ in range(self.args.max_steps):
            batch = self._prepare_input(
                {"x": torch.randn(self.args.train_batch_size, 4), "label": torch.tensor([0, 1])}
            )
            with torch.cuda.amp.autocast(dtype=torch.float16, enabled=self.scaler is not None):
                loss = nn.functional.cross_entropy(self.model(batch["x"]), batch["label"])
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.model.zero_grad()
            history.append(loss.detach().float().item())
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        return history


args = TrainingArguments("out")
torch.manual_seed(args.seed)
torch.cuda.manual_seed_all(args.seed)
assert args.n_gpu == 1
model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
trainer = Trainer(model, args)
history = trainer.train()
assert next(model.parameters()).is_cuda
torch.save({"history": history, "model": model.state_dict()}, "result.pt")
