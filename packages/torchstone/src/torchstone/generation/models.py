"""From a model, its generation config and the requested sizes to the settings of a generator, with checks."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from transformers import GenerationConfig, PreTrainedModel

from ..errors import CaptureError, ConfigError
from .stored import Settings

_OWN = frozenset({"do_sample", "eos_token_id", "pad_token_id", "temperature", "top_k", "top_p"})
"""Options of a generation config that a generator also has."""

_OUTPUTS = frozenset(f"output_{name}" for name in ("attentions", "hidden_states", "logits", "scores"))
_CACHES = frozenset({"cache_config", "cache_implementation", "prefill_chunk_size", "use_cache"})
_COMPILING = frozenset({"compile_config", "disable_compile"})
_OTHERS = frozenset(
    {
        "bos_token_id",
        "decoder_start_token_id",
        "early_stopping",
        "length_penalty",
        "max_length",
        "max_new_tokens",
        "return_dict_in_generate",
        "transformers_version",
    }
)
_NO_EFFECT = _OWN | _OUTPUTS | _CACHES | _COMPILING | _OTHERS
"""Options that do not change a generator's tokens, or that a generator also has."""

_NEUTRAL: dict[str, Any] = {
    "diversity_penalty": 0.0,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "num_beams": 1,
    "num_return_sequences": 1,
    "repetition_penalty": 1.0,
    "typical_p": 1.0,
}
"""Values of the other options with which they do not change any token."""

_NEEDED = ("input_ids", "attention_mask", "position_ids", "past_key_values", "logits_to_keep")
_ATTENTION = frozenset({"full_attention", "sliding_attention"})
_TOP_K = 50
"""The value that transformers uses if a generation config does not set ``top_k``."""


def settings_of(
    model: Any,
    max_length: int,
    batch_size: int,
    buckets: Sequence[int] | None,
    decode_lengths: Sequence[int] | None,
    tokens_per_call: int,
) -> Settings:
    """Return the settings of a generator. Raises :class:`CaptureError` or :class:`ConfigError`."""
    _check_model(model)
    sizes = {"max_length": max_length, "batch_size": batch_size, "tokens_per_call": tokens_per_call}
    for name, size in sizes.items():
        if type(size) is not int or size < 1:
            raise ConfigError(f"{name}={size!r} is not a positive integer")
    config = model.config.get_text_config(decoder=True)
    most = getattr(config, "max_position_embeddings", None)
    if most is not None and max_length > most:
        raise ConfigError(
            f"max_length={max_length} is more than the {most} positions of {type(model).__name__}",
            hint=f"use max_length={most} or less",
        )
    options = model.generation_config
    _check_options(options)
    ends = options.eos_token_id
    ends = [] if ends is None else ends if isinstance(ends, list) else [ends]
    vocabulary, padding = config.vocab_size, options.pad_token_id
    return Settings(
        **sizes,
        buckets=_buckets(buckets, max_length),
        decode_lengths=_decode_lengths(decode_lengths, max_length),
        vocab_size=vocabulary,
        eos_token_id=tuple(one for one in ends if one < vocabulary),
        pad_token_id=padding if padding is not None and 0 <= padding < vocabulary else None,
        do_sample=bool(options.do_sample),
        temperature=float(1.0 if options.temperature is None else options.temperature),
        top_k=_TOP_K if options.top_k is None else options.top_k,
        top_p=float(1.0 if options.top_p is None else options.top_p),
    )


def _buckets(buckets: Sequence[int] | None, max_length: int) -> tuple[int, ...]:
    """Return the sorted prompt lengths; the default is 16, 64, 256, … and ``max_length``."""
    if buckets is None:
        powers = [16 * 4**step for step in range(16)]
        return (*(one for one in powers if one < max_length), max_length)
    _check_lengths("buckets", buckets, "lengths of prompts", max_length)
    return tuple(sorted(set(buckets)))


def _decode_lengths(lengths: Sequence[int] | None, max_length: int) -> tuple[int, ...]:
    """Return the sorted numbers of cache columns, the last ``max_length``; by default 128, 512, 2048, …"""
    if lengths is None:
        lengths = [one for one in (128 * 4**step for step in range(16)) if one < max_length]
    else:
        _check_lengths("decode_lengths", lengths, "numbers of columns", max_length)
    return tuple(sorted({*lengths, max_length}))


def _check_lengths(name: str, lengths: Sequence[int], what: str, max_length: int) -> None:
    if not lengths or any(type(one) is not int or not 1 <= one <= max_length for one in lengths):
        raise ConfigError(
            f"{name}={lengths!r} are not {what}",
            hint=f"use integers from 1 to max_length={max_length}",
        )


def _check_model(model: Any) -> None:
    name = type(model).__name__
    if not isinstance(model, PreTrainedModel) or not model.can_generate():
        raise CaptureError(
            f"transformers cannot generate text with a {name}",
            hint="pass an AutoModelForCausalLM",
        )
    if model.training:
        raise CaptureError(f"{name} is in training mode", hint="call model.eval() first")
    config = model.config.get_text_config(decoder=True)
    kinds = set(getattr(config, "layer_types", None) or ()) - _ATTENTION
    if model.config.is_encoder_decoder:
        kinds = {"an encoder"}
    elif getattr(model, "_is_stateful", False):
        kinds = {"a recurrent state"}
    lacking = [one for one in _NEEDED if one not in inspect.signature(model.forward).parameters]
    if kinds or lacking:
        what = f"has {', '.join(sorted(kinds))}" if kinds else f"takes no {', '.join(lacking)}"
        raise CaptureError(
            f"{name} {what}: a generator needs a decoder whose only state is keys and values of attention",
            hint="export the model with torchstone.export, and write the loop yourself",
        )


def _check_options(options: GenerationConfig) -> None:
    """Raise :class:`CaptureError` if the options change scores in a way that the programs do not support."""
    asked = {name: value for name, value in options.to_diff_dict().items() if not name.startswith("_")}
    other = {
        f"{name}={value!r}"
        for name, value in asked.items()
        if value is not None and name not in _NO_EFFECT and value != _NEUTRAL.get(name)
    }
    if other:
        raise CaptureError(
            f"the model's generation config has {', '.join(sorted(other))}, which a generator lacks",
            hint="set these options of model.generation_config to None",
        )
    bounds = {"temperature": (1e-6, 1e6), "top_k": (0, 2**31), "top_p": (0, 1)}
    for name, (least, most) in bounds.items():
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            raise CaptureError(
                f"the model's generation config has {name}={value!r}, with which tokens cannot be drawn",
                hint=f"set model.generation_config.{name} to a value from {least} to {most}, or to None",
            )
