"""The static scan: aliases, scopes, methods, strings, positions, and files that are not Python."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from torchstone.errors import ScriptError
from torchstone.redirect.sources import CallSite, SiteKind, python_files, scan_file, scan_source


def _scan(text: str) -> list[CallSite]:
    return scan_source(textwrap.dedent(text), "script.py")


def _of_kind(text: str, *kinds: SiteKind) -> list[str]:
    return [site.name for site in _scan(text) if site.kind in kinds]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import torch\ntorch.cuda.synchronize()", "torch.cuda.synchronize"),
        ("import torch as t\nt.cuda.synchronize()", "torch.cuda.synchronize"),
        ("import torch.cuda\ntorch.cuda.synchronize()", "torch.cuda.synchronize"),
        ("import torch.cuda as c\nc.synchronize()", "torch.cuda.synchronize"),
        ("from torch import cuda\ncuda.synchronize()", "torch.cuda.synchronize"),
        ("import torch.nn.functional as F\nF.relu(x)", "torch.nn.functional.relu"),
        ("from torch.cuda.amp import autocast as ac\nwith ac():\n    pass", "torch.cuda.amp.autocast"),
        ("import torch\nnn = torch.nn\nnn.Linear(2, 2)", "torch.nn.Linear"),
        ("import torch\ngetattr(torch, 'cuda').synchronize()", "torch.cuda.synchronize"),
        ("def f():\n    cuda.synchronize()\nfrom torch import cuda", "torch.cuda.synchronize"),
        (
            "try:\n    import torch\nexcept ImportError:\n    torch = None\ntorch.cuda.synchronize()",
            "torch.cuda.synchronize",
        ),
        (
            "try:\n    from apex import amp\nexcept:\n    from torch import amp\namp.autocast('cuda')",
            "torch.amp.autocast",
        ),
        ("class A:\n    from torch import cuda\n    cuda.synchronize()", "torch.cuda.synchronize"),
        ("def f():\n    global t\n    t.cuda.synchronize()\nimport torch as t", "torch.cuda.synchronize"),
    ],
)
def test_aliases_lead_to_the_dotted_name(text: str, name: str) -> None:
    assert name in _of_kind(text, SiteKind.CALL)


@pytest.mark.parametrize(
    "text",
    [
        "import torch as t\ndef f(t):\n    t.cuda.synchronize()",
        "import torch as t\nf = lambda t: t.cuda.synchronize()",
        "import torch as t\n[t.cuda.synchronize() for t in ts]",
        "import torch as t\ndef f():\n    t = Trainer()\n    t.cuda.synchronize()",
        "class A:\n    import torch as t\n    def f(self):\n        t.cuda.synchronize()",
        "from .torch import cuda\ncuda.synchronize()",
        "import torchvision\ntorchvision.cuda.synchronize()",
    ],
)
def test_a_name_that_is_bound_otherwise_is_not_torch(text: str) -> None:
    assert _of_kind(text, SiteKind.CALL) == []
    assert _of_kind(text, SiteKind.METHOD) == ["synchronize"]


def test_every_kind_with_its_position() -> None:
    text = """\
        from torch import device, nn
        import torch

        class Net(nn.Module):
            def run(self, x, rank):
                \"\"\"cuda\"\"\"
                y = x.cuda() if x.is_cuda else x
                return torch.ones(
                    2, device=f"cuda:{rank}"
                ), device("cuda")
        """
    found = [(site.name, site.kind.value, site.line, site.column, site.call_line) for site in _scan(text)]
    assert found == [
        ("torch.device", "import", 1, 19, 1),
        ("torch.nn", "import", 1, 27, 1),
        ("torch", "import", 2, 8, 2),
        ("torch.nn.Module", "reference", 4, 11, 4),
        ("cuda", "method", 7, 15, 7),
        ("is_cuda", "attribute", 7, 27, 7),
        ("torch.ones", "call", 8, 16, 8),
        ("cuda:{}", "string", 9, 23, 8),
        ("torch.device", "call", 10, 12, 10),
        ("cuda", "string", 10, 19, 10),
    ]


def test_a_method_in_a_chain_is_where_it_is_called() -> None:
    """As in a traceback, the line is that of the method's name, not that of the start of the chain."""
    (site,) = [site for site in _scan('(model\n  .half()\n  .to("cuda"))') if site.name == "to"]
    (text,) = [site for site in _scan('(model\n  .half()\n  .to("cuda"))') if site.kind == "string"]
    assert (site.line, site.column) == (3, 4)
    assert text.call_line == 3


def test_columns_count_characters() -> None:
    (site,) = [site for site in _scan('π = "é"; π.cuda()') if site.kind == "method"]
    assert site.column == 12


@pytest.mark.parametrize(
    "text",
    ["cuda", "cuda:0", "nccl", "cpu:gloo,cuda:nccl", "CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF"],
)
def test_texts_that_mean_cuda(text: str) -> None:
    assert _of_kind(f"f({text!r})", SiteKind.STRING) == [text]


@pytest.mark.parametrize("text", ["cpu", "barracuda", "cuda is great", "gloo", "cudnn"])
def test_texts_that_do_not_mean_cuda(text: str) -> None:
    assert _of_kind(f"f({text!r})", SiteKind.STRING) == []


def test_star_imports_are_reported() -> None:
    assert _of_kind("from torch.cuda import *", SiteKind.IMPORT) == ["torch.cuda.*"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"def f(:\n", "broken.py, line 1, is not Python: invalid syntax"),
        (b"print 'python 2'\n", "broken.py, line 1, is not Python: Missing parentheses"),
        (b"x = '\xff'\n", "broken.py is not Python: invalid or missing encoding"),
        (b"x = 1\0\n", "broken.py is not Python: source code string cannot contain null bytes"),
        (b"# coding: klingon\n", "is not Python: unknown encoding: klingon"),
        (b"x = 1" + b"+1" * 20_000, "broken.py is (not Python: .*recursion|nested too deeply)"),
    ],
)
def test_a_file_that_is_no_python_is_one_clear_error(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken.py"
    path.write_bytes(content)
    with pytest.raises(ScriptError, match=message):
        scan_file(path)


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"train\.py cannot be read: No such file"):
        scan_file(tmp_path / "train.py")


def test_files_of_a_tree_leave_hidden_directories_out(tmp_path: Path) -> None:
    for name in ("b.py", "pkg/a.py", ".venv/c.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert python_files(tmp_path) == [tmp_path / "b.py", tmp_path / "pkg" / "a.py"]
    assert python_files(tmp_path / "b.py") == [tmp_path / "b.py"]


def test_the_scan_does_not_import_torch() -> None:
    scan = "import sys, torchstone.redirect.sources as s; s.scan_source('import torch')"
    program = f"{scan}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
