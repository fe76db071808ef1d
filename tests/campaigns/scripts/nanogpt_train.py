# run in a process:
"""A small GPT trained as GPT repositories do: global settings, AMP, DDP switch, compile, checkpoints."""

import contextlib
import inspect
import math
import os
import tempfile
import time
from ast import literal_eval
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

out_dir = tempfile.mkdtemp()
eval_interval = 20
eval_iters = 2
always_save_checkpoint = True
init_from = "scratch"
gradient_accumulation_steps = 2
batch_size = 8
block_size = 16
n_layer = 1
n_head = 2
n_embd = 32
dropout = 0.0
bias = False
learning_rate = 1e-2
max_iters = 40
weight_decay = 1e-1
beta1, beta2 = 0.9, 0.95
grad_clip = 1.0
warmup_iters = 4
lr_decay_iters = 40
min_lr = 1e-3
backend = "nccl"
device = "cuda"
dtype = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float16"
compile = True
mode = ""
for override in os.environ.get(
    "GPT_OVERRIDES", ""
).split():  # what a configurator takes from the command line
    key, _, value = override.partition("=")
    assert key in globals(), key
    with contextlib.suppress(ValueError, SyntaxError):
        value = literal_eval(value)
    globals()[key] = value


@dataclass
class Config:
    block_size: int
    vocab_size: int
    n_layer: int
    n_head: int
    n_embd: int
    dropout: float
    bias: bool


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.project = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.n_head, self.dropout = config.n_head, config.dropout

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (
            one.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
            for one in self.qkv(x).split(c, dim=2)
        )
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout if self.training else 0, is_causal=True
        )
        return self.project(y.transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attention = Attention(config)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 4 * config.n_embd),
            nn.GELU(),
            nn.Linear(4 * config.n_embd, config.n_embd),
        )

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.n_embd)
        self.positions = nn.Embedding(config.block_size, config.n_embd)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = nn.LayerNorm(config.n_embd)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.tokens.weight = self.head.weight
        for _name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, mean=0.0, std=0.05)

    def forward(self, idx, targets=None):
        positions = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.tokens(idx) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        if targets is None:
            return self.head(x[:, [-1], :]), None
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    def configure_optimizers(self, weight_decay, learning_rate, betas, device_type):
        parameters = [p for p in self.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        use_fused = "fused" in inspect.signature(torch.optim.AdamW).parameters and device_type == "cuda"
        assert use_fused
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=True)


ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend=backend)
    ddp_local_rank = int(os.environ["LOCAL_RANK"])
    device = f"cuda:{ddp_local_rank}"
    torch.cuda.set_device(device)
    master_process = int(os.environ["RANK"]) == 0
    seed_offset = int(os.environ["RANK"])
    gradient_accumulation_steps //= int(os.environ["WORLD_SIZE"])
else:
    master_process, seed_offset = True, 0

torch.manual_seed(1337 + seed_offset)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
device_type = "cuda" if "cuda" in device else "cpu"
assert device_type == "cuda"
ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
ctx = torch.amp.autocast(device_type=device_type, dtype=ptdtype)

text = "the quick brown fox jumps over the lazy dog. " * 60
symbols = sorted(set(text))
data = np.array([symbols.index(one) for one in text], dtype=np.uint16)
data.tofile(os.path.join(out_dir, f"train{seed_offset}.bin"))


def get_batch():
    data = np.memmap(os.path.join(out_dir, f"train{seed_offset}.bin"), dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy((data[i : i + block_size]).astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy((data[i + 1 : i + 1 + block_size]).astype(np.int64)) for i in ix])
    return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)


model_args = {
    "n_layer": n_layer,
    "n_head": n_head,
    "n_embd": n_embd,
    "block_size": block_size,
    "bias": bias,
    "vocab_size": len(symbols),
    "dropout": dropout,
}


def learn(init_from, until):
    iter_num, best_val_loss = 0, 1e9
    if init_from == "scratch":
        model = GPT(Config(**model_args))
    else:
        checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"), map_location=device)
        model = GPT(Config(**checkpoint["model_args"]))
        state = checkpoint["model"]
        for name in list(state):
            if name.startswith("_orig_mod."):
                state[name[len("_orig_mod.") :]] = state.pop(name)
        model.load_state_dict(state)
        iter_num, best_val_loss = checkpoint["iter_num"], checkpoint["best_val_loss"]
    model.to(device)
    scaler = torch.cuda.amp.GradScaler(enabled=(dtype == "float16"))
    optimizer = model.configure_optimizers(weight_decay, learning_rate, (beta1, beta2), device_type)
    if init_from == "resume":
        optimizer.load_state_dict(checkpoint["optimizer"])
        checkpoint = None
    if compile:
        model = torch.compile(model, mode=mode) if mode else torch.compile(model)
    if ddp:
        model = DDP(model, device_ids=[ddp_local_rank])
    raw_model = model.module if ddp else model

    @torch.no_grad()
    def estimate_loss():
        model.eval()
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            with ctx:
                _, loss = model(*get_batch())
            losses[k] = loss.item()
        model.train()
        return losses.mean()

    def get_lr(it):
        if it < warmup_iters:
            return learning_rate * (it + 1) / (warmup_iters + 1)
        coefficient = 0.5 * (1.0 + math.cos(math.pi * min(it / lr_decay_iters, 1)))
        return min_lr + coefficient * (learning_rate - min_lr)

    losses = []
    X, Y = get_batch()
    while True:
        for group in optimizer.param_groups:
            group["lr"] = get_lr(iter_num)
        if iter_num % eval_interval == 0 and master_process:
            best_val_loss = min(best_val_loss, estimate_loss())
            checkpoint = {
                "model": raw_model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "model_args": model_args,
                "iter_num": iter_num,
                "best_val_loss": best_val_loss,
                "config": asdict(raw_model.config),
            }
            torch.save(checkpoint, os.path.join(out_dir, "ckpt.pt"))
        for micro_step in range(gradient_accumulation_steps):
            if ddp:
                model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
            with ctx:
                _, loss = model(X, Y)
                loss = loss / gradient_accumulation_steps
            X, Y = get_batch()
            scaler.scale(loss).backward()
        if grad_clip != 0.0:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        losses.append(loss.item() * gradient_accumulation_steps)
        iter_num += 1
        if iter_num > until:
            return raw_model, losses


started = time.time()
model, losses = learn(init_from, max_iters)
assert losses[0] > 2.5, losses[0]
assert losses[-1] < 0.6 * losses[0], losses
assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated() > 0
if not ddp:
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"), map_location="cpu")
    assert all(value.device.type == "cpu" for value in checkpoint["model"].values())
    _, resumed = learn("resume", max_iters + 5)
    assert resumed[-1] < 0.6 * losses[0], resumed
if ddp:
    del model
    destroy_process_group()
