"""einops on MindSpore's tensors: `rearrange`, `reduce`, `repeat`, `einsum`, `pack`, `unpack`.

    from bridge.einops import rearrange
    from bridge.einops.layers.torch import Rearrange

    rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=16, q=16)

Each is einops' own function, which PyTorch runs as one program, in both modes. Once this is imported, the functions of
`einops` itself take MindSpore's tensors, too: code that calls them needs no change (bridge/einops/backend.py).
"""

from __future__ import annotations

import einops as _einops

from bridge.einops import backend as _backend
from bridge.einops import layers as layers
from bridge.torch.function import Function as _Function

EinopsError = _einops.EinopsError
asnumpy = _einops.asnumpy
parse_shape = _einops.parse_shape

einsum = _Function("einops.einsum", _einops.einsum)
pack = _Function("einops.pack", _einops.pack)
rearrange = _Function("einops.rearrange", _einops.rearrange)
reduce = _Function("einops.reduce", _einops.reduce)
repeat = _Function("einops.repeat", _einops.repeat)
unpack = _Function("einops.unpack", _einops.unpack)

_backend.compile_functions([einsum, pack, rearrange, reduce, repeat, unpack])

__all__ = ["EinopsError", "asnumpy", "layers", "parse_shape"]
__all__ += ["einsum", "pack", "rearrange", "reduce", "repeat", "unpack"]
