"""Current architectures of Hugging Face transformers and diffusers, tiny: random weights, dropout 0.

A factory returns ``(model, inputs)``. Sizes are as small as an architecture allows, but every kind of block
is present. Not here: networks large enough to be timed (:mod:`.families`, :mod:`.networks`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from ...errors import MissingExtra
from .networks import transformers_or_missing

Case = tuple[nn.Module, tuple[Any, ...]]
Settings = dict[str, Any]
Tensor = torch.Tensor

_WORDS, _FIRST_WORD = 120, 4
"""Size of vocabularies, and the first word that has no special meaning."""
_ALWAYS: Settings = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_TEXT: Settings = {**_ALWAYS, "vocab_size": _WORDS, "intermediate_size": 64}
_SPECIAL: Settings = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_DECODER: Settings = {**_TEXT, "num_key_value_heads": 2, "use_cache": False}
_HEADS: Settings = {"head_dim": 8}
_WITHOUT_DROPOUT: Settings = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_ENCODER: Settings = {**_TEXT, **_WITHOUT_DROPOUT}
_IMAGES: Settings = {**_ENCODER, "image_size": 32, "patch_size": 8}
_EXPERTS: Settings = {"experts_implementation": "batched_mm", "num_experts_per_tok": 2}
"""All experts compute in one batched product; the other form, a loop, depends on values."""
_BOTH: Settings = {
    "vocab_size": _WORDS,
    "d_model": 32,
    "dropout": 0.0,
    **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
    **{f"{part}_attention_heads": 4 for part in ("encoder", "decoder")},
    **{f"{part}_ffn_dim": 64 for part in ("encoder", "decoder")},
}
"""Settings of an encoder and a decoder, with the names of BART's configuration."""


class Named(nn.Module):
    """A wrapper that takes the inputs of ``model`` by position; ``fixed`` are further arguments."""

    def __init__(self, model: nn.Module, *names: str, **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, *inputs: Tensor) -> Any:
        return self.model(**dict(zip(self.names, inputs, strict=True)), **self.fixed)


def _model(kind: str, head: str, **settings: Any) -> nn.Module:
    transformers = transformers_or_missing()
    made: nn.Module = getattr(transformers, kind + head)(getattr(transformers, f"{kind}Config")(**settings))
    return made


def _tokens(length: int = 12) -> Tensor:
    return torch.randint(_FIRST_WORD, _WORDS, (2, length))


def _image(size: int = 32) -> Tensor:
    return torch.randn(2, 3, size, size)


def text(kind: str, head: str, **settings: Any) -> Case:
    """A model of tokens."""
    return _model(kind, head, **settings), (_tokens(),)


def vision(kind: str, head: str, size: int = 32, **settings: Any) -> Case:
    """A model of images."""
    return _model(kind, head, **settings), (_image(size),)


def gemma3() -> Case:
    """Sliding-window attention and full attention, alternating by layer."""
    layers = ["sliding_attention", "full_attention"]
    transformers = transformers_or_missing()
    config = transformers.Gemma3TextConfig(**_DECODER, **_HEADS, sliding_window=8, layer_types=layers)
    return transformers.Gemma3ForCausalLM(config), (_tokens(),)


def deepseek_v3() -> Case:
    """Latent attention; a dense layer, then a mixture of experts that are chosen by groups."""
    latent = {"kv_lora_rank": 16, "q_lora_rank": 16, "v_head_dim": 8}
    heads = {"qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "num_key_value_heads": 4}
    chosen = {"n_routed_experts": 4, "n_group": 2, "topk_group": 1, "n_shared_experts": 1}
    depth = {"first_k_dense_replace": 1, "moe_intermediate_size": 32}
    return text("DeepseekV3", "ForCausalLM", **{**_DECODER, **latent, **heads, **chosen, **depth, **_EXPERTS})


def mamba2() -> Case:
    """A state space model that computes in chunks."""
    state = {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "expand": 2, "chunk_size": 4}
    width = {"vocab_size": _WORDS, "hidden_size": 32, "num_hidden_layers": 2, "use_cache": False}
    return text("Mamba2", "ForCausalLM", **state, **width, **_SPECIAL)


def deberta_v2() -> Case:
    """An encoder whose attention combines content and relative position."""
    relative = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 16}
    return text("DebertaV2", "Model", **_ENCODER, **relative, position_biased_input=False, pooler_dropout=0.0)


