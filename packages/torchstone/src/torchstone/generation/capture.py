"""From a causal language model of transformers to the programs of a generator: prefill and decode.

The cache is an argument and a result of the programs. Prefill makes it from a prompt that is padded on the
right to the length of a bucket. The padding columns come after every token of the prompt, so no token attends
to them, and decoding overwrites them one by one. Decoding is a loop inside the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx.traceback import preserve_node_meta
from transformers.cache_utils import Cache, CacheLayerMixin

from ..artifact import Artifact
from ..compiler import build_program
from ..compiler.capture import capture
from ..compiler.program import Program, weight_arrays
from ..config import override
from ..errors import CaptureError, ShardingError
from ..hlo import resolve_version
from ..signature import OutputSpec
from ..trees import unflatten
from .sampling import drawn, largest
from .stored import GREEDY, SAMPLE, Settings, StoredGenerator, prefill_name
from .transposed import with_transposed_weights


class _Layer(CacheLayerMixin):
    """Keys and values of one layer, ``[batch, heads, length, size]``; updates never write in place.

    ``position`` is the column of the next token. A layer without a position takes the keys and values of a
    whole prompt.
    """

    is_compileable = True  # makes transformers build masks always, whatever their values
    is_sliding = False  # sliding windows are handled by masks

    def __init__(
        self, keys: Tensor | None = None, values: Tensor | None = None, position: Tensor | None = None
    ) -> None:
        super().__init__()
        self.keys, self.values, self.position = keys, values, position
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        pass

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if self.keys is not None and self.values is not None and self.position is not None:
            column = self.position.reshape(1)
            key_states = self.keys.index_copy(2, column, key_states)
            value_states = self.values.index_copy(2, column, value_states)
        self.keys, self.values = key_states, value_states
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return (query_length if self.keys is None else self.keys.shape[2]), 0

    def get_seq_length(self) -> Any:
        return 0 if self.position is None else self.position

    def get_max_length(self) -> int:
        return -1 if self.keys is None else int(self.keys.shape[2])


def _flat(cache: Cache) -> list[Tensor]:
    return [one for layer in cache.layers for one in (layer.keys, layer.values)]


class Prefill(nn.Module):
    """The module that returns the logits after a prompt, float32 ``[batch, vocabulary]``, and its cache."""

    def __init__(self, model: nn.Module, max_length: int) -> None:
        super().__init__()
        self.model = model
        self.max_length = max_length

    def forward(self, input_ids: Tensor, attention_mask: Tensor, last: Tensor) -> dict[str, Any]:
        """``input_ids`` and ``attention_mask`` are int64 ``[batch, bucket]``, ``last`` is 0-d.

        The logits are those of the column ``last``.
        """
        cache = Cache(layer_class_to_replicate=_Layer)
        positions = (attention_mask.cumsum(-1) - 1).clamp(min=0)
        logits = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=last.reshape(1),
        ).logits
        room = self.max_length - input_ids.shape[1]
        padded = [nn.functional.pad(one, (0, 0, 0, room)) for one in _flat(cache)]
        return {"logits": logits[:, 0].float(), "caches": padded}


class Step(nn.Module):
    """The module that appends one token; returns logits, float32 ``[batch, vocabulary]``, and the cache."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, token: Tensor, column: Tensor, attention_mask: Tensor, caches: Sequence[Tensor]
    ) -> list[Tensor]:
        """``token`` is int64 ``[batch]``, ``column`` its place; the mask is int64 ``[batch, max_length]``."""
        pairs = zip(caches[::2], caches[1::2], strict=True)
        cache = Cache(layers=[_Layer(keys, values, column) for keys, values in pairs])
        seen = attention_mask * (torch.arange(attention_mask.shape[1]) <= column)
        logits = self.model(
            input_ids=token[:, None],
            attention_mask=attention_mask,
            position_ids=seen.sum(-1, keepdim=True) - 1,
            past_key_values=cache,
            use_cache=True,
        ).logits
        return [logits[:, -1].float(), *_flat(cache)]


