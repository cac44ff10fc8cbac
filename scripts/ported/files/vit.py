"""vit-pytorch's ViT: einops, attention by matrix products, dropout."""

from ..file import File, image

FILE = File(
    name="vit",
    source="vit_pytorch.vit",
    edits={
        "method": {
            "self.to_qkv(x).chunk(3, dim = -1)": "torch.chunk(self.to_qkv(x), 3, dim = -1)",
            "k.transpose(-1, -2)": "torch.transpose(k, -1, -2)",
            "x.mean(dim = 1)": "torch.mean(x, dim = 1)",
        },
        "graph": {
            "map(lambda t: rearrange(t, 'b n (h d) -> b h n d', h = self.heads), qkv)": (
                "[rearrange(t, 'b n (h d) -> b h n d', h = self.heads) for t in qkv]"
            )
        },
    },
    make=lambda models: models.ViT(
        image_size=16, patch_size=4, num_classes=5, dim=32, depth=1, heads=2, mlp_dim=64, dim_head=16, dropout=0.1
    ),
    inputs=(image(16),),
)
