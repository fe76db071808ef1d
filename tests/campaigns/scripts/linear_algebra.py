# run:
"""Factorizations and solvers on the device, a preferred library, and an error for a singular matrix."""

import torch

torch.manual_seed(0)
torch.backends.cuda.preferred_linalg_library("cusolver")
a = torch.randn(4, 4, dtype=torch.float64, device="cuda")
spd = a @ a.T + torch.eye(4, dtype=torch.float64, device="cuda")
b = torch.randn(4, 2, dtype=torch.float64, device="cuda")
x = torch.linalg.solve(spd, b)
torch.testing.assert_close(spd @ x, b)
factor = torch.linalg.cholesky(spd)
torch.testing.assert_close(torch.cholesky_solve(b, factor), x)
q, r = torch.linalg.qr(a)
torch.testing.assert_close(q @ r, a)
u, s, vh = torch.linalg.svd(a)
torch.testing.assert_close(u @ torch.diag(s) @ vh, a)
values, vectors = torch.linalg.eigh(spd)
torch.testing.assert_close(vectors @ torch.diag(values) @ vectors.mT, spd)
assert all(one.is_cuda for one in (x, factor, q, r, u, s, vh, values, vectors))
torch.testing.assert_close(torch.logdet(spd).exp(), torch.linalg.det(spd))
torch.testing.assert_close(torch.linalg.lstsq(a, b).solution, torch.linalg.inv(a) @ b)
try:
    torch.linalg.solve(torch.zeros(2, 2, device="cuda"), torch.ones(2, device="cuda"))
except RuntimeError as error:
    assert "singular" in str(error)
else:
    raise AssertionError("a singular system was solved")
