"""x-transformers: a decoder with rotary positions, RMSNorm and SwiGLU."""

from ..file import File, words
from .unet import ORDER

PYTHON = "its `forward` has iterators and names that only a branch defines, which MindSpore's compiler does not take"
AUTOCAST = """        with autocast(tensor_arg.device.type, enabled = False):
            return fn(*args, **kwargs)
"""

ATTEND = File(
    name="x_transformers_attend",
    source="x_transformers.attend",
    edits={
        "method": {
            "sim.clone()": "torch.clone(sim)",
            "sim.masked_fill(": "torch.masked_fill(sim, ",
            "attn.type(dtype)": "torch.to(attn, dtype)",
            "torch.ones((i, j), device = device, dtype = torch.bool).triu(j - i + 1)": (
                "torch.triu(torch.ones((i, j), device = device, dtype = torch.bool), j - i + 1)"
            ),
        },
    },
    make=lambda attend: attend.Attend(),
    inputs=(),
)

LAYERS = File(
    name="torch_einops_utils",
    source="torch_einops_utils.nn",
    make=lambda layers: layers.Identity(),
    inputs=(),
)

FILE = File(
    name="x_transformers",
    source="x_transformers.x_transformers",
    needs=(ATTEND, LAYERS),
    edits={
        "import": {
            "from x_transformers.attend import": "from x_transformers.attend_ported import",
            "from torch_einops_utils.nn import": "from torch_einops_utils.nn_ported import",
            "from torch.amp import autocast": "from bridge.torch import autocast",
        },
        "package": {AUTOCAST: "        return fn(*args, **kwargs)\n"},
        "initial value": {"arange(0, dim, 2).float() / dim": "torch.to(arange(0, dim, 2), torch.float) / dim"},
        "method": {
            "t.max() + 1": "torch.max(t) + 1",
            "t.type_as(self.inv_freq)": "torch.to(t, self.inv_freq.dtype)",
            "x.unbind(dim = -1)": "torch.unbind(x, dim = -1)",
            "freqs.cos()": "torch.cos(freqs)",
            "freqs.sin()": "torch.sin(freqs)",
            "out.type(orig_dtype)": "torch.to(out, orig_dtype)",
            "embed.mean(dim = -2)": "torch.mean(embed, dim = -2)",
            "self.proj(x).chunk(2, dim = -1)": "torch.chunk(self.proj(x), 2, dim = -1)",
        },
        "operator": {
            "F.normalize(x, dim = -1) * self.scale * gamma": "torch.mul(F.normalize(x, dim = -1) * self.scale, gamma)",
            "normed * gamma": "torch.mul(normed, gamma)",
            "self.rmsnorm(x) * (self.gamma + 1.)": "torch.mul(self.rmsnorm(x), self.gamma + 1.)",
            "x + self.pos_embedding[:, :n]": "torch.add(x, self.pos_embedding[:, :n])",
        },
    },
    differs={"pynative": ORDER},
    not_for={"graph": PYTHON},
    make=lambda models: models.TransformerWrapper(
        num_tokens=11,
        max_seq_len=8,
        attn_layers=models.Decoder(
            dim=16,
            depth=1,
            heads=2,
            attn_dim_head=8,
            rotary_pos_emb=True,
            use_rmsnorm=True,
            ff_glu=True,
            ff_swish=True,
            verbose=False,
        ),
    ),
    inputs=(words(8, 11),),
)
