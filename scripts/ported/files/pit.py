"""vit-pytorch's PiT: pooled tokens, patches that overlap."""

from ..file import File, image

STRIDES = "PyTorch's convolution is given a permuted view, and rounds otherwise than on a copy"

FILE = File(
    name="pit",
    source="vit_pytorch.pit",
    edits={
        "method": {"self.to_qkv(x).chunk(3, dim = -1)": "torch.chunk(self.to_qkv(x), 3, dim = -1)"},
        "graph": {
            "int(sqrt(tokens.shape[1]))": "int(tokens.shape[1] ** 0.5)",
            "        b, n, _, h = *x.shape, self.heads\n": "",
            "map(lambda t: rearrange(t, 'b n (h d) -> b h n d', h = h), qkv)": (
                "[rearrange(t, 'b n (h d) -> b h n d', h = self.heads) for t in qkv]"
            ),
        },
    },
    differs={"pynative": STRIDES, "graph": STRIDES},
    make=lambda models: models.PiT(
        image_size=16, patch_size=4, num_classes=5, dim=16, depth=(1, 1), heads=2, mlp_dim=32, dim_head=8, dropout=0.1
    ),
    inputs=(image(16),),
)
