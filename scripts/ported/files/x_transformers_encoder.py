"""x-transformers: an encoder of images, with RMSNorm of queries and keys too."""

import dataclasses

from ..file import image
from .x_transformers import FILE as DECODER

FILE = dataclasses.replace(
    DECODER,
    name="x_transformers_encoder",
    make=lambda models: models.ViTransformerWrapper(
        image_size=16,
        patch_size=4,
        num_classes=5,
        attn_layers=models.Encoder(
            dim=16,
            depth=1,
            heads=2,
            attn_dim_head=8,
            use_rmsnorm=True,
            attn_qk_rmsnorm=True,
            ff_glu=True,
            ff_swish=True,
        ),
    ),
    inputs=(image(16),),
)
