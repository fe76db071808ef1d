"""What random programs are made of: expressions and statements with holes, by operator family.

A hole is filled with a variable or a number that the program has at that place:

==========  =========================================================================
``{x}``     any tensor; ``{y}`` and ``{z}`` others, or the same
``{f}``     a floating-point tensor; ``{g}`` and ``{h}`` others, or the same
``{i}``     an integer tensor
``{b}``     a boolean tensor
``{m}``     a floating-point matrix; ``{w}`` another, or the same
``{d}``     a dimension
``{k}``     a small integer: a literal, the parameter ``n``, a size, or a sum of these
``{s}``     a number of any type: a literal, or one of the parameters ``n`` and ``s``
``{t}``     a dtype; ``{ft}`` a floating-point dtype
==========  =========================================================================

A template may give statements whose parts do not fit together. The maker runs each statement in eager
PyTorch, and drops those that fail. So a template must be right often, not always.
"""

from __future__ import annotations

EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "pointwise": (
        "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} / {y}", "{x} + {s}", "{s} - {x}", "{x} * {s}",
        "{x} / {s}", "{s} * {x}", "{x} // {s}", "{x} % {s}", "{x} ** 2", "{f} ** {s}", "-{x}", "{f}.sin()",
        "{f}.exp()", "{f}.tanh()", "{f}.sigmoid()", "{f}.abs().sqrt()", "{x}.abs()", "{x}.sign()",
        "torch.add({x}, {y}, alpha={s})", "torch.sub({x}, {y}, alpha=2)",
        "torch.addcmul({f}, {g}, {h}, value={s})", "torch.lerp({f}, {g}, 0.25)", "torch.maximum({x}, {y})",
        "torch.minimum({x}, {y})", "{f}.floor()", "{f}.round()", "{f}.trunc()", "{f}.frac()", "{f}.erf()",
        "{f}.log1p()", "{f}.reciprocal()", "{f}.atan2({g})", "torch.hypot({f}, {g})", "torch.rsub({x}, {s})",
        "{f}.nan_to_num()", "{x}.square()", "{f}.rsqrt()", "torch.div({x}, {y}, rounding_mode='floor')",
        "torch.div({x}, {s}, rounding_mode='trunc')", "torch.fmod({x}, {s})", "torch.remainder({x}, {s})",
        "torch.copysign({f}, {g})", "{f}.cos() + {s}", "{f}.logit(0.1)", "torch.xlogy({x}, {y}.abs() + 1)",
        "{f}.expm1()", "torch.logaddexp({f}, {g})", "torch.heaviside({f}, {g})", "torch.fmax({f}, {g})",
        "{f}.deg2rad()", "torch.float_power({x}.abs(), 2)",
    ),
    "integers": (
        "{i} & {i}", "{i} | {s}", "{i} ^ {i}", "~{i}", "{i} << 1", "{i} >> 1", "{i} // 3", "{i} % 3",
        "torch.gcd({i}, {i})", "{i}.bitwise_and({b})", "{b} & {b}", "{b} | {b}", "~{b}", "{b} ^ {b}",
        "torch.logical_and({x}, {y})", "torch.logical_not({x})", "torch.bitwise_left_shift({i}, {i} % 4)",
        "{b} + {b}", "{b} * {s}", "{i} / {s}", "{i} ** 2", "-{i}",
    ),
    "comparison": (
        "{x} > {y}", "{x} == {y}", "{x} <= {s}", "{x} != {s}", "torch.isnan({f})", "torch.isfinite({x})",
        "torch.eq({x}, {s})", "torch.isclose({f}, {f})", "torch.ge({x}, {y})", "torch.signbit({x})",
        "{x} < {s}", "torch.isin({i}, {i})", "{f}.isposinf()",
    ),
    "choice": (
        "torch.where({b}, {x}, {y})", "torch.where({x} > 0, {y}, {s})", "torch.where({b}, {s}, {x})",
        "{x}.clamp({s})", "{x}.clamp(-1, 2)", "{x}.clamp(max={s})", "{x}.clamp({y}, {z})",
        "{x}.masked_fill({b}, {s})", "{x}.masked_fill({x} > 1, 0)", "torch.where({b}, {x}, {y}.to({t}))",
        "{f}.clamp_min({g})", "torch.nn.functional.threshold({f}, 0.5, {s})",
        "torch.where({f} > {g}, {f}, -{g})",
    ),
    "views": (
        "{x}.t()", "{x}.T", "{x}.transpose(0, {d})", "{x}[{k}:]", "{x}[:{k}]", "{x}[::2]", "{x}[{k}]",
        "{x}[-1]", "{x}[..., 0]", "{x}[None]", "{x}[:, None]", "{x}.unsqueeze({d})", "{x}.squeeze()",
        "{x}.squeeze({d})", "{x}.view(-1)", "{x}.reshape(-1)", "{x}.reshape(2, -1)", "{x}.flatten()",
        "{x}.expand(2, *{x}.shape)", "{x}.expand({k}, *{x}.shape)", "{x}.narrow({d}, 0, {k})",
        "{x}.select({d}, {k})", "{x}.diagonal()", "{x}.chunk(2)[0]", "{x}.chunk({k})[-1]",
        "{x}.split({k})[0]", "{x}.unbind({d})[-1]", "{x}.movedim(0, -1)",
        "{x}.permute(*reversed(range({x}.dim())))", "{x}.unfold({d}, 2, 1)", "{x}.unflatten(0, (1, -1))",
        "{x}.view_as({y})", "{x}.expand_as({y})", "{x}[1:, ::2]", "{x}[..., {k}:]", "{x}.mT", "{x}.detach()",
        "{x}.as_strided((2, 2), (1, 2))", "{x}.as_strided((2, {k}), (1, 1), 1)", "{x}.swapaxes(0, -1)",
        "{x}.view(*{x}.shape, 1)", "{x}.view({x}.shape[0], -1)", "{x}.tensor_split({k})[1]",
        "{x}.broadcast_to({y}.shape)", "{x}.contiguous()", "torch.atleast_2d({x})", "{x}[{k}, ...]",
        "{x}.alias()", "{x}.real", "{x}.ravel()", "torch.ops.aten.alias({x})", "{x}.hsplit(1)[0]",
    ),
    "indexing": (
        "{x}[{i} % {x}.shape[0]]", "{x}[{i}.clamp(0, {x}.shape[0] - 1)]", "{x}[..., {i} % {x}.shape[-1]]",
        "{x}.index_select({d}, ({i} % {x}.shape[{d}]).flatten())", "{x}.flip({d})", "{x}.roll({k}, {d})",
        "{x}.take({i} % {x}.numel())", "{x}.gather({d}, ({i} % {x}.shape[{d}]).expand({x}.shape))",
        "{x}[torch.tensor([0, -1])]", "{x}[[0, 0, -1]]", "{x}[0, [0, -1]]",
        "{x}[torch.arange({k}) % {x}.shape[0]]", "torch.take_along_dim({x}, {i} % {x}.shape[{d}], {d})",
        "{x}.scatter({d}, torch.zeros_like({x}, dtype=torch.int64), {s})",
        "{x}.index_add(0, torch.zeros({x}.shape[0], dtype=torch.int64), {x})", "{x}.diag_embed()",
        "{x}.repeat(2, *[1] * {x}.dim())",
        "{x}.scatter_add(0, torch.zeros_like({x}, dtype=torch.int64), {x})",
        "{x}.index_fill({d}, torch.tensor([0]), {s})", "{x}.repeat_interleave(2, {d})", "{x}.rot90()",
        "{x}.tril({k})", "{x}.triu()", "{x}[:, torch.tensor([0])]",
        "{x}.index_copy(0, torch.tensor([0]), {x}[:1])", "{x}[{b}.any().long()]",
        "torch.index_put({x}, [torch.tensor([0, 0])], {x}[0], accumulate=True)",
    ),
    "data-dependent sizes": (
        "{x}[{x} > 0]", "{x}[{b}]", "{x}.nonzero()", "torch.masked_select({x}, {b})", "{i}.unique()",
    ),
    "reductions": (
        "{x}.sum()", "{x}.sum({d})", "{x}.sum({d}, keepdim=True)", "{f}.mean()", "{f}.mean({d})",
        "{x}.amax({d})", "{x}.max()", "{x}.min({d}).values", "{x}.argmax({d})", "{x}.prod({d})", "{x}.any()",
        "{x}.all({d})", "{f}.var({d}, unbiased=False)", "{f}.std()", "{f}.norm()", "{f}.logsumexp({d})",
        "{x}.cumsum({d})", "{f}.cumprod({d})", "{x}.clamp(-99, 99).nan_to_num().sum(dtype={t})",
        "{x}.sum((0, -1))", "{x}.max({d})[0]",
        "{x}.count_nonzero({d})", "{x}.amin()", "{x}.cummax({d})[0]", "{f}.softmax({d})",
        "{f}.log_softmax({d})", "{x}.sort({d}).values", "{x}.sort({d}, stable=True).indices",
        "{f}.topk(1, {d}).values", "{f}.median()", "{f}.nansum()", "{f}.var_mean({d})[1]",
        "{x}.aminmax(dim={d})[1]", "{f}.norm(1, {d})", "{f}.quantile(0.5)", "{x}.argsort({d}, stable=True)",
        "{f}.diff(dim={d})", "{x}.trace()", "torch.linalg.vector_norm({f}, 3, {d})",
        "{f}.kthvalue(1, {d}).values",
    ),
    "products": (
        "{m} @ {w}", "{m} @ {w}.t()", "{m}.t() @ {w}", "{m}.matmul({f})",
        "torch.einsum('ij,kj->ik', {m}, {w})", "torch.outer({f}, {g})", "torch.dot({f}, {g})", "{m}.mv({f})",
        "{m}[None].bmm({w}[None])", "torch.addmm({f}, {m}, {w})",
        "torch.addmm({m}, {m}, {w}, beta={s}, alpha={s})", "torch.kron({m}, {w})", "{i} @ {i}.t()",
        "torch.einsum('i...,i...->...', {x}, {x})", "torch.tensordot({f}, {g}, 1)", "torch.inner({f}, {g})",
        "torch.baddbmm({m}[None], {m}[None], {w}[None], beta=0)", "torch.cdist({m}, {w})",
        "torch.linalg.matrix_power({m} @ {m}.t(), 2)",
    ),
    "joining": (
        "torch.cat([{x}, {y}])", "torch.cat([{x}, {x}], {d})", "torch.stack([{x}, {y}])",
        "torch.stack([{x}, {x}], {d})", "torch.cat([{x}] * {k})", "torch.cat([{x}.flatten(), {y}.flatten()])",
        "torch.vstack([{x}, {y}])", "torch.stack({x}.unbind(0)[::-1])", "torch.cat({x}.split({k}), -1)",
        "torch.cat({x}.chunk(2)[::-1])", "torch.nn.functional.pad({x}, (1, {k}))",
        "torch.nn.functional.pad({x}, (0, 1, 1, 0), value={s})", "torch.hstack([{x}, {x}])",
        "torch.nn.functional.pad({f}[None], (1, 1), mode='reflect')", "torch.tile({x}, (2,))",
        "torch.block_diag({m}, {w})", "torch.meshgrid({f}, {g}, indexing='ij')[0]",
        "torch.cartesian_prod({f}, {g})",
    ),
    "casts": (
        "{x}.to({t})", "{x}.to({ft})", "{x}.double()", "{x}.bool()", "{x}.clamp(-99, 99).nan_to_num().long()",
        "{x}.type_as({y})", "{x}.half()", "{x}.to(torch.complex64).real", "{x}.to({y}.dtype)",
        "{x}.bfloat16()", "{x}.clone()", "{x}.float().view(torch.int32)", "{f}.to({ft}, copy=True)",
        "torch.view_as_real(torch.complex({f}, {f}))", "(1j * {f}).imag", "({f} * (1 + 2j)).abs()",
        "torch.complex({f}, {g}).conj().imag", "torch.result_type({x}, {y}).is_floating_point * {x}",
    ),
    "creation": (
        "torch.zeros_like({x})", "torch.full_like({x}, {s})", "torch.arange({k})",
        "torch.arange({k}, dtype={ft})", "torch.ones({x}.shape[0], {k})", "torch.full(({k}, 2), {s})",
        "torch.eye({k})", "torch.tensor({s})", "torch.linspace(0, 1, {k})", "{x}.new_zeros({k})",
        "torch.tensor([{s}, {s}])", "{x}.new_full((2,), {s})", "torch.arange({x}.shape[0]).to({t})",
        "torch.empty({k}, 2).fill_({s})", "torch.zeros({k}, 0)", "torch.scalar_tensor({s})",
        "torch.tril_indices({k}, {k})", "torch.ones_like({x}, dtype={t})",
    ),
    "layers": (
        "F.linear({m}, {w})", "F.linear({m}, {w}, {f})", "F.relu({x})", "F.gelu({f})", "F.silu({f})",
        "F.softplus({f})", "F.layer_norm({f}, {f}.shape[-1:])",
        "F.layer_norm({m}, {m}.shape[-1:], {m}[0], {m}[-1])", "F.leaky_relu({f}, 0.1)", "F.elu({f})",
        "F.hardtanh({f})", "F.log_softmax({f}, -1)", "F.mse_loss({f}, {g})", "F.l1_loss({f}, {g})",
        "F.smooth_l1_loss({f}, {g})", "F.cross_entropy({m}, torch.zeros({m}.shape[0], dtype=torch.int64))",
        "F.glu({f})", "F.cross_entropy({m}, {m}.softmax(1), reduction='none')",
        "F.embedding({i} % {m}.shape[0], {m})", "F.batch_norm({m}, None, None, training=True)",
        "F.conv1d({m}[None], {w}[:, None, :1])", "F.conv1d({m}[:, None], {w}[:, None, :2], padding=1)",
        "F.max_pool1d({m}, 2)", "F.avg_pool1d({m}, 2, padding=1)", "F.adaptive_avg_pool1d({m}, 2)",
        "F.normalize({f}, dim={d})", "F.interpolate({m}[None], scale_factor=2)",
        "F.interpolate({m}[None, None], size=(3, {k}), mode='bilinear')",
        "F.scaled_dot_product_attention({m}[None], {w}[None], {w}[None])", "F.cosine_similarity({m}, {w})",
        "F.one_hot({i} % 3, 3)", "F.group_norm({m}[None], 1)", "F.instance_norm({m}[None])",
        "F.binary_cross_entropy_with_logits({f}, {g})", "F.kl_div({f}, {g}.abs())",
        "F.nll_loss({m}, torch.zeros({m}.shape[0], dtype=torch.int64), reduction='sum')",
        "F.unfold({m}[None, None], 2)", "F.conv2d({m}[None, None], {w}[None, None, :2, :2], stride=2)",
        "F.max_pool2d({m}[None], 2, ceil_mode=True)", "F.prelu({m}, {f}[:1])",
        "F.huber_loss({f}, {g}, delta=0.5)", "F.pixel_shuffle({m}.expand(4, *{m}.shape), 2)",
        "F.hardswish({f})", "F.logsigmoid({f})", "F.dropout({f}, 0.5, training=False)", "F.dropout({f}, 0.0)",
        "F.dropout({f}, 1.0)", "F.rms_norm({f}, {f}.shape[-1:])",
    ),
    "control flow": (
        "({x} if {x}.shape[0] > {k} else {x} * 2)", "({x} + 1 if n > 2 else {y})",
        "sum({x}[j] for j in range({x}.shape[0]))", "torch.stack([{x} + j for j in range({k})])",
        "({x}.t() if {x}.dim() == 2 else {x}[None])", "({x} if {x}.is_contiguous() else {y})",
        "({x} * {x}.shape[0])", "{x} / {x}.numel()", "{x} + {x}.shape[-1] // 2", "{x} * ({k} > 2)",
        "{x} * max({k}, {k})", "{x} ** {k}", "({x} if {x}.dtype.is_floating_point else {x} - 1)",
        "{x} * float({k})", "{x} + {x}.stride(0)", "{x} - {k} / 2", "({y} if {x}.numel() == 0 else {x})",
        "{x} * int({s})", "{x} + (n if isinstance(s, float) else -n)", "{x} * ({x}.shape == {y}.shape)",
    ),
}  # fmt: skip
"""Expressions whose value is a tensor, by family."""

