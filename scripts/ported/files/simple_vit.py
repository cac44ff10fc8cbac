"""vit-pytorch's SimpleViT: einops, attention by matrix products."""

from ..file import File, image

FILE = File(
    name="simple_vit",
    source="vit_pytorch.simple_vit",
    edits={
        "method": {
            "self.to_qkv(x).chunk(3, dim = -1)": "torch.chunk(self.to_qkv(x), 3, dim = -1)",
            "k.transpose(-1, -2)": "torch.transpose(k, -1, -2)",
            "x.mean(dim = 1)": "torch.mean(x, dim = 1)",
            "self.pos_embedding.to(device, dtype=x.dtype)": "torch.to(self.pos_embedding, dtype=x.dtype)",
        },
        "initial value": {
            "(x.sin(), x.cos(), y.sin(), y.cos())": "(torch.sin(x), torch.cos(x), torch.sin(y), torch.cos(y))",
            "pe.type(dtype)": "torch.to(pe, dtype)",
            "temperature ** omega": "torch.pow(temperature, omega)",
        },
        "graph": {
            "map(lambda t: rearrange(t, 'b n (h d) -> b h n d', h = self.heads), qkv)": (
                "[rearrange(t, 'b n (h d) -> b h n d', h = self.heads) for t in qkv]"
            )
        },
    },
    make=lambda models: models.SimpleViT(
        image_size=16, patch_size=4, num_classes=5, dim=32, depth=1, heads=2, mlp_dim=64, dim_head=16
    ),
    inputs=(image(16),),
)