def encoder_decoder(kind: str, first: str = "input_ids", **settings: Any) -> Case:
    """A model that reads one sequence and writes another."""
    model = _model(kind, "ForConditionalGeneration", **settings)
    given = torch.randn(2, settings["num_mel_bins"], 40) if first == "input_features" else _tokens()
    return Named(model, first, "decoder_input_ids", use_cache=False), (given, _tokens(7))


def segformer() -> Case:
    """A pyramid of transformers that labels every pixel."""
    stages = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4]}
    dropped: Settings = {"drop_path_rate": 0.0, **_WITHOUT_DROPOUT}
    head: Settings = {"decoder_hidden_size": 16, "classifier_dropout_prob": 0.0, "num_labels": 5}
    return vision("Segformer", "ForSemanticSegmentation", 64, **stages, **dropped, **head)


def swinv2() -> Case:
    """Attention in windows that are shifted, by cosine."""
    sizes = {"image_size": 32, "patch_size": 4, "embed_dim": 16, "window_size": 4}
    dropped: Settings = {"drop_path_rate": 0.0, **_WITHOUT_DROPOUT}
    return vision("Swinv2", "ForImageClassification", depths=[1, 1], num_heads=[2, 4], **sizes, **dropped)


def detr() -> Case:
    """Detection: a ResNet, an encoder, and a decoder of queries. In training it looks at values."""
    transformers = transformers_or_missing()
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], out_features=["stage4"]
    )
    own = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
    sizes = {name: size for name, size in _BOTH.items() if name != "vocab_size"}
    return vision(
        "Detr",
        "ForObjectDetection",
        64,
        **{**sizes, **own},
        backbone_config=backbone,
        num_queries=5,
        num_labels=4,
    )


def wav2vec2() -> Case:
    """Speech: convolutions over a waveform, then an encoder."""
    convolutions = {"conv_dim": [16, 16], "conv_stride": [5, 2], "conv_kernel": [10, 3]}
    positions = {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
    parts = ("hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout")
    dropped = dict.fromkeys((*parts, "final_dropout", "layerdrop"), 0.0)
    own = {**_TEXT, "vocab_size": 20, "apply_spec_augment": False}
    return _model("Wav2Vec2", "ForCTC", **own, **convolutions, **positions, **dropped), (torch.randn(2, 800),)


def _two_towers(kind: str, **sizes: Any) -> Case:
    """A model of texts and images, which compares them."""
    words = {**_TEXT, "max_position_embeddings": 16, **sizes}
    images = {**_ALWAYS, "intermediate_size": 64, "image_size": 32, "patch_size": 8, **sizes}
    model = _model(kind, "Model", text_config=words, vision_config=images)
    return Named(model, "input_ids", "pixel_values"), (_tokens(), _image())


def diffusers_or_missing() -> Any:
    """Import Hugging Face diffusers; raises :class:`MissingExtra` if it is not installed."""
    try:
        import diffusers
    except ImportError as error:
        raise MissingExtra("this model needs Hugging Face diffusers", extra="models") from error
    return diffusers


def unet_with_conditions() -> Case:
    """A diffusion U-Net that attends to a text."""
    model = diffusers_or_missing().UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(16, 32),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=8,
        norm_num_groups=4,
    )
    given = torch.randn(2, 4, 16, 16), torch.tensor([3, 500]), torch.randn(2, 5, 16)
    return Named(model, "sample", "timestep", "encoder_hidden_states"), given


def diffusion_transformer() -> Case:
    """Stable Diffusion 3: two streams of tokens in common attention."""
    model = diffusers_or_missing().SD3Transformer2DModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=16,
        caption_projection_dim=32,
        pooled_projection_dim=16,
        pos_embed_max_size=8,
    )
    names = "hidden_states", "encoder_hidden_states", "pooled_projections", "timestep"
    return Named(model, *names), (
        torch.randn(2, 4, 8, 8),
        torch.randn(2, 5, 16),
        torch.randn(2, 16),
        torch.rand(2),
    )


