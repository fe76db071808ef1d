"""Generators of tiny language models against ``model.generate``: the same tokens, the same distribution."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import scipy.stats
import torch

import torchstone
from torchstone.errors import ArtifactError, ArtifactVersionError, CaptureError, ConfigError, InputMismatch
from torchstone.generation import Generator
from torchstone.generation.sampling import drawn
from torchstone.generation.transposed import with_transposed_weights
from torchstone.hlo.portable import text_of

transformers = pytest.importorskip("transformers", reason="the extra torchstone[models] is not installed")

VOCABULARY = 61
MAX_LENGTH = 48
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": MAX_LENGTH,
    "initializer_range": 0.4,  # large, so that the models generate many different tokens
    "bos_token_id": None,
    "eos_token_id": None,
}
_GROUPED = {**_SIZES, "intermediate_size": 64, "num_key_value_heads": 2}
MODELS: Mapping[str, Mapping[str, Any]] = {
    "GPT2LMHeadModel": _SIZES,
    "LlamaForCausalLM": _GROUPED,
    "MistralForCausalLM": {**_GROUPED, "sliding_window": 6},
    "Qwen2ForCausalLM": _GROUPED,
    "MixtralForCausalLM": {**_GROUPED, "num_local_experts": 4},
    "FalconForCausalLM": _SIZES,
}


def make(name: str) -> Any:
    torch.manual_seed(0)
    model = getattr(transformers, name)
    return model(model.config_class(**MODELS[name])).eval()


class Exported:
    """A model, and its generator for two rows after saving and loading."""

    def __init__(self, name: str, folder: Path) -> None:
        self.model = make(name)
        generator = torchstone.export_generation(
            self.model, max_length=MAX_LENGTH, batch_size=2, buckets=(8, 16), tokens_per_call=4
        )
        self.path = generator.save(folder / f"{name}.stone")
        self.generator = torchstone.load_generation(self.path)


@pytest.fixture(
    scope="module",
    params=[
        "MistralForCausalLM",  # has Llama's layers, and a sliding window
        pytest.param("GPT2LMHeadModel", marks=pytest.mark.conformance),
        pytest.param("LlamaForCausalLM", marks=pytest.mark.conformance),
        pytest.param("Qwen2ForCausalLM", marks=pytest.mark.conformance),
        pytest.param("MixtralForCausalLM", marks=pytest.mark.conformance),
    ],
)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(request.param, tmp_path_factory.mktemp("generators"))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported("GPT2LMHeadModel", tmp_path_factory.mktemp("gpt2"))


def tokens(rows: int, length: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (rows, length))


def eager(
    model: Any, prompt: torch.Tensor, mask: torch.Tensor | None = None, **options: Any
) -> numpy.ndarray:
    mask = torch.ones_like(prompt) if mask is None else mask
    return model.generate(prompt, attention_mask=mask, do_sample=False, **options).numpy()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("length", [1, 7, 8, 9, 16])
def test_greedy_tokens_are_those_of_the_model(exported: Exported, length: int) -> None:
    prompt = tokens(2, length)
    found = exported.generator.generate(prompt, max_new_tokens=MAX_LENGTH - length)
    assert found.dtype == numpy.int64
    numpy.testing.assert_array_equal(found, eager(exported.model, prompt, max_new_tokens=MAX_LENGTH - length))
    assert len(set(found[0, length:].tolist())) > 4


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "MistralForCausalLM"])
def test_decoding_reads_the_columns_that_it_needs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(name)
    sizes: dict[str, Any] = {"max_length": MAX_LENGTH, "batch_size": 2, "buckets": (8,), "tokens_per_call": 4}
    generator = torchstone.export_generation(model, decode_lengths=(20, 12), **sizes)
    assert generator.settings.decode_lengths == (12, 20, MAX_LENGTH)
    programs: list[str] = []
    load = generator._program
    monkeypatch.setattr(generator, "_program", lambda name: programs.append(name) or load(name))
    prompt = tokens(2, 5)
    for length in (7, 8, 9, 40):
        found = generator.generate(prompt, max_new_tokens=length)
        numpy.testing.assert_array_equal(found, eager(model, prompt, max_new_tokens=length))
    assert programs[:3] == ["prefill_8", "greedy_12", "greedy_12"]  # for 5 + 4 and 5 + 7 columns
    assert programs[-11:-5] == ["prefill_8", "greedy_12", "greedy_20", "greedy_20", "greedy", "greedy"]
    whole = torchstone.export_generation(model, **sizes)
    options: dict[str, Any] = {"max_new_tokens": 40, "do_sample": True, "seed": 7}
    numpy.testing.assert_array_equal(generator.generate(prompt, **options), whole.generate(prompt, **options))


@pytest.mark.conformance
def test_constants_of_the_model_reach_the_loop(tmp_path: Path) -> None:
    """Falcon makes tensors of numbers in its attention."""
    falcon = Exported("FalconForCausalLM", tmp_path)
    prompt = tokens(2, 6)
    found = falcon.generator.generate(prompt, max_new_tokens=20)
    numpy.testing.assert_array_equal(found, eager(falcon.model, prompt, max_new_tokens=20))


def test_operations_in_the_loop_know_their_source_lines(gpt2: Exported) -> None:
    text = text_of(gpt2.generator._stored.programs["greedy"].module, debug_info=True)
    assert "modeling_gpt2.py" in text
    assert "transformer.h.1.attn" in text


@pytest.mark.kept("2")
@pytest.mark.parametrize("rows", [1, 2])
def test_weights_of_linear_layers_lie_transposed_for_several_rows(rows: int) -> None:
    model = make("LlamaForCausalLM")
    before = {id(one) for one in model.parameters()}, [type(one) for one in model.modules()]
    weight = model.model.layers[1].mlp.gate_proj.weight
    name = "model.model.layers.1.mlp.gate_proj"
    stored = f"{name}.transposed_weight" if rows > 1 else f"{name}.weight"
    generator = torchstone.export_generation(model, max_length=12, batch_size=rows, buckets=(4,))
    weights = generator._stored.weights
    assert [one for one in weights if one.startswith(name)] == [stored]
    expected = weight.detach().numpy()
    numpy.testing.assert_array_equal(weights[stored], expected.T if rows > 1 else expected)
    assert before == ({id(one) for one in model.parameters()}, [type(one) for one in model.modules()])


@pytest.mark.conformance
def test_a_tied_weight_is_stored_once_and_transposed_for_several_rows() -> None:
    model = make("GPT2LMHeadModel")
    expected = model.lm_head.weight.detach().numpy()
    for rows, stored in ((1, "weight"), (2, "transposed_weight")):
        generator = torchstone.export_generation(model, max_length=12, batch_size=rows, buckets=(4,))
        weights = generator._stored.weights
        embedding, head = weights[f"model.transformer.wte.{stored}"], weights[f"model.lm_head.{stored}"]
        assert numpy.shares_memory(embedding, head)
        numpy.testing.assert_array_equal(head, expected.T if rows > 1 else expected)


@pytest.mark.parametrize("keeps", ["another class", "max_norm", "another name"])
def test_a_weight_that_another_module_reads_stays_as_it_is(keeps: str) -> None:
    class Scaled(torch.nn.Embedding):
        pass

    linear = torch.nn.Linear(3, 5, bias=False)
    embedding: torch.nn.Module = torch.nn.Embedding(5, 3, max_norm=1.0 if keeps == "max_norm" else None)
    if keeps == "another class":
        embedding = Scaled(5, 3)
    embedding.weight = linear.weight
    model = torch.nn.ModuleDict({"linear": linear, "embedding": embedding})
    if keeps == "another name":
        embedding = model["embedding"] = torch.nn.Module()
        embedding.bias = linear.weight
    made = with_transposed_weights(model)
    assert isinstance(made, torch.nn.ModuleDict)
    assert made["linear"].weight is linear.weight
    assert set(dict(made.named_parameters())) == {"linear.weight"}


def test_prompts_of_different_lengths(exported: Exported) -> None:
    prompt, mask = tokens(2, 11), torch.ones(2, 11, dtype=torch.int64)
    mask[0, :6] = 0
    found = exported.generator.generate(prompt, mask, max_new_tokens=20)
    numpy.testing.assert_array_equal(found, eager(exported.model, prompt, mask, max_new_tokens=20))
    alone = exported.generator.generate(prompt[:1, 6:], max_new_tokens=20)
    numpy.testing.assert_array_equal(found[:1, 11:], alone[:, 5:])


def test_rows_end_with_an_end_token(exported: Exported) -> None:
    prompt = tokens(2, 5)
    free = eager(exported.model, prompt, max_new_tokens=30)[:, 5:]
    late = {int(token): int((free[1] == token).argmax()) for token in set(free[1].tolist()) - set(free[0])}
    end = max(late, key=lambda token: late[token])
    other = int(free[0, 2])
    for ends in ([end, other], [other], [end]):
        options = {"eos_token_id": ends, "pad_token_id": 3, "max_new_tokens": 30}
        found = exported.generator.generate(prompt, **options)
        numpy.testing.assert_array_equal(found, eager(exported.model, prompt, **options))
    numpy.testing.assert_array_equal(
        exported.generator.generate(prompt, max_new_tokens=30, eos_token_id=[end, other]),
        eager(exported.model, prompt, max_new_tokens=30, eos_token_id=[end, other], pad_token_id=end),
    )


def test_a_saved_generator_runs_without_torch(exported: Exported) -> None:
    prompt = tokens(2, 9)
    code = f"""
