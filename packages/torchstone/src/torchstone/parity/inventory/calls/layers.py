"""Operators of layers: convolution, pooling, normalization, padding, loss, embedding, attention, RNN."""

from __future__ import annotations

from .call import Call, Operator, family

family(
    "convolution",
    {
        "conv1d": ["F.conv1d(signal, kernel, filters)", "F.conv1d(signal, kernel, stride=2, padding=1)"],
        "conv2d": [
            "F.conv2d(image, kernel2d, filters)",
            "F.conv2d(image, kernel2d, stride=2, padding=1, dilation=(1, 2))",
        ],
        "conv3d": ["F.conv3d(volume, kernel3d, triple)"],
        "conv_transpose1d": [
            "F.conv_transpose1d(signal, transposed, filters)",
            "F.conv_transpose1d(signal, transposed, stride=2, padding=1, output_padding=1)",
        ],
        "conv_transpose2d": ["F.conv_transpose2d(image, transposed2d, filters, stride=2)"],
        "conv_transpose3d": ["F.conv_transpose3d(volume, transposed3d, triple)"],
        "depthwise_conv2d": ["F.conv2d(image, depthwise, channels, padding=1, groups=4)"],
        "separable_conv2d": ["F.conv2d(F.conv2d(image, depthwise, groups=4), pointwise, filters)"],
    },
)
family(
    "pooling",
    {
        "max_pool1d": ["F.max_pool1d(signal, 2)", "F.max_pool1d(signal, 3, 2, padding=1)"],
        "max_pool2d": [
            "F.max_pool2d(image, 2)",
            "F.max_pool2d(image, 3, 2, padding=1, ceil_mode=True)",
            "F.max_pool2d(image, 2, return_indices=True)",
        ],
        "avg_pool1d": ["F.avg_pool1d(signal, 2)", "F.avg_pool1d(signal, 3, 2, padding=1)"],
        "avg_pool2d": ["F.avg_pool2d(image, 2)", "F.avg_pool2d(image, 3, 2, 1, count_include_pad=False)"],
        "adaptive_avg_pool2d": ["F.adaptive_avg_pool2d(image, (2, 3))", "F.adaptive_avg_pool2d(image, 1)"],
        "adaptive_max_pool1d": ["F.adaptive_max_pool1d(signal, 3)"],
        "adaptive_max_pool2d": ["F.adaptive_max_pool2d(image, (2, 3))"],
    },
)
family(
    "normalization",
    {
        "batch_norm": [
            "F.batch_norm(image, None, None, channels, channels, training=True)",
            "nn.BatchNorm2d(4)(image)",
        ],
        "layer_norm": ["F.layer_norm(x, (4,), row, row)", "nn.LayerNorm((3, 4))(cube)"],
        "instance_norm": ["F.instance_norm(image)", "nn.InstanceNorm1d(4, affine=True)(signal)"],
        "group_norm": ["F.group_norm(image, 2, channels, channels)", "nn.GroupNorm(4, 4)(signal)"],
        "local_response_norm": ["F.local_response_norm(image, 3)"],
    },
)
family(
    "padding",
    {
        "pad": ["F.pad(x, (1, 2))", "F.pad(cube, (1, 2, 0, 1), mode='replicate')"],
        "constant_pad": ["F.pad(x, (1, -1, 2, 0), value=2)", "nn.ConstantPad1d(1, 3)(x)"],
        "reflect_pad": ["F.pad(cube, (1, 2), mode='reflect')", "nn.ReflectionPad2d(1)(image)"],
        "circular_pad": ["F.pad(cube, (1, 2), mode='circular')", "nn.CircularPad2d(1)(image)"],
    },
)
family(
    "loss",
    {
        "nn.CrossEntropyLoss": [
            "nn.CrossEntropyLoss()(x, labels)",
            "nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=1)(x, labels)",
            "nn.CrossEntropyLoss(reduction='sum')(x, probabilities)",
        ],
        "nn.NLLLoss": ["nn.NLLLoss()(x, labels)", "nn.NLLLoss(ignore_index=0, reduction='sum')(x, labels)"],
        "nn.BCELoss": ["nn.BCELoss()(probabilities, mask.to(probabilities.dtype))"],
        "nn.BCEWithLogitsLoss": [
            "nn.BCEWithLogitsLoss()(x, probabilities)",
            "F.binary_cross_entropy_with_logits(x, probabilities, pos_weight=row.abs())",
        ],
        "nn.MSELoss": ["nn.MSELoss()(x, y)", "nn.MSELoss(reduction='sum')(x, y)"],
        "nn.L1Loss": ["nn.L1Loss()(x, y)", "nn.L1Loss(reduction='none')(x, y)"],
        "nn.SmoothL1Loss": ["nn.SmoothL1Loss(beta=0.5)(x, y)"],
        "nn.HuberLoss": ["nn.HuberLoss(delta=0.5)(x, y)"],
        "nn.KLDivLoss": [
            "nn.KLDivLoss(reduction='batchmean')(x, probabilities)",
            "nn.KLDivLoss(reduction='sum', log_target=True)(x, y)",
        ],
        "nn.TripletMarginLoss": ["nn.TripletMarginLoss(swap=True)(x, y, positive)"],
        "nn.CosineEmbeddingLoss": ["nn.CosineEmbeddingLoss(margin=0.1)(x, y, signs)"],
        "nn.CTCLoss": ["nn.CTCLoss()(frames, targets, input_lengths, target_lengths)"],
        "nn.PoissonNLLLoss": [
            "nn.PoissonNLLLoss()(x, positive)",
            "nn.PoissonNLLLoss(full=True)(x, positive)",
        ],
        "nn.GaussianNLLLoss": Operator([Call("nn.GaussianNLLLoss()(x, y, positive)", ruled=True)]),
    },
)
family(
    "embedding",
    {
        "nn.Embedding": ["nn.Embedding(10, 4)(tokens)"],
        "nn.Embedding(padding_idx=...)": ["nn.Embedding(10, 4, padding_idx=1)(tokens)"],
        "nn.Embedding(max_norm=...)": ["nn.Embedding(10, 4, max_norm=1.0)(tokens)"],
        "nn.Embedding(sparse=True)": Operator(
            [Call("nn.Embedding(10, 4, sparse=True)(tokens)")],
            in_eager=("aten._sparse_coo_tensor_with_dims_and_tensors.default",),
        ),
        "F.embedding": ["F.embedding(tokens, table)", "F.embedding(tokens, table, scale_grad_by_freq=True)"],
        **{
            f"nn.EmbeddingBag(mode='{mode}')": [
                f"nn.EmbeddingBag(10, 4, mode='{mode}')(tokens)",
                f"nn.EmbeddingBag(10, 4, mode='{mode}')(bags, offsets)",
            ]
            for mode in ("sum", "mean", "max")
        },
        "F.one_hot": ["F.one_hot(tokens, 10)"],
    },
)

