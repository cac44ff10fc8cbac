"""Ports public PyTorch files to MindSpore by text edits, and compares what they compute with PyTorch, bit for bit.

    python -m scripts.ported                     # all files, in both modes
    python -m scripts.ported resnet vit          # some
    python -m scripts.ported --edits resnet      # what is edited, instead

The edits are made on the source of the installed package; build/ported/ has the result. A file is equal if its initial
values, its results, all gradients and the weights after ten steps of AdamW have the same bits. It needs

    pip install --no-deps torchvision vit-pytorch einops
"""
