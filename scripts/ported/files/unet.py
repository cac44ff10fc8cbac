"""denoising-diffusion-pytorch's U-Net of one dimension: skip connections, attention, embeddings of time."""

import numpy as np

from ..file import File

HEADS = "map(lambda t: rearrange(t, 'b (h c) n -> b h c n', h = self.heads), qkv)"

ORDER = "MindSpore adds the gradients of a tensor that is used more than twice in another order"

FILE = File(
    name="unet",
    source="denoising_diffusion_pytorch.denoising_diffusion_pytorch_1d",
    edits={
        "import": {"from torch.amp import autocast": "from bridge.torch import autocast"},
        "device": {"torch.arange(half_dim, device=device)": "torch.arange(half_dim)"},
        "method": {
            "emb.sin(), emb.cos()": "torch.sin(emb), torch.cos(emb)",
            "time_emb.chunk(2, dim = 1)": "torch.chunk(time_emb, 2, dim = 1)",
            "self.to_qkv(x).chunk(3, dim = 1)": "torch.chunk(self.to_qkv(x), 3, dim = 1)",
            "q.softmax(dim = -2)": "torch.softmax(q, dim = -2)",
            "k.softmax(dim = -1)": "torch.softmax(k, dim = -1)",
            "sim.softmax(dim = -1)": "torch.softmax(sim, dim = -1)",
            "x.clone()": "torch.clone(x)",
        },
        "graph": {
            "x = torch.cat((x, h.pop()), dim = 1)": "x = torch.cat((x, h[-1]), dim = 1)\n            h = h[:-1]",
            HEADS: "[rearrange(t, 'b (h c) n -> b h c n', h = self.heads) for t in qkv]",
        },
    },
    differs={"pynative": ORDER, "graph": ORDER},
    make=lambda models: models.Unet1D(dim=8, dim_mults=(1, 2), channels=2, attn_dim_head=4, attn_heads=2),
    inputs=(
        np.random.default_rng(0).standard_normal((2, 2, 16)).astype(np.float32),
        np.array([3.0, 7.0], np.float32),
    ),
)
