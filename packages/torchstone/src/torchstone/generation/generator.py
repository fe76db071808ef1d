"""The generator, which calls programs to turn prompts into tokens. Needs neither torch nor transformers."""

from __future__ import annotations

import operator
import threading
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from ..artifact import Artifact
from ..errors import InputMismatch
from ..program import check_module, draw_seed
from ..runtime import Buffer, CompileOptions, Engine, get_engine
from ..signature import Signature
from .stored import (
    GREEDY,
    SAMPLE,
    Settings,
    StoredGenerator,
    prefill_name,
    results_by_name,
    save_generator,
)

Integers = NDArray[numpy.int64]


class Generator:
    """A causal language model that generates tokens; made by :func:`~torchstone.export_generation`.

    Weights go to the device once, at the first call. A program is compiled when it is first needed.
    Calls from several threads are safe.
    """

    def __init__(
        self, stored: StoredGenerator, *, engine: str | None = None, device: str | None = None
    ) -> None:
        self._stored = stored
        self._where = (engine, device)
        self._programs: dict[str, _Loaded] = {}
        self._weights: dict[str, Buffer] = {}
        self._lock = threading.Lock()

    @property
    def settings(self) -> Settings:
        """The sizes of the programs, and the default options of calls."""
        return self._stored.settings

    def save(self, path: str | Path) -> Path:
        """Write the programs and their shared weights to one file. Raises :class:`ArtifactError`.

        The file appears complete or not at all.
        """
        return save_generator(path, self._stored)

    def generate(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        *,
        max_new_tokens: int,
        do_sample: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        eos_token_id: int | Sequence[int] | None = None,
        pad_token_id: int | None = None,
        seed: int | None = None,
    ) -> Integers:
        """Return ``input_ids`` followed by the generated tokens: int64 ``[rows, length + new tokens]``.

        ``input_ids`` are integers ``[rows, length]``, in NumPy, torch or nested lists. Shorter prompts are
        padded on the left, where ``attention_mask`` must be 0; elsewhere it is 1 (default: everywhere). A row
        ends with a token of ``eos_token_id`` and is then filled with ``pad_token_id``; the call ends when all
        rows have ended. Options that are None are taken from :attr:`settings`. With an empty ``eos_token_id``
        no row ends. The same ``seed`` gives the same tokens; without one, the seed comes from torch's default
        generator, or from the system if torch is not loaded. Raises :class:`InputMismatch`.
        """
        prompt, mask = self._prompt(input_ids, attention_mask)
        length = prompt.shape[1]
        room = self.settings.max_length - length
        if not 1 <= _integer("max_new_tokens", max_new_tokens) <= room:
            raise InputMismatch(
                f"max_new_tokens={max_new_tokens}: after a prompt of {length} the cache has room for {room}",
                hint="ask for fewer tokens, or export with a larger max_length",
            )
        chosen: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        sampling = self.settings.do_sample if do_sample is None else do_sample
        if not sampling:
            given = [name for name, value in chosen.items() if value is not None]
            if given:
                raise InputMismatch(
                    f"{', '.join(given)} would be ignored: this call takes the most probable token",
                    hint="pass do_sample=True",
                )
        options = self._options(**chosen) if sampling else {}
        call = {**options, **self._ends(eos_token_id, pad_token_id)}
        new = self._decode(prompt, mask, max_new_tokens, call, SAMPLE if sampling else GREEDY)
        return numpy.concatenate([prompt, new], 1)

    def _decode(
        self, prompt: Integers, mask: Integers, new: int, call: dict[str, Any], kind: str
    ) -> Integers:
        """Return the generated tokens, int64 ``[rows, at most new]``."""
        rows, length = prompt.shape
        settings = self.settings
        state: dict[str, Any] = self._prefill(prompt, mask)
        state["unfinished"] = numpy.arange(settings.batch_size) < rows
        call["attention_mask"] = _padded(mask, settings.batch_size, settings.max_length, 1)
        done = 0
        words = call.pop("seed", None)
        engine = get_engine(*self._where)
        call = {name: engine.import_array(value) for name, value in call.items()}  # once for all calls
        made: list[Integers] = []
        while done < new and numpy.any(state["unfinished"]):
            call["position"] = numpy.int64(length + done)
            limit = min(settings.tokens_per_call, new - done)
            call["limit"] = numpy.int64(limit)
            columns = next(one for one in settings.decode_lengths if one >= length + done + limit)
            decode = self._program(settings.decoder(kind, columns))
            if words is not None:
                call["seed"] = words + numpy.array([0, done], numpy.uint64)
            state = decode({**call, **state})
            count = int(state.pop("count").to_numpy())
            made.append(state.pop("tokens").to_numpy()[:rows, :count])
            done += count
        return numpy.concatenate(made, 1)

    def _prefill(self, prompt: Integers, mask: Integers) -> dict[str, Buffer]:
        """Return the logits and the cache after a prompt. Rows missing in the batch copy the last row."""
        settings = self.settings
        bucket = next(one for one in settings.buckets if one >= prompt.shape[1])
        return self._program(prefill_name(bucket))(
            {
                "input_ids": _padded(prompt, settings.batch_size, bucket, 0),
                "attention_mask": _padded(mask, settings.batch_size, bucket, 0),
                "last": numpy.int64(prompt.shape[1] - 1),
            }
        )

    def _prompt(self, input_ids: Any, attention_mask: Any) -> tuple[Integers, Integers]:
        settings = self.settings
        prompt = _integers("input_ids", input_ids)
        rows, length = prompt.shape
        if rows > settings.batch_size:
            raise InputMismatch(
                f"input_ids have {rows} rows; the generator was exported for {settings.batch_size}",
                hint="call it several times, or export with a larger batch_size",
            )
        if length > settings.buckets[-1]:
            raise InputMismatch(
                f"the prompt has {length} tokens; the largest bucket has {settings.buckets[-1]}",
                hint="export with a larger bucket",
            )
        self._check_tokens("input_ids", prompt)
        if attention_mask is None:
            return prompt, numpy.ones_like(prompt)
        mask = _integers("attention_mask", attention_mask)
        if mask.shape != prompt.shape or not numpy.isin(mask, (0, 1)).all():
            raise InputMismatch(
                f"attention_mask must be 0 or 1 for each token of input_ids, {list(prompt.shape)};"
                f" found shape {list(mask.shape)}"
            )
        if not mask[:, -1].all():
            raise InputMismatch(
                "attention_mask hides the last token of a row, so nothing says what follows",
                hint="pad shorter prompts on the left",
            )
        return prompt, mask

    def _check_tokens(self, label: str, tokens: Integers) -> None:
        size = self.settings.vocab_size
        wrong = tokens[(tokens < 0) | (tokens >= size)]
        if wrong.size:
            raise InputMismatch(f"{label} has the token {wrong[0]}; the vocabulary ends at {size - 1}")

    def _options(
        self, temperature: float | None, top_k: int | None, top_p: float | None, seed: int | None
    ) -> dict[str, Any]:
        """Check the options of sampling, and return them as arguments of the program that draws tokens."""
        settings = self.settings
        temperature = settings.temperature if temperature is None else temperature
        top_k = settings.top_k if top_k is None else top_k
        top_p = settings.top_p if top_p is None else top_p
        if not isinstance(temperature, Real) or not 0 < temperature < float("inf"):
            raise InputMismatch(f"temperature={temperature!r} is not a positive number")
        if _integer("top_k", top_k) < 0:
            raise InputMismatch(f"top_k={top_k} is negative", hint="use 0 to keep all tokens")
        if not isinstance(top_p, Real) or not 0 <= top_p <= 1:
            raise InputMismatch(f"top_p={top_p!r} is not a probability")
        if seed is not None and not 0 <= _integer("seed", seed) < 2**64:
            raise InputMismatch(f"seed={seed} is not an unsigned integer of 64 bits")
        words = draw_seed() if seed is None else [seed, 0]
        return {
            "options_0": numpy.float32(temperature),
            "options_1": numpy.int64(top_k),
            "options_2": numpy.float32(top_p),
            "seed": numpy.asarray(words, numpy.uint64),
        }

    def _ends(self, eos_token_id: int | Sequence[int] | None, pad_token_id: int | None) -> dict[str, Any]:
        """Return the arguments that say which tokens end a row, and which token follows them."""
        settings = self.settings
        given: Any = settings.eos_token_id if eos_token_id is None else eos_token_id
        ends = [_integer("eos_token_id", one) for one in (given if numpy.ndim(given) else [given])]
        padding = settings.pad_token_id if pad_token_id is None else _integer("pad_token_id", pad_token_id)
        if padding is None:
            padding = ends[0] if ends else 0
        self._check_tokens("eos_token_id", numpy.asarray(ends, numpy.int64))
        self._check_tokens("pad_token_id", numpy.asarray([padding], numpy.int64))
        is_end = numpy.zeros(settings.vocab_size, numpy.bool_)
        is_end[ends] = True
        return {"is_end": is_end, "padding": numpy.int64(padding)}

    def _program(self, name: str) -> _Loaded:
        with self._lock:
            if name not in self._programs:
                engine = get_engine(*self._where)
                if not self._weights:
                    self._weights = {
                        target: engine.import_array(array) for target, array in self._stored.weights.items()
                    }
                self._programs[name] = _Loaded(engine, self._stored.programs[name], self._weights)
            return self._programs[name]


