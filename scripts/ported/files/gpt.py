"""microgpt's model, which is nanoGPT's: causal attention, tied weights, initial values by `apply`."""

from ..file import File, words

FILE = File(
    name="gpt",
    source="microgpt.model",
    edits={
        "method": {
            "x.size()": "x.shape",
            "logits.size(-1)": "logits.shape[-1]",
            "self.c_attn(x).split(self.n_embd, dim=2)": "torch.split(self.c_attn(x), self.n_embd, dim=2)",
        },
        "graph": {
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