STATEMENTS: tuple[str, ...] = (
    "{x}.add_({y})", "{x}.mul_({s})", "{x}.sub_({s})", "{x}.zero_()", "{x}.fill_({s})", "{x}.copy_({y})",
    "{x}[{k}] = {y}", "{x}[0] = {s}", "{x}[1:] += {s}", "{x}[..., 0] *= 2", "{x}.t().add_(1)",
    "{x}.view(-1)[{k}] = {s}", "{x}[{x} > 0] = {s}", "{x}[{b}] = 0", "{x}.clamp_(-1, 1)", "{f}.sigmoid_()",
    "{x}.masked_fill_({x} < 0, {s})", "{x}.neg_()", "{x} += {y}",
    "{x}.index_fill_(0, torch.tensor([0]), {s})", "{x}[torch.tensor([0, -1])] = {s}", "{x}.div_({s})",
    "{x}.addcmul_({f}, {g})", "{x}.scatter_(0, torch.zeros_like({x}, dtype=torch.int64), {s})",
    "{x}.index_add_(0, torch.tensor([0]), {x}[-1:])", "{x}.relu_()", "{x}.unsqueeze_(0)", "{x}.t_()",
    "{x}.squeeze_()", "{x}[:, :1] = {y}[:, -1:]", "{x}.copy_({x}.flip(0))", "{x}.swapaxes(0, -1).mul_(2)",
    "torch.add({x}, {y}, out={z})", "torch.sin({f}, out={g})", "{x}.fill_diagonal_({s})", "{x}.cumsum_(0)",
    "{x}.exp_()", "{x}[::2].zero_()", "{x}.bitwise_not_()", "{x}.logical_not_()", "{x}.eq_({y})",
    "{x}.pow_(2)", "{x}.tril_()", "{x}.lerp_({y}, 0.5)", "{x}.floor_divide_(2)",
)  # fmt: skip
"""Statements that write into a tensor, or change its shape in place."""

