"""One small program for each operation whose support differs between engines.

``SAMPLES[operation]`` is ``(argument types, result type, body)``; the body's
arguments are ``%arg0``, ``%arg1``, … and its result is ``%r``.
"""

from __future__ import annotations

F = "tensor<4xf32>"
M = "tensor<2x2xf32>"

SAMPLES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "stablehlo.fft": (
        ("tensor<4xf64>",),
        "tensor<3xcomplex<f64>>",
        """
        %r = stablehlo.fft %arg0, type = RFFT, length = [4] : (tensor<4xf64>) -> tensor<3xcomplex<f64>>
        """,
    ),
    "stablehlo.fft of 32-bit values": (
        (F,),
        "tensor<3xcomplex<f32>>",
        """
        %r = stablehlo.fft %arg0, type = RFFT, length = [4] : (tensor<4xf32>) -> tensor<3xcomplex<f32>>
        """,
    ),
    "stablehlo.cholesky": (
        (M,),
        M,
        """
        %r = stablehlo.cholesky %arg0, lower = true : tensor<2x2xf32>
        """,
    ),
    "stablehlo.triangular_solve": (
        (M, M),
        M,
        """
        %r = "stablehlo.triangular_solve"(%arg0, %arg1)
          {left_side = true, lower = true, unit_diagonal = false,
           transpose_a = #stablehlo<transpose NO_TRANSPOSE>}
          : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
        """,
    ),
    "stablehlo.triangular_solve of a batch": (
        ("tensor<1x2x2xf32>", "tensor<1x2x2xf32>"),
        "tensor<1x2x2xf32>",
        """
        %r = "stablehlo.triangular_solve"(%arg0, %arg1)
          {left_side = true, lower = true, unit_diagonal = false,
           transpose_a = #stablehlo<transpose NO_TRANSPOSE>}
          : (tensor<1x2x2xf32>, tensor<1x2x2xf32>) -> tensor<1x2x2xf32>
        """,
    ),
    "stablehlo.rng": (
        (),
        F,
        """
        %a = stablehlo.constant dense<0.0> : tensor<f32>
        %b = stablehlo.constant dense<1.0> : tensor<f32>
        %s = stablehlo.constant dense<4> : tensor<1xi64>
        %r = stablehlo.rng %a, %b, %s, distribution = UNIFORM
          : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
        """,
    ),
    "stablehlo.rng_bit_generator": (
        ("tensor<2xui64>",),
        "tensor<4xui32>",
        """
        %state, %r = stablehlo.rng_bit_generator %arg0, algorithm = THREE_FRY
          : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)
        """,
    ),
    "stablehlo.batch_norm_inference": (
        (M, "tensor<2xf32>"),
        M,
        """
        %r = "stablehlo.batch_norm_inference"(%arg0, %arg1, %arg1, %arg1, %arg1)
          {epsilon = 0.1 : f32, feature_index = 1 : i64}
          : (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
        """,
    ),
    "stablehlo.batch_norm_training": (
        (M, "tensor<2xf32>"),
        M,
        """
        %r, %mean, %var = "stablehlo.batch_norm_training"(%arg0, %arg1, %arg1)
          {epsilon = 0.1 : f32, feature_index = 1 : i64}
          : (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>)
          -> (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>)
        """,
    ),
    "stablehlo.batch_norm_grad": (
        (M, "tensor<2xf32>"),
        M,
        """
        %r, %scale, %offset = "stablehlo.batch_norm_grad"(%arg0, %arg1, %arg1, %arg1, %arg0)
          {epsilon = 0.1 : f32, feature_index = 1 : i64}
          : (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2x2xf32>)
          -> (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>)
        """,
    ),
    "stablehlo.custom_call": (
        (F,),
        F,
        """
        %r = stablehlo.custom_call @nothing(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
        """,
    ),
    "stablehlo.einsum": (
        (M, M),
        M,
        """
        %r = stablehlo.einsum %arg0, %arg1, config = "ij,jk->ik"
          : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
        """,
    ),
    "stablehlo.unary_einsum": (
        (M,),
        M,
        """
        %r = "stablehlo.unary_einsum"(%arg0) {einsum_config = "ij->ji"}
          : (tensor<2x2xf32>) -> tensor<2x2xf32>
        """,
    ),
    "stablehlo.torch_index_select": (
        (F, "tensor<2xi32>"),
        "tensor<2xf32>",
        """
        %r = "stablehlo.torch_index_select"(%arg0, %arg1) {dim = 0 : i64, batch_dims = 0 : i64}
          : (tensor<4xf32>, tensor<2xi32>) -> tensor<2xf32>
        """,
    ),
    "stablehlo.dot": (
        (M, M),
        M,
        """
        %r = stablehlo.dot %arg0, %arg1 : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
        """,
    ),
    "stablehlo.broadcast": (
        ("tensor<f32>",),
        F,
        """
        %r = stablehlo.broadcast %arg0, sizes = [4] : (tensor<f32>) -> tensor<4xf32>
        """,
    ),
    "stablehlo.get_dimension_size": (
        (F,),
        "tensor<i32>",
        """
        %r = stablehlo.get_dimension_size %arg0, dim = 0 : (tensor<4xf32>) -> tensor<i32>
        """,
    ),
    "stablehlo.select_and_scatter": (
        (F, "tensor<2xf32>"),
        F,
        """
        %i = stablehlo.constant dense<0.0> : tensor<f32>
        %r = "stablehlo.select_and_scatter"(%arg0, %arg1, %i) <{window_dimensions = array<i64: 2>,
          window_strides = array<i64: 2>}> ({
        ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %c = stablehlo.compare GE, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
        }, {
        ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %c = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %c : tensor<f32>
        }) : (tensor<4xf32>, tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
        """,
    ),
    "stablehlo.map": (
        (F,),
        F,
        """
        %r = "stablehlo.map"(%arg0) <{dimensions = array<i64: 0>}> ({
        ^bb0(%x: tensor<f32>):
        %c = stablehlo.abs %x : tensor<f32>
        stablehlo.return %c : tensor<f32>
        }) : (tensor<4xf32>) -> tensor<4xf32>
        """,
    ),
    "stablehlo.tuple": (
        (F,),
        F,
        """
        %t = stablehlo.tuple %arg0, %arg0 : tuple<tensor<4xf32>, tensor<4xf32>>
        %r = stablehlo.get_tuple_element %t[0] : (tuple<tensor<4xf32>, tensor<4xf32>>) -> tensor<4xf32>
        """,
    ),
    "stablehlo.reduce_precision": (
        (F,),
        F,
        """
        %r = stablehlo.reduce_precision %arg0, format = e5m10 : tensor<4xf32>
        """,
    ),
    "stablehlo.optimization_barrier": (
        (F,),
        F,
        """
        %r = stablehlo.optimization_barrier %arg0 : tensor<4xf32>
        """,
    ),
    "stablehlo.cbrt": (
        (F,),
        F,
        """
        %r = stablehlo.cbrt %arg0 : tensor<4xf32>
        """,
    ),
    "stablehlo.tan": (
        (F,),
        F,
        """
        %r = stablehlo.tan %arg0 : tensor<4xf32>
        """,
    ),
    "stablehlo.replica_id": (
        (),
        "tensor<ui32>",
        """
        %r = stablehlo.replica_id : tensor<ui32>
        """,
    ),
    "stablehlo.partition_id": (
        (),
        "tensor<ui32>",
        """
        %r = stablehlo.partition_id : tensor<ui32>
        """,
    ),
    "stablehlo.dynamic_conv": (
        ("tensor<1x1x4xf32>", "tensor<1x1x2xf32>"),
        "tensor<1x1x3xf32>",
        """
        %p = stablehlo.constant dense<0> : tensor<1x2xi64>
        %r = "stablehlo.dynamic_conv"(%arg0, %arg1, %p)
          {dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>,
           feature_group_count = 1 : i64, batch_group_count = 1 : i64}
          : (tensor<1x1x4xf32>, tensor<1x1x2xf32>, tensor<1x2xi64>) -> tensor<1x1x3xf32>
        """,
    ),
    "stablehlo.convolution": (
        ("tensor<1x1x4xf32>", "tensor<1x1x2xf32>"),
        "tensor<1x1x3xf32>",
        """
        %r = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window =
          {} {feature_group_count = 1 : i64, batch_group_count = 1 : i64}
          : (tensor<1x1x4xf32>, tensor<1x1x2xf32>) -> tensor<1x1x3xf32>
        """,
    ),
    "stablehlo.set_dimension_size": (
        (F,),
        "tensor<2xf32>",
        """
        %n = stablehlo.constant dense<2> : tensor<i32>
        %d = stablehlo.set_dimension_size %arg0, %n, dim = 0
          : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>
        %r = stablehlo.slice %d [0:2] : (tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<2xf32>
        """,
    ),
    "stablehlo.dynamic_reshape": (
        (F,),
        M,
        """
        %s = stablehlo.constant dense<2> : tensor<2xi32>
        %r = stablehlo.dynamic_reshape %arg0, %s : (tensor<4xf32>, tensor<2xi32>) -> tensor<2x2xf32>
        """,
    ),
    "chlo.erf": (
        (F,),
        F,
        """
        %r = chlo.erf %arg0 : tensor<4xf32> -> tensor<4xf32>
        """,
    ),
    "chlo.erf_inv": (
        (F,),
        F,
        """
        %r = chlo.erf_inv %arg0 : tensor<4xf32> -> tensor<4xf32>
        """,
    ),
    "chlo.lgamma": (
        (F,),
        F,
        """
        %r = chlo.lgamma %arg0 : tensor<4xf32> -> tensor<4xf32>
        """,
    ),
    "chlo.top_k": (
        (F,),
        "tensor<2xf32>",
        """
        %r, %i = chlo.top_k(%arg0, k = 2) : tensor<4xf32> -> (tensor<2xf32>, tensor<2xi32>)
        """,
    ),
    "chlo.next_after": (
        (F, F),
        F,
        """
        %r = chlo.next_after %arg0, %arg1 : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
        """,
    ),
    "chlo.broadcast_add": (
        (F, "tensor<1xf32>"),
        F,
        """
        %r = chlo.broadcast_add %arg0, %arg1 : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>
        """,
    ),
    "chlo.mulhi": (
        ("tensor<4xi32>", "tensor<4xi32>"),
        "tensor<4xi32>",
        """
        %r = chlo.mulhi %arg0, %arg1 : tensor<4xi32>, tensor<4xi32> -> tensor<4xi32>
        """,
    ),
    "chlo.bessel_i1e": (
        (F,),
        F,
        """
        %r = chlo.bessel_i1e %arg0 : tensor<4xf32> -> tensor<4xf32>
        """,
    ),
    "chlo.zeta": (
        (F, F),
        F,
        """
        %r = chlo.zeta %arg0, %arg1 : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
        """,
    ),
    "chlo.polygamma": (
        (F, F),
        F,
        """
        %r = chlo.polygamma %arg0, %arg1 : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
        """,
    ),
    "chlo.asin": (
        (F,),
        F,
        """
        %r = chlo.asin %arg0 : tensor<4xf32> -> tensor<4xf32>
        """,
    ),
}
