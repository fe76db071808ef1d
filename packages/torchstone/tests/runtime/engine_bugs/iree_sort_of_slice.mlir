// IREE cannot compile a sort of a slice of what another sort gives, of two axes or more: "write affecting
// operations on global resources are restricted to workgroup distributed contexts".
func.func @main(%x: tensor<2x4xi64>) -> tensor<2x2xi64> {
  %i = stablehlo.iota dim = 1 : tensor<2x4xi64>
  %s:2 = "stablehlo.sort"(%x, %i) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<i64>, %b: tensor<i64>, %c: tensor<i64>, %d: tensor<i64>):
    %less = stablehlo.compare LT, %a, %b, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  }) : (tensor<2x4xi64>, tensor<2x4xi64>) -> (tensor<2x4xi64>, tensor<2x4xi64>)
  %part = stablehlo.slice %s#1 [0:2, 0:2] : (tensor<2x4xi64>) -> tensor<2x2xi64>
  %r = "stablehlo.sort"(%part) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<i64>, %b: tensor<i64>):
    %less = stablehlo.compare LT, %a, %b, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  }) : (tensor<2x2xi64>) -> tensor<2x2xi64>
  return %r : tensor<2x2xi64>
}