RANDOM: tuple[str, ...] = (
    "F.dropout({f}, 0.5)", "F.dropout({f}, 0.25) * 2", "torch.rand_like({f})", "torch.rand({k}, 2)",
    "torch.bernoulli({f}.sigmoid())", "torch.randint(0, {k}, ({k},))", "F.dropout1d({m}, 0.5)",
    "torch.randn({x}.shape[0]) + 1", "{f}.clone().uniform_()", "F.alpha_dropout({f}, 0.5)",
    "torch.randperm({k})", "F.gumbel_softmax({f})", "F.rrelu({f}, training=True)",
    "{f}.clone().normal_(0, 2)",
)  # fmt: skip
"""Expressions with random values."""

RETURNS: tuple[str, ...] = (
    "{}", "({},)", "({}, {})", "({}, {}, {})", "[{}, ({}, {})]", '{{"x": {}, "y": [{}, {}]}}', "({}, n)",
    "({}, {}, s)", "({}, None, {})", "({}, a)", "(a, {}, b)", "({}, {}.shape, {}.dtype)", "({}, [], {{}})",
    "({}, n * 2 + 1, {})", "({}, {}, {}, {}, {})", "({}, {}.t() if n > 2 else {})",
    "torch.return_types.max(({}, {}))", "({}, len({}.shape), float(n))",
)  # fmt: skip
"""The results of a program. Each pair of braces stands for one of its variables."""