import sys
sys.modules.update(torch=None, transformers=None)
import torchstone
generator = torchstone.load_generation({str(exported.path)!r})
prompt = {prompt.tolist()}
print(generator.generate(prompt, max_new_tokens=10).tolist())
print(generator.generate(prompt, max_new_tokens=10, do_sample=True, seed=5).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    greedy, sampled = done.stdout.splitlines()
    assert greedy == str(eager(exported.model, prompt, max_new_tokens=10).tolist())
    same = exported.generator.generate(prompt, max_new_tokens=10, do_sample=True, seed=5)
    assert sampled == str(same.tolist())


def test_calls_of_several_threads_do_not_disturb_each_other(gpt2: Exported) -> None:
    prompts = [tokens(1, length) for length in (3, 5, 7, 9)]
    found: dict[int, numpy.ndarray] = {}

    def run(place: int) -> None:
        found[place] = gpt2.generator.generate(prompts[place], max_new_tokens=25)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for place, prompt in enumerate(prompts):
        numpy.testing.assert_array_equal(found[place], eager(gpt2.model, prompt, max_new_tokens=25))


# --- the cache and the weights ---------------------------------------------------------


def pointers(buffers: list[Any]) -> list[int]:
    return [buffer.to_numpy().ctypes.data for buffer in buffers]


@pytest.mark.kept("greedy")
@pytest.mark.parametrize("program", ["greedy", "greedy_20"])
def test_the_cache_is_updated_in_place(gpt2: Exported, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    generator = gpt2.generator
    if program != "greedy":
        sizes: dict[str, Any] = {"max_length": MAX_LENGTH, "batch_size": 2, "tokens_per_call": 4}
        generator = torchstone.export_generation(gpt2.model, buckets=(8,), decode_lengths=(20,), **sizes)
    generator.generate(tokens(2, 5), max_new_tokens=2)
    decode = generator._programs[program]
    calls = []

    def watched(given: dict[str, Any]) -> Any:
        names = [name for name in given if name.startswith("caches_")]
        before = pointers([given[name] for name in names])
        result = decode(given)
        gone = [given[name].is_deleted() for name in names]
        calls.append((before, pointers([result[name] for name in names]), gone))
        return result

    monkeypatch.setitem(generator._programs, program, watched)
    generator.generate(tokens(2, 5), max_new_tokens=12)
    assert len(calls) == 3
    for before, after, gone in calls:
        assert len(before) == 4
        assert before == after
        assert all(gone)


def test_weights_are_stored_once(gpt2: Exported) -> None:
    with zipfile.ZipFile(gpt2.path) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
        description = json.loads(archive.read("generation.json"))
    programs = ["prefill_8", "prefill_16", "greedy", "sample"]
    expected = {f"{name}.stablehlo" for name in programs} | {"generation.json", "weights.safetensors"}
    assert set(sizes) == expected
    assert list(description["programs"]) == programs
    own = sum(weight.nbytes for weight in gpt2.model.parameters())  # parameters() lists tied weights once
    assert own <= sizes["weights.safetensors"] < own + 8000


def test_a_generator_can_be_saved_again(gpt2: Exported, tmp_path: Path) -> None:
    again = gpt2.generator.save(tmp_path / "again.stone")
    assert again.read_bytes() == gpt2.path.read_bytes()


# --- sampling --------------------------------------------------------------------------

CUTS = [
    {},
    {"temperature": 0.6},
    {"temperature": 1.7, "top_k": 5},
    {"top_p": 0.7},
    {"top_p": 0.0},
    {"temperature": 1.3, "top_k": 12, "top_p": 0.85},
    {"top_k": 10_000},
]


def warped(
    logits: torch.Tensor, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
) -> torch.Tensor:
    """Return the probabilities from which transformers draws."""
    scores = transformers.TemperatureLogitsWarper(temperature)(None, logits)
    if top_k:
        scores = transformers.TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = transformers.TopPLogitsWarper(top_p)(None, scores)
    return scores.softmax(-1)


@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_tokens_are_drawn_from_the_distribution_of_transformers(cuts: dict[str, Any]) -> None:
    count = 20_000
    logits = torch.randn(1, VOCABULARY) * 2
    logits[0, 7:10] = logits[0, 6]  # four equal probabilities, also at the cut of top_k
    uniform = (torch.arange(count) + 0.5) / count
    options = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, **cuts}
    found = drawn(logits.expand(count, -1), uniform, *map(torch.tensor, options.values()))
    share = torch.bincount(found, minlength=VOCABULARY) / count
    torch.testing.assert_close(share, warped(logits, **cuts)[0], atol=2 / count, rtol=0)


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_the_ends_of_the_unit_interval_draw_tokens_that_are_kept(uniform: float) -> None:
    logits = torch.randn(50, 5000)
    logits[:, 100:] = float("-inf")
    found = drawn(logits, torch.full((50,), uniform), torch.tensor(1.0), torch.tensor(0), torch.tensor(1.0))
    assert (found < 100).all()


@pytest.mark.kept("{'top_k': 4}")
@pytest.mark.parametrize("cuts", [{"top_k": 4}, {"temperature": 2.0, "top_k": 0, "top_p": 0.6}], ids=str)
def test_pairs_of_tokens_are_drawn_from_the_distribution_of_the_model(
    gpt2: Exported, cuts: dict[str, Any]
) -> None:
    prompt = tokens(1, 6).expand(2, -1)
    calls = [
        gpt2.generator.generate(prompt, max_new_tokens=2, do_sample=True, seed=seed, **cuts)[:, 6:]
        for seed in range(1000)
    ]
    found = numpy.concatenate(calls)
    with torch.no_grad():
        first = warped(gpt2.model(prompt[:1]).logits[:, -1], **cuts)[0]
        longer = torch.cat([prompt[:1].expand(VOCABULARY, -1), torch.arange(VOCABULARY)[:, None]], 1)
        second = warped(gpt2.model(longer).logits[:, -1], **cuts)
    expected = (first[:, None] * second).double().numpy()
    observed = numpy.zeros_like(expected)
    numpy.add.at(observed, (found[:, 0], found[:, 1]), 1)
    assert not observed[expected == 0].any()
    often = expected * len(found) >= 5
    cells = numpy.append(observed[often], observed[~often].sum())
    shares = numpy.append(expected[often], expected[~often].sum()) / expected.sum()
    kept = shares > 0
    assert kept.sum() > 8
    assert scipy.stats.chisquare(cells[kept], shares[kept] * len(found)).pvalue > 1e-3


def test_seeds_repeat_and_differ(gpt2: Exported) -> None:
    prompt = tokens(2, 4)
    options: dict[str, Any] = {"max_new_tokens": 24, "do_sample": True, "temperature": 3.0, "top_k": 0}
    one, same, other = (gpt2.generator.generate(prompt, seed=seed, **options) for seed in (1, 1, 2))
    numpy.testing.assert_array_equal(one, same)
    assert (one != other).any()
    torch.manual_seed(3)
    first = gpt2.generator.generate(prompt, **options)
    second = gpt2.generator.generate(prompt, **options)
    torch.manual_seed(3)
    numpy.testing.assert_array_equal(first, gpt2.generator.generate(prompt, **options))
    assert (first != second).any()


def test_draws_are_uniform_and_independent(gpt2: Exported) -> None:
    """With zero weights all tokens are equally probable, so they show which random numbers were drawn."""
    stored = gpt2.generator._stored
    zeros = {name: numpy.zeros_like(weight) for name, weight in stored.weights.items()}
    flat = Generator(replace(stored, weights=zeros))
    options: dict[str, Any] = {"max_new_tokens": 40, "do_sample": True, "top_k": 0}
    draws = numpy.stack([flat.generate([[1], [1]], seed=seed, **options)[:, 1:] for seed in range(150)])
    assert scipy.stats.chisquare(numpy.bincount(draws.ravel(), minlength=VOCABULARY)).pvalue > 1e-3
    coarse = draws // 8  # groups of 8 tokens, 0 to 7; the last one has 5
    neighbors = {
        "seeds": (coarse[:-1], coarse[1:]),
        "rows": (coarse[:, 0], coarse[:, 1]),
        "steps": (coarse[..., :-1], coarse[..., 1:]),
        "calls": (coarse[..., :-4], coarse[..., 4:]),  # calls of the program, which draws 4 tokens
    }
    for name, (one, other) in neighbors.items():
        table = numpy.zeros((8, 8))
        numpy.add.at(table, (one.ravel(), other.ravel()), 1)
        assert scipy.stats.chi2_contingency(table).pvalue > 1e-3, name


def test_options_of_the_generation_config_are_the_defaults() -> None:
    from torchstone.generation.models import settings_of

    model = make("GPT2LMHeadModel")
    model.generation_config.update(do_sample=True, temperature=0.5, top_k=3, top_p=0.9, eos_token_id=[4, 99])
    settings = settings_of(model, 8, 1, None, None, 1)
    assert (settings.buckets, settings.decode_lengths) == ((8,), (8,))
    assert (settings.do_sample, settings.temperature, settings.top_k, settings.top_p) == (True, 0.5, 3, 0.9)
    assert settings.eos_token_id == (4,)  # 99 is left out, because no logits exist for it


# --- what is refused -------------------------------------------------------------------

PROMPT = [[1, 2, 3]]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (
            (PROMPT,),
            {"max_new_tokens": 46},
            "max_new_tokens=46: after a prompt of 3 the cache has room for 45",
        ),
        ((PROMPT,), {"max_new_tokens": 0}, "max_new_tokens=0"),
        ((PROMPT,), {"max_new_tokens": 2.5}, "max_new_tokens=2.5 is not an integer"),
        (([[1] * 17],), {}, "the prompt has 17 tokens; the largest bucket has 16"),
        ((PROMPT * 3,), {}, "input_ids have 3 rows; the generator was exported for 2"),
        (([1, 2],), {}, r"input_ids must be integers \[rows, length\]; found int64\[2\]"),
        (([[]],), {}, r"found float64\[1, 0\]"),
        (([[1.0]],), {}, r"found float64\[1, 1\]"),
        (([[1], [2, 3]],), {}, "input_ids cannot become an array"),
        (([[1, VOCABULARY]],), {}, "input_ids has the token 61; the vocabulary ends at 60"),
        (([[-1]],), {}, "input_ids has the token -1"),
        ((PROMPT, [[1, 1]]), {}, r"attention_mask must be 0 or 1 .* \[1, 3\]; found shape \[1, 2\]"),
        ((PROMPT, [[0, 2, 1]]), {}, "attention_mask must be 0 or 1"),
        ((PROMPT, [[1, 1, 0]]), {}, "attention_mask hides the last token of a row"),
        ((PROMPT,), {"temperature": 0.5, "seed": 1}, "temperature, seed would be ignored"),
        ((PROMPT,), {"do_sample": True, "temperature": 0.0}, "temperature=0.0 is not a positive number"),
        ((PROMPT,), {"do_sample": True, "temperature": "hot"}, "temperature='hot' is not a positive number"),
        ((PROMPT,), {"do_sample": True, "top_k": -1}, "top_k=-1 is negative"),
        ((PROMPT,), {"do_sample": True, "top_p": 1.5}, "top_p=1.5 is not a probability"),
        ((PROMPT,), {"do_sample": True, "seed": -1}, "seed=-1 is not an unsigned integer"),
        ((PROMPT,), {"eos_token_id": [1, 61]}, "eos_token_id has the token 61"),
        ((PROMPT,), {"eos_token_id": "</s>"}, "eos_token_id='</s>' is not an integer"),
        ((PROMPT,), {"pad_token_id": -5}, "pad_token_id has the token -5"),
    ],
)
def test_wrong_calls(gpt2: Exported, arguments: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputMismatch, match=message):
        gpt2.generator.generate(*arguments, **{"max_new_tokens": 4, **options})


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"max_length": 0}, "max_length=0 is not a positive integer"),
        ({"batch_size": 1.0}, "batch_size=1.0 is not a positive integer"),
        ({"tokens_per_call": -1}, "tokens_per_call=-1 is not a positive integer"),
        ({"max_length": 49}, "max_length=49 is more than the 48 positions of GPT2LMHeadModel"),
        ({"buckets": (4, 41)}, r"buckets=\(4, 41\) are not lengths of prompts"),
        ({"buckets": ()}, r"buckets=\(\) are not lengths"),
        ({"decode_lengths": (8, 41)}, r"decode_lengths=\(8, 41\) are not numbers of columns"),
        ({"decode_lengths": (1.0,)}, r"decode_lengths=\(1.0,\) are not numbers of columns"),
    ],
)
def test_wrong_sizes(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        torchstone.export_generation(make("GPT2LMHeadModel"), **{"max_length": 40, **sizes})


def mamba() -> Any:
    return transformers.MambaForCausalLM(
        transformers.MambaConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, state_size=2)
    ).eval()


