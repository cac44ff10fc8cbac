"""diffusers' U-Net of one dimension: its block in the middle, with resampling, convolutions and attention."""

import numpy as np

from ..file import File
from .unet import ORDER

FILE = File(
    name="diffusers_unet",
    source="diffusers.models.unets.unet_1d_blocks",
    edits={
        "graph": {
            ", device=hidden_states.device)": ")",
            "hidden_states.transpose(1, 2)": "torch.transpose(hidden_states, 1, 2)",
            "key_states.transpose(-1, -2)": "torch.transpose(key_states, -1, -2)",
        },
        "method": {
            "projection.size()": "projection.shape",
            "hidden_states.size()": "hidden_states.shape",
            "self.kernel.to(weight)[None, :].expand(hidden_states.shape[1], -1)": (
                "torch.expand(torch.to(self.kernel, weight.dtype)[None, :], (hidden_states.shape[1], -1))"
            ),
            "hidden_states.new_zeros([": "torch.new_zeros(hidden_states, [",
            "weight[indices, indices] = kernel": "weight = torch.index_put(weight, (indices, indices), kernel)",
        },
    },
    differs={
        "pynative": "PyTorch adds up a transposed view for the bias of the keys, and rounds otherwise on a copy",
        "graph": ORDER,
    },
    make=lambda blocks: blocks.UNetMidBlock1D(32, 4, 32),
    inputs=(np.random.default_rng(0).standard_normal((2, 4, 16)).astype(np.float32),),
)