class Decode(nn.Module):
    """The module that returns up to ``tokens_per_call`` tokens, and the logits and the cache after them.

    Tokens go to the first ``columns`` columns of the cache, and attention reads only those.

    The body of the loop calls a :class:`Step` that was captured earlier. The loop takes the weights and the
    constants of that step as arguments, because its body has no other access to tensors from outside.
    """

    def __init__(self, model: nn.Module, step: ExportedProgram, tokens_per_call: int, columns: int) -> None:
        super().__init__()
        self.model = model
        self.length = tokens_per_call
        self.columns = columns
        self._step = torch.fx.Interpreter(step.graph_module)  # keeps the source lines of the model
        self._targets = [str(spec.target) for spec in step.graph_signature.input_specs if spec.target]
        known = self._tensors()
        self._constants = {
            target: f"constant_{target.replace('.', '_')}" for target in self._targets if target not in known
        }
        for target, name in self._constants.items():
            self.register_buffer(name, step.constants[target], persistent=False)

    def _tensors(self) -> dict[str, Tensor]:
        """Return all parameters and buffers by name; tied ones appear under each of their names."""
        return dict(
            [*self.named_parameters(remove_duplicate=False), *self.named_buffers(remove_duplicate=False)]
        )

    def forward(
        self,
        logits: Tensor,
        caches: Sequence[Tensor],
        attention_mask: Tensor,
        position: Tensor,
        unfinished: Tensor,
        limit: Tensor,
        is_end: Tensor,
        padding: Tensor,
        *options: Tensor,
    ) -> dict[str, Any]:
        """Choose and append tokens until there are ``limit`` of them, or all rows have finished.

        ``attention_mask`` is int64 ``[batch, max_length]``, and 1 in all columns after the prompt.
        ``unfinished`` is bool ``[batch]``, and ``is_end`` is bool ``[vocabulary]``. The others are 0-d int64:
        ``position`` is the column of the first new token, and ``padding`` the token that finished rows get.
        ``options`` are those of :func:`~.sampling.drawn`; without them, the most probable token is chosen.
        """
        batch, count = logits.shape[0], len(caches)
        whole = caches
        # a slice must be cloned to get the same strides as the loop's results
        caches = [one[:, :, : self.columns].clone(memory_format=torch.contiguous_format) for one in whole]
        attention_mask = attention_mask[:, : self.columns]
        drawing = (torch.rand(self.length, batch), *options) if options else ()
        call = (position, attention_mask, limit, is_end, padding, *drawing)
        tensors = self._tensors()
        named = [tensors[self._constants.get(target, target)] for target in self._targets]
        weights = {id(one): one for one in named}  # a loop cannot take the same tensor twice
        places = [list(weights).index(id(one)) for one in named]

        def goes_on(
            step: Tensor, tokens: Tensor, logits: Tensor, unfinished: Tensor, *rest: Tensor
        ) -> Tensor:
            _, _, limit, *_ = rest[count:]
            return (step < limit) & unfinished.any()

        def body(
            step: Tensor, tokens: Tensor, logits: Tensor, unfinished: Tensor, *rest: Tensor
        ) -> tuple[Tensor, ...]:
            caches, own = rest[:count], rest[count + len(call) :]
            position, mask, _, is_end, padding, *drawing = rest[count : count + len(call)]
            if drawing:
                uniform, *options = drawing
                token = drawn(logits, uniform.index_select(0, step.reshape(1))[0], *options)
            else:
                token = largest(logits)
            token = torch.where(unfinished, token, padding)
            with preserve_node_meta():
                inputs = (*(own[place] for place in places), token, position + step, mask, *caches)
                result, *made = self._step.run(*inputs)
            tokens = tokens.index_copy(1, step.reshape(1), token[:, None])
            return step + 1, tokens, result, unfinished & ~is_end[token], *made

        tokens = padding.expand(batch, self.length).clone()
        step = torch.zeros((), dtype=torch.int64)
        step, tokens, logits, unfinished, *made = torch.ops.higher_order.while_loop(
            goes_on, body, (step, tokens, logits, unfinished, *caches), (*call, *weights.values())
        )
        made = [one.slice_scatter(part, 2, 0, self.columns) for one, part in zip(whole, made, strict=True)]
        return {"tokens": tokens, "count": step, "logits": logits, "unfinished": unfinished, "caches": made}


