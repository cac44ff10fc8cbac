"""einops' layers: `torch` has those that einops has for PyTorch, as Cells."""
