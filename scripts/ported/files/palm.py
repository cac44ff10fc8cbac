"""PaLM-pytorch: rotary positions, one key for many queries, cached buffers."""

from ..file import File, words

FILE = File(
    name="palm",
    source="palm_pytorch.palm_pytorch",
    edits={
        "method": {
            "x.unbind(dim=-2)": "torch.unbind(x, dim=-2)",
            "pos.cos()": "torch.cos(pos)",
            "pos.sin()": "torch.sin(pos)",
            "x.chunk(2, dim=-1)": "torch.chunk(x, 2, dim=-1)",
            "torch.ones((n, n), device=device, dtype=torch.bool).triu(1)": (
                "torch.triu(torch.ones((n, n), device=device, dtype=torch.bool), 1)"
            ),
            "self.fused_attn_ff_proj(x).split(self.fused_dims, dim=-1)": (
                "torch.split(self.fused_attn_ff_proj(x), self.fused_dims, dim=-1)"
            ),
            "sim.masked_fill(": "torch.masked_fill(sim, ",
            "sim.softmax(dim=-1)": "torch.softmax(sim, dim=-1)",
        },
        "initial value": {
            "10000 ** (torch.arange(0, dim, 2).float() / dim)": (
                "torch.pow(10000, torch.to(torch.arange(0, dim, 2), torch.float) / dim)"
            ),
        },
        "graph": {
            "map(lambda t: apply_rotary_pos_emb(positions, t), (q, k))": (
                "[apply_rotary_pos_emb(positions, t) for t in (q, k)]"
            ),
            "n, device, h = x.shape[1], x.device, self.heads": "n, device = x.shape[1], None",
            "-torch.finfo(sim.dtype).max": "-3.4028234663852886e38",
            "h=h)": "h=self.heads)",
        },
        "kept tensor": {
            '        self.register_buffer("mask", mask, persistent=False)\n': "",
            '        self.register_buffer("pos_emb", pos_emb, persistent=False)\n': "",
        },
    },
    make=lambda models: models.PaLM(dim=16, num_tokens=11, depth=1, dim_head=8, heads=2),
    inputs=(words(8, 11),),
)