def captured(model: nn.Module, settings: Settings, stablehlo_version: str) -> StoredGenerator:
    """Capture the programs of ``model``, which share one copy of its weights.

    Raises :class:`CaptureError`, :class:`ShardingError` and :class:`UnsupportedOperators` as
    :func:`torchstone.export` does.
    """
    batch, length = settings.batch_size, settings.max_length
    if batch > 1:
        model = with_transposed_weights(model)
    programs = {}
    # the generator checks token ids before the call, so the programs need no checks
    with torch.no_grad(), override(check_indices=False, check_values=False):
        for bucket in settings.buckets:
            prompt = torch.ones(batch, bucket, dtype=torch.int64)
            program = build_program(Prefill(model, length), (prompt, prompt.clone(), torch.tensor(0)))
            programs[prefill_name(bucket)] = program
        state = unflatten(program.signature.output_tree, [_zeros(one) for one in program.signature.outputs])
        settings = replace(settings, vocab_size=state["logits"].shape[1])
        mask = torch.ones(batch, length, dtype=torch.int64)
        token = torch.zeros(batch, dtype=torch.int64)
        arguments = (
            state["logits"],
            state["caches"],
            mask,
            torch.tensor(1),
            torch.ones(batch, dtype=torch.bool),
            torch.tensor(1),
            torch.zeros(settings.vocab_size, dtype=torch.bool),
            torch.tensor(0),
        )
        options = (torch.tensor(1.0), torch.tensor(0), torch.tensor(1.0))
        for columns in settings.decode_lengths:
            caches = [one[:, :, :columns] for one in state["caches"]]
            step = capture(Step(model), (token, torch.tensor(1), mask[:, :columns], caches))
            decode = Decode(model, step, settings.tokens_per_call, columns)
            programs[settings.decoder(GREEDY, columns)] = build_program(decode, arguments)
            programs[settings.decoder(SAMPLE, columns)] = build_program(decode, (*arguments, *options))
    if any(program.signature.ranks for program in programs.values()):
        raise ShardingError(
            "the model calls collectives, and a generator runs on one rank",
            hint="export the model with torchstone.export, and run it with torchstone.Ranks",
        )
    return _stored(programs, settings, resolve_version(stablehlo_version))


def _zeros(spec: OutputSpec) -> Tensor:
    """Return a tensor of zeros with the static shape and the dtype of a program's result."""
    return torch.zeros([int(size) for size in spec.shape], dtype=spec.dtype.torch)


def _stored(programs: dict[str, Program], settings: Settings, version: str) -> StoredGenerator:
    """Serialize ``programs`` for a StableHLO version. Names of constants are prefixed with their program."""
    shared: dict[str, Tensor] = {}
    signatures = {}
    for name, program in programs.items():
        inputs = []
        for spec in program.signature.inputs:
            if spec.kind not in ("input", "seed"):
                assert spec.target is not None
                target = f"{name}.{spec.target}" if spec.kind == "constant" else spec.target
                shared[target] = program.weights[spec.target]
                spec = replace(spec, target=target)
            inputs.append(spec)
        for result in program.signature.outputs:
            if result.kind != "output":
                raise CaptureError(
                    f"the model writes into {result.target!r} while it generates",
                    hint="a generator keeps keys and values of attention as its only state",
                )
        signatures[name] = replace(program.signature, inputs=tuple(inputs), stablehlo_version=version)
    weights = weight_arrays(shared)
    return StoredGenerator(
        settings,
        {
            name: Artifact(program.module.serialize(version), signatures[name], weights)
            for name, program in programs.items()
        },
        weights,
    )
