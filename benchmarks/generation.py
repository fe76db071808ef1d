"""Seconds for tokens of a language model, compared with eager ``model.generate`` and Inductor's static cache.

A row holds if all candidates generate the same tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
import transformers

import torchstone

from .measure import Row, paired

PROMPT, NEW, LENGTH = 48, 64, 256


def rows() -> Iterator[Row]:
    for name, model in _models():
        for batch in (1, 4):
            yield _row(f"{name}, {batch} row(s), {NEW} tokens", model, batch)


def _models() -> Iterator[tuple[str, Any]]:
    """Yield models with some millions of random weights: GPT-2, and Llama with grouped queries."""
    common = {"vocab_size": 8000, "max_position_embeddings": LENGTH, "initializer_range": 0.1}
    common |= {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8}
    common |= {"bos_token_id": None, "eos_token_id": None}
    torch.manual_seed(0)
    yield "GPT-2", transformers.GPT2LMHeadModel(transformers.GPT2Config(**common)).eval()
    grouped = {**common, "intermediate_size": 700, "num_key_value_heads": 4}
    yield "Llama", transformers.LlamaForCausalLM(transformers.LlamaConfig(**grouped)).eval()


def _row(name: str, model: Any, batch: int) -> Row:
    prompt = torch.randint(0, model.config.vocab_size, (batch, PROMPT))
    options = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": NEW, "do_sample": False}
    generator = torchstone.export_generation(model, max_length=LENGTH, batch_size=batch, buckets=(64,))
    torch._dynamo.reset()
    compiled = copy.deepcopy(model)
    compiled.forward = torch.compile(compiled.forward, backend="inductor")
    candidates = {
        "eager": lambda: model.generate(prompt, **options).numpy(),
        "inductor": lambda: compiled.generate(prompt, **options, cache_implementation="static").numpy(),
        "torchstone": lambda: generator.generate(prompt, max_new_tokens=NEW),
    }
    made = {candidate: function() for candidate, function in candidates.items()}
    differs = [candidate for candidate, tokens in made.items() if (tokens != made["eager"]).any()]
    seconds = paired(candidates, budget_s=8.0)
    notes: dict[str, float | int | str] = {
        f"tokens_per_s_{candidate}": round(batch * NEW / value) for candidate, value in seconds.items()
    }
    return Row(name, seconds, "eager", "the same tokens", not differs, notes)
