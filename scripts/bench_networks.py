"""The networks that bench_programs.py and bench_first_call.py measure, in PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F


class Block(torch.nn.Module):
    """Of a GPT, or of a vision transformer if nothing is masked."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Bottleneck(torch.nn.Module):
    """Of a ResNet-50."""

    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        conv, norm = torch.nn.Conv2d, torch.nn.BatchNorm2d
        self.conv1, self.norm1 = conv(a, b, 1, bias=False), norm(b)
        self.conv2, self.norm2 = conv(b, b, 3, stride, 1, bias=False), norm(b)
        self.conv3, self.norm3 = conv(b, 4 * b, 1, bias=False), norm(4 * b)
        same = stride == 1 and a == 4 * b
        self.short: torch.nn.Module = torch.nn.Identity() if same else torch.nn.Sequential(
            conv(a, 4 * b, 1, stride, bias=False), norm(4 * b))  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = F.relu(self.norm2(self.conv2(y)), inplace=True)
        return F.relu(self.norm3(self.conv3(y)) + self.short(x), inplace=True)


class GPT(torch.nn.Module):
    def __init__(self, width: int = 256, layers: int = 6, heads: int = 8, words: int = 1000, length: int = 64) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(words, width)
        self.places = torch.nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = torch.nn.Sequential(*(Block(width, heads, True) for _ in range(layers)))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places)))


class ViT(torch.nn.Module):
    """ViT-Tiny or a larger one, of 16 by 16 patches."""

    def __init__(self, width: int = 192, layers: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, width, 16, 16)
        self.token = torch.nn.Parameter(torch.zeros(1, 1, width))
        self.places = torch.nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.blocks = torch.nn.Sequential(*(Block(width, heads, False) for _ in range(layers)))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class LlamaBlock(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)
        self.q, self.k, self.v, self.o = (torch.nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (torch.nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(3 * width, width, bias=False)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        """Rotary positions."""
        batch, length, width = x.shape
        x = x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        half = x.shape[-1] // 2
        places, powers = (torch.arange(count, device=x.device) for count in (length, half))
        angles = torch.outer(places, 10000.0 ** (-powers / half))
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q, k = self.turned(self.q(y)), self.turned(self.k(y))
        v = self.v(y).view(*y.shape[:2], self.heads, -1).transpose(1, 2)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def llama() -> torch.nn.Module:
    blocks = [LlamaBlock(64, 4) for _ in range(2)]
    return torch.nn.Sequential(
        torch.nn.Embedding(256, 64), *blocks, torch.nn.RMSNorm(64), torch.nn.Linear(64, 256, bias=False)
    )


def cnn() -> torch.nn.Module:
    def layer(a: int, b: int) -> list[torch.nn.Module]:
        return [torch.nn.Conv2d(a, b, 3, padding=1), torch.nn.BatchNorm2d(b), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]

    last = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 10)]
    return torch.nn.Sequential(*layer(3, 32), *layer(32, 64), *layer(64, 128), *last)


class Residual(torch.nn.Module):
    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = torch.nn.Conv2d(a, b, 3, stride, 1, bias=False), torch.nn.BatchNorm2d(b)
        self.conv2, self.norm2 = torch.nn.Conv2d(b, b, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(b)
        same = stride == 1 and a == b
        self.short: torch.nn.Module = torch.nn.Identity() if same else torch.nn.Sequential(
            torch.nn.Conv2d(a, b, 1, stride, bias=False), torch.nn.BatchNorm2d(b))  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.short(x), inplace=True)


def resnet18() -> torch.nn.Module:
    first = [torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(64), torch.nn.ReLU(True),
             torch.nn.MaxPool2d(3, 2, 1)]  # fmt: skip
    widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
    blocks = [Residual(a, b, 1 if a == b else 2) for a, b in itertools.pairwise(widths)]
    return torch.nn.Sequential(
        *first, *blocks, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, 1000)
    )


def resnet50() -> torch.nn.Module:
    layers: list[torch.nn.Module] = [
        torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(64), torch.nn.ReLU(True),
        torch.nn.MaxPool2d(3, 2, 1)]  # fmt: skip
    a = 64
    for b, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for i in range(blocks):
            layers.append(Bottleneck(a, b, 2 if i == 0 and b > 64 else 1))
            a = 4 * b
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(2048, 1000))


def mlp() -> torch.nn.Module:
    linear = torch.nn.Linear
    return torch.nn.Sequential(linear(256, 256), torch.nn.GELU(), linear(256, 256), torch.nn.GELU(), linear(256, 10))


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def tokens(words: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, words, shape)


Networks = dict[str, tuple[Callable[[], torch.nn.Module], np.ndarray]]

_SMALL: Networks = {
    "mlp": (mlp, numbers(32, 256)),
    "llama": (llama, tokens(256, 4, 32)),
    "gpt": (GPT, tokens(1000, 8, 64)),
    "cnn": (cnn, numbers(8, 3, 64, 64)),
}

ON_CPU: Networks = {
    **_SMALL,
    "vit": (ViT, numbers(4, 3, 224, 224)),
    "resnet18": (resnet18, numbers(4, 3, 224, 224)),
}

ON_GPU: Networks = {
    **_SMALL,
    "resnet50": (resnet50, numbers(8, 3, 224, 224)),
    "vit-small": (lambda: ViT(384, 12, 6), numbers(32, 3, 224, 224)),
    "gpt-1024": (lambda: GPT(1024, 12, 16, 8000, 512), tokens(8000, 8, 512)),
}
