# run:
"""An LSTM over packed sequences whose hidden state is carried and detached between windows."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
assert device.type == "cuda"
embed, lstm, head = (
    nn.Embedding(5, 8).to(device),
    nn.LSTM(8, 16, 2, batch_first=True).to(device),
    nn.Linear(16, 5).to(device),
)
lstm.flatten_parameters()
modules = nn.ModuleList([embed, lstm, head])
optimizer = torch.optim.RMSprop(modules.parameters(), lr=0.01)
text = torch.arange(200) % 5
hidden = None
for start in range(0, 180, 20):
    x = text[start : start + 20].view(1, -1).to(device)
    y = text[start + 1 : start + 21].to(device)
    if hidden is not None:
        hidden = tuple(one.detach() for one in hidden)
    output, hidden = lstm(embed(x), hidden)
    loss = nn.functional.cross_entropy(head(output)[0], y)
    if start == 0:
        first = loss.item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
assert loss.item() < 0.6 * first
assert hidden[0].shape == (2, 1, 16)
assert hidden[0].is_cuda

lengths = torch.tensor([4, 2, 1])
packed = pack_padded_sequence(torch.randn(3, 4, 8, device=device), lengths, batch_first=True)
output, _ = lstm(packed)
padded, sizes = pad_packed_sequence(output, batch_first=True)
assert sizes.tolist() == [4, 2, 1]
assert sizes.device.type == "cpu"
assert padded.shape == (3, 4, 16)
assert padded[2, 1:].abs().sum().item() == 0
try:
    pack_padded_sequence(torch.randn(3, 4, 8, device=device), lengths.cuda(), batch_first=True)
except RuntimeError as error:
    assert "lengths" in str(error)
else:
    raise AssertionError("lengths on CUDA were accepted")