_LAYER = "nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)"
_SDPA = "F.scaled_dot_product_attention"
family(
    "attention",
    {
        _SDPA: [f"{_SDPA}(queries, keys, values)", f"{_SDPA}(queries, keys, values, scale=0.3)"],
        f"{_SDPA}(..., is_causal=True)": [f"{_SDPA}(queries, keys, values, is_causal=True)"],
        f"{_SDPA}(..., attn_mask=...)": [
            f"{_SDPA}(queries, keys, values, attn_mask=allowed)",
            f"{_SDPA}(queries, keys, values, attn_mask=torch.where(allowed, 0, -1).to(queries.dtype))",
        ],
        "nn.MultiheadAttention": ["nn.MultiheadAttention(4, 2)(sequence, memory, memory)"],
        "nn.TransformerEncoderLayer": [f"{_LAYER}(sequence)"],
        "nn.TransformerDecoderLayer": ["nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0)(sequence, memory)"],
        "nn.TransformerEncoder": [
            f"nn.TransformerEncoder({_LAYER}, 2, enable_nested_tensor=False)(sequence)",
        ],
        "nn.TransformerDecoder": [
            "nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0), 2)(sequence, memory)"
        ],
        "nn.Transformer": ["nn.Transformer(4, 2, 1, 1, 8, dropout=0.0)(memory, sequence)"],
    },
)

_PACK = "nn.utils.rnn.pack_padded_sequence(sequence, lengths)"
_IN_FULL = Operator(
    [
        Call(
            "nn.utils.rnn.pack_padded_sequence(sequence, lengths).data",
            ruled=True,
            eager="F.pad(nn.utils.rnn.pack_padded_sequence(sequence, lengths).data, (0, 0, 0, 2))",
        ),
    ],
    reason="packed data has as many rows as the padded sequences, PyTorch's rows first, then zeros",
)
family(
    "rnn",
    {
        "nn.LSTM": [
            "nn.LSTM(4, 3)(sequence)",
            "nn.LSTM(4, 3, 2, bidirectional=True)(sequence)",
            "nn.LSTM(4, 3, proj_size=2)(sequence)",
        ],
        "nn.GRU": ["nn.GRU(4, 3)(sequence)", "nn.GRU(4, 3, batch_first=True, bidirectional=True)(sequence)"],
        "nn.RNN": ["nn.RNN(4, 3)(sequence)", "nn.RNN(4, 3, nonlinearity='relu')(sequence)"],
        "nn.LSTMCell": ["nn.LSTMCell(4, 3)(step, (state, cell))"],
        "nn.GRUCell": ["nn.GRUCell(4, 3)(step, state)"],
        "nn.RNNCell": ["nn.RNNCell(4, 3)(step, state)", "nn.RNNCell(4, 3, nonlinearity='relu')(step)"],
        "pack_padded_sequence": _IN_FULL,
        "pad_packed_sequence": Operator(
            [
                Call(
                    f"nn.utils.rnn.pad_packed_sequence({_PACK}, total_length=5)[0]",
                    ruled=True,
                )
            ]
        ),
    },
)