class _Loaded:
    """A compiled program that is called with its inputs by name."""

    def __init__(self, engine: Engine, artifact: Artifact, weights: Mapping[str, Buffer]) -> None:
        self._signature = signature = artifact.signature
        self._weights = weights
        names = [spec.target or spec.name for spec in signature.inputs]
        options = CompileOptions(updates=tuple(_updates(signature)))
        self._executable = engine.compile(artifact.module, options=options, input_names=names)
        check_module(signature, self._executable, {})

    def __call__(self, given: Mapping[str, Any]) -> dict[str, Buffer]:
        """Return the program's results by name. An input with the name of a result is donated to it."""
        arguments = [
            given[spec.name] if spec.target is None else self._weights[spec.target]
            for spec in self._signature.inputs
        ]
        return results_by_name(self._signature, self._executable(*arguments))


def _updates(signature: Signature) -> list[tuple[int, int]]:
    """Return pairs of positions: an input, and the result of the same name that replaces it."""
    results = results_by_name(signature, range(len(signature.outputs)))
    return [
        (position, results[spec.name])
        for position, spec in enumerate(signature.inputs)
        if spec.target is None and spec.name in results
    ]


def _integer(label: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise InputMismatch(f"{label}={value!r} is not an integer") from error


def _integers(label: str, values: Any) -> Integers:
    """Return ``values`` as int64 ``[rows, length]``. Raises :class:`InputMismatch` if unfit or empty."""
    try:
        array = numpy.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputMismatch(
            f"{label} cannot become an array: {error}",
            hint="pad shorter prompts on the left, and pass an attention_mask",
        ) from error
    if array.ndim != 2 or not array.size or array.dtype.kind not in "iub":
        raise InputMismatch(
            f"{label} must be integers [rows, length]; found {array.dtype}{list(array.shape)}",
            hint="for one prompt write [tokens]",
        )
    return array.astype(numpy.int64)


def _padded(array: Integers, rows: int, length: int, value: int) -> Integers:
    """Pad ``array`` to ``length`` with ``value`` on the right, and to ``rows`` by repeating its last row."""
    missing = (0, rows - array.shape[0]), (0, 0)
    wide = numpy.pad(array, ((0, 0), (0, length - array.shape[1])), constant_values=value)
    return numpy.pad(wide, missing, mode="edge")
