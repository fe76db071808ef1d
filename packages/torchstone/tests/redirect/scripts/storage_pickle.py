"""Storages, pickling and copying of tensors on the GPU, as caches and IPC code use them."""

import copy
import io
import pickle

import torch

x = torch.arange(6.0, device="cuda").view(2, 3)
storage = x.untyped_storage()
assert storage.is_cuda
assert storage.nbytes() == 24
assert storage.device == x.device
typed = torch.cuda.FloatStorage([1.0, 2.0])
assert len(typed) == 2
assert list(typed.cpu()) == [1.0, 2.0]
raw = torch.UntypedStorage(8, device="cuda")
assert raw.nbytes() == 8
assert raw.is_cuda
host = storage.cpu()
assert host.device.type == "cpu"
again = host.cuda()
rebuilt = torch.empty(0, device="cuda").set_(again, 0, (3, 2), (2, 1))

unpickled = pickle.loads(pickle.dumps({"x": x, "row": x[1]}))
copied = copy.deepcopy([x, x])
assert unpickled["x"].is_cuda
assert copied[0].is_cuda
assert copied[0] is copied[1]
parameter = torch.nn.Parameter(x.clone())
assert copy.deepcopy(parameter).is_cuda
assert copy.copy(x).data_ptr() == x.data_ptr()

buffer = io.BytesIO()
torch.save([x, x[0]], buffer)
buffer.seek(0)
pair = torch.load(buffer, map_location="cuda:0")
pair[1].add_(10)

x.data = x.data * 2
torch.save({"x": x, "rebuilt": rebuilt, "unpickled": unpickled, "pair": pair}, "result.pt")
