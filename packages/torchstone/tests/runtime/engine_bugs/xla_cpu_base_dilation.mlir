// XLA's CPU compiler, on its library of kernels: where a window has size 1 and stride 1, the holes of
// base dilation are dropped. https://github.com/openxla/xla/issues/48714
func.func @main(%x: tensor<64x128xf32>) -> tensor<32x255xf32> {
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %r = "stablehlo.reduce_window"(%x, %lowest) <{
    window_dimensions = array<i64: 2, 1>,
    window_strides = array<i64: 2, 1>,
    base_dilations = array<i64: 1, 2>
  }> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %larger = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %larger : tensor<f32>
  }) : (tensor<64x128xf32>, tensor<f32>) -> tensor<32x255xf32>
  return %r : tensor<32x255xf32>
}
