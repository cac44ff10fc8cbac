"""Data-parallel training of a PyTorch module in MindSpore, beside one process and beside PyTorch's own."""