def image_autoencoder() -> Case:
    """The autoencoder of latent diffusion."""
    model = diffusers_or_missing().AutoencoderKL(
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=4,
        layers_per_block=1,
    )
    return model, (torch.randn(2, 3, 16, 16),)


_causal = partial(text, head="ForCausalLM")

ARCHITECTURES: dict[str, Callable[[], Case]] = {
    "tiny-llama": partial(_causal, "Llama", **_DECODER),
    "tiny-mistral": partial(_causal, "Mistral", **_DECODER, sliding_window=8),
    "tiny-qwen3": partial(_causal, "Qwen3", **_DECODER, **_HEADS),
    "tiny-gemma3": gemma3,
    "tiny-phi3": partial(_causal, "Phi3", **_DECODER, **_SPECIAL),
    "tiny-olmo2": partial(_causal, "Olmo2", **_DECODER, pad_token_id=0),
    "tiny-gpt-neox": partial(_causal, "GPTNeoX", **_TEXT, use_cache=False),
    "tiny-opt": partial(
        _causal, "OPT", **_TEXT, ffn_dim=64, word_embed_proj_dim=32, dropout=0.0, use_cache=False
    ),
    "tiny-mixtral": partial(_causal, "Mixtral", **_DECODER, **_EXPERTS, num_local_experts=4),
    "tiny-qwen3-moe": partial(
        _causal, "Qwen3Moe", **_DECODER, **_HEADS, **_EXPERTS, num_experts=4, moe_intermediate_size=32
    ),
    "tiny-deepseek-v3": deepseek_v3,
    "tiny-mamba": partial(
        _causal,
        "Mamba",
        vocab_size=_WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        state_size=8,
        use_cache=False,
    ),
    "tiny-mamba2": mamba2,
    "tiny-bert": partial(text, "Bert", "ForMaskedLM", **_ENCODER),
    "tiny-roberta": partial(text, "Roberta", "ForSequenceClassification", **_ENCODER, pad_token_id=1),
    "tiny-electra": partial(text, "Electra", "ForTokenClassification", **_ENCODER, embedding_size=16),
    "tiny-deberta-v2": deberta_v2,
    "tiny-modernbert": partial(
        text,
        "ModernBert",
        "ForMaskedLM",
        **_TEXT,
        local_attention=8,
        global_attn_every_n_layers=2,
        pad_token_id=0,
    ),
    "tiny-t5": partial(
        encoder_decoder,
        "T5",
        vocab_size=_WORDS,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
    ),
    "tiny-bart": partial(encoder_decoder, "Bart", **_BOTH, max_position_embeddings=64),
    "tiny-vit": partial(vision, "ViT", "ForImageClassification", **_IMAGES),
    "tiny-dinov2": partial(vision, "Dinov2", "ForImageClassification", **_IMAGES, mlp_ratio=2),
    "tiny-convnextv2": partial(
        vision, "ConvNextV2", "ForImageClassification", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1]
    ),
    "tiny-swinv2": swinv2,
    "tiny-segformer": segformer,
    "tiny-detr": detr,
    "tiny-yolos": partial(
        vision, "Yolos", "ForObjectDetection", **{**_IMAGES, "image_size": [32, 32]}, num_detection_tokens=5
    ),
    "tiny-wav2vec2": wav2vec2,
    "tiny-whisper": partial(
        encoder_decoder,
        "Whisper",
        "input_features",
        **_BOTH,
        **_SPECIAL,
        num_mel_bins=16,
        max_source_positions=20,
        max_target_positions=20,
        decoder_start_token_id=1,
    ),
    "tiny-clip": partial(_two_towers, "CLIP", projection_dim=16),
    "tiny-siglip": partial(_two_towers, "Siglip"),
    "tiny-diffusion-unet": unet_with_conditions,
    "tiny-sd3": diffusion_transformer,
    "tiny-image-autoencoder": image_autoencoder,
}
"""The architectures by the names that commands take.

They are decoders, mixtures of experts, state space models, encoders, encoders with decoders, and models of
images, detection, speech, texts with images, and diffusion.
"""


def made(name: str) -> Case:
    """Make the architecture with that name in evaluation mode, always with the same values.

    Raises :class:`MissingExtra` without transformers or diffusers.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, inputs = ARCHITECTURES[name]()
    return model.eval(), inputs
