"""CPU time of ``flashinfer-compat audit`` on a tree that is made here, against parsing the same files.

Each in an interpreter of its own, from start to end, in milliseconds. Unlike an engine's, every file uses FlashInfer,
and has call sites that break on some release.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from .measuring import Options, Row, compared, interleaved, interpreter

FILES = 80
PARSE = """
import ast, gc, sys
from pathlib import Path
gc.disable()
for path in Path(sys.argv[1]).iterdir():
    ast.parse(path.read_text(encoding="utf-8"))
"""
AUDIT = """
import gc, sys
from pathlib import Path
gc.disable()
from flashinfer_compat.audit.audited import audit
found = audit([Path(sys.argv[1])], "0.7.2")
assert found.uses and found.failing("0.7.4")
"""
#: A class that does not use FlashInfer; each file has ten of them, and one that does.
LAYER = """
import math


class Layer{number}:
    def __init__(self, config, prefix=""):
        self.heads = [Head(config, index) for index in range(config.heads)]
        self.names = {{f"{{prefix}}.{{index}}": head for index, head in enumerate(self.heads)}}

    def forward(self, positions, hidden, cache=None):
        for name, head in self.names.items():
            if cache is not None and name in cache:
                hidden = head.resume(positions, hidden, cache[name])
            else:
                hidden = head(positions, hidden, scale=1 / math.sqrt(head.dim))
        return hidden[: len(positions)] if self.names else hidden
"""
BACKEND = """
import flashinfer
from flashinfer import BatchPrefillWithPagedKVCacheWrapper
from flashinfer.comm import MoeAlltoAll
from flashinfer.sampling import top_k_top_p_sampling_from_probs


class Backend{number}:
    def __init__(self, workspace, mapping):
        self.wrapper = BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", backend="fa2")
        self.decode = flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD")
        self.alltoall = MoeAlltoAll(mapping, max_num_tokens=64, top_k=2, num_experts=8)

    def plan(self, batch, config):
        self.wrapper.plan(
            batch.rows, batch.pages, batch.indices, batch.last, config.heads, config.kv_heads, config.dim, 16,
            causal=True, uniform_q_len=4,
        )
        return self.wrapper._cached_module.plan(*batch.planned)

    def sample(self, probs):
        return top_k_top_p_sampling_from_probs(probs, 40, 0.9, filter_apply_order="joint")
"""


def write(folder: Path) -> None:
    """The tree."""
    for number in range(FILES):
        layers = [LAYER.format(number=f"{number}_{layer}") for layer in range(10)]
        (folder / f"model_{number}.py").write_text("".join([*layers, BACKEND.format(number=number)]), encoding="utf-8")


def measure(options: Options) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        measures = {"ast.parse": interpreter("-c", PARSE, folder), "audit": interpreter("-c", AUDIT, folder)}
        taken = interleaved(measures, options.rounds(20), warm=1)
    cpu = {name: [one.cpu for one in several] for name, several in taken.items()}
    return compared(f"{FILES} files; CPU", "ms", cpu)
