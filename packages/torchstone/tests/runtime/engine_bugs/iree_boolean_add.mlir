// IREE: the sum of booleans wraps around. The specification says that it is their logical OR.
func.func @main(%x: tensor<2xi1>) -> tensor<2xi1> {
  %r = stablehlo.add %x, %x : tensor<2xi1>
  return %r : tensor<2xi1>
}