def t5() -> Any:
    config = transformers.T5Config(vocab_size=9, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    return transformers.T5ForConditionalGeneration(config).eval()


def penalized() -> Any:
    model = make("GPT2LMHeadModel")
    model.generation_config.repetition_penalty = 1.3
    return model


def cold() -> Any:
    model = make("GPT2LMHeadModel")
    model.generation_config.temperature = 0.0
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (cold, "generation config has temperature=0.0, with which tokens cannot be drawn"),
        (lambda: torch.nn.Linear(2, 2), "transformers cannot generate text with a Linear"),
        (lambda: make("GPT2LMHeadModel").train(), "GPT2LMHeadModel is in training mode"),
        (mamba, "MambaForCausalLM has a recurrent state: a generator needs a decoder"),
        (t5, "T5ForConditionalGeneration has an encoder"),
        (penalized, "generation config has repetition_penalty=1.3, which a generator lacks"),
    ],
)
def test_models_that_cannot_be_exported(model: Any, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        torchstone.export_generation(model(), max_length=16)


def rewritten(path: Path, target: Path, change: Any) -> Path:
    """The file with another ``generation.json``."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    description = json.loads(members["generation.json"])
    change(description)
    members["generation.json"] = json.dumps(description).encode()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one["settings"].pop("top_k"), "'top_k' is missing"),
        (lambda one: one["settings"].update(buckets=[16, 8]), "buckets"),
        (lambda one: one["settings"].update(decode_lengths=[8]), "decode_lengths"),
        (lambda one: one["settings"].update(decode_lengths=48), "decode_lengths"),
        (lambda one: one["settings"].update(eos_token_id=[61]), "a token of the settings"),
        (lambda one: one["settings"].update(temperature=-1.0), "temperature"),
        (lambda one: one["settings"].update(batch_size=3), "the inputs of prefill_8"),
        (lambda one: one["programs"].pop("greedy"), "its programs are"),
        (lambda one: one["programs"]["greedy"]["inputs"].pop(), "input_tree"),
        (lambda one: one["sha256"].update({"greedy.stablehlo": "0"}), "greedy.stablehlo is not what"),
        (lambda one: one.update(generation_version=0), "format version 0"),
    ],
)
def test_damaged_files(gpt2: Exported, tmp_path: Path, change: Any, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        torchstone.load_generation(rewritten(gpt2.path, tmp_path / "bad.stone", change))


def test_other_files(gpt2: Exported, tmp_path: Path) -> None:
    newer = rewritten(gpt2.path, tmp_path / "new.stone", lambda one: one.update(generation_version=9))
    with pytest.raises(ArtifactVersionError, match="format version 9"):
        torchstone.load_generation(newer)
    program = torchstone.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)).save(tmp_path / "program.stone")
    with pytest.raises(ArtifactError, match=r"one program.*\n  next: load it with torchstone\.load$"):
        torchstone.load_generation(program)
    with pytest.raises(ArtifactError, match=r"generator.*\n  next: .*torchstone\.load_generation$"):
        torchstone.load(gpt2.path)
    whole = gpt2.path.read_bytes()
    cut = tmp_path / "cut.stone"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ArtifactError, match="not a usable artifact"):
        torchstone.load_generation(cut)
    with pytest.raises(ArtifactError, match="cannot read the artifact"):
        torchstone.load_generation(tmp_path / "absent.stone")


def test_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith("torchstone.generation.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(torchstone.errors.MissingExtra, match="needs Hugging Face transformers"):
        torchstone.export_generation(torch.nn.Linear(2, 2), max_length=4)
