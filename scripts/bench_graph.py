#!/usr/bin/env python3
"""What a graph costs to compile, beside the same graph of MindSpore's own operators, in one run.

Chains of calls whose arguments differ from call to call, so that nothing is found once for all; a GPT of six layers
(107 calls) forward and as a training step; a call with a long list of tensors. Each is the time from the first call of
the graph to its result, its one run included, after a small graph has warmed the compiler up. MindSpore writes no cache
meanwhile (MS_COMPILER_CACHE_ENABLE).

A chain is a function of functions, as a network is a Cell of Cells, and each has its own weights. In one long function
MindSpore takes a time for a keyword call, its own operators' too, that grows with the length of the function, and it
sums the gradients of a weight that is used often.

    python scripts/bench_graph.py                    # about three minutes on two cores
    python scripts/bench_graph.py --lengths 20,60,200,2000
    python scripts/bench_graph.py --lengths 2000 --calls-in-a-function 2000
    python scripts/bench_graph.py --freeze           # after gc.freeze(): MindSpore collects garbage before it compiles
"""

from __future__ import annotations

import argparse
import functools
import gc
import time
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn

from bridge import aten
from conformance.source import module_of

# Links of a chain over x (16, 16), as source, by the link's number: what a network of the bridge's calls writes, and
# the nearest that MindSpore has.
CHAINS: dict[str, tuple[Callable[[int], str], Callable[[int], str]]] = {
    "positional": (lambda i: f"aten.leaky_relu(x, {i / 997})", lambda i: f"ops.leaky_relu(x, {i / 997})"),
    "keywords": (lambda i: f"aten.add(x, x, alpha={i / 997})", lambda i: f"ops.add(x, x * {i / 997})"),
    "lists": (lambda i: f"aten.view(x, [{2 << i % 7}, -1])", lambda i: f"ops.reshape(x, ({2 << i % 7}, -1))"),
    "layers": (
        lambda i: f"aten.layer_norm(aten.linear(x, w, b), [16], b, b, {1e-5 * i})",
        lambda i: f"ops.softmax(ops.matmul(x, w) + {1e-5 * i}, -1)",  # its layer_norm takes minutes here
    ),
}
CALLS_IN_A_LINK = {"layers": 2}


class Attention(nn.Cell):
    """A block of a GPT, of the bridge's calls."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads

        def weights(*shape: int) -> ms.Parameter:
            return ms.Parameter(ms.Tensor(np.random.default_rng(0).standard_normal(shape, np.float32) * 0.02))

        self.gain1, self.bias1, self.gain2, self.bias2 = (weights(width) for _ in range(4))
        self.attend, self.attend_bias = weights(3 * width, width), weights(3 * width)
        self.project, self.project_bias = weights(width, width), weights(width)
        self.up, self.up_bias = weights(4 * width, width), weights(4 * width)
        self.down, self.down_bias = weights(width, 4 * width), weights(width)

    def construct(self, x):
        batch, length, width = x.shape
        y = aten.layer_norm(x, [width], self.gain1, self.bias1)
        q, k, v = aten.split(aten.linear(y, self.attend, self.attend_bias), width, 2)
        sizes = [batch, length, self.heads, width // self.heads]
        q, k, v = (
            aten.transpose(aten.view(q, sizes), 1, 2),
            aten.transpose(aten.view(k, sizes), 1, 2),
            aten.transpose(aten.view(v, sizes), 1, 2),
        )
        y = aten.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = aten.reshape(aten.transpose(y, 1, 2), [batch, length, width])
        x = aten.add(x, aten.linear(y, self.project, self.project_bias))
        y = aten.layer_norm(x, [width], self.gain2, self.bias2)
        y = aten.gelu(aten.linear(y, self.up, self.up_bias), approximate="tanh")
        return aten.add(x, aten.linear(y, self.down, self.down_bias))


class GPT(nn.Cell):
    """Six blocks between an embedding and the loss: 107 calls."""

    def __init__(self, words: int = 100, width: int = 32, layers: int = 6) -> None:
        super().__init__()
        self.embedding = ms.Parameter(ms.Tensor(np.random.default_rng(1).standard_normal((words, width), np.float32)))
        self.blocks = nn.CellList([Attention(width, 4) for _ in range(layers)])

    def construct(self, tokens, targets):
        x = aten.embedding(self.embedding, tokens)
        for block in self.blocks:
            x = block(x)
        logits = aten.linear(x, self.embedding)
        return aten.cross_entropy_loss(aten.view(logits, [-1, logits.shape[2]]), aten.view(targets, [-1]))


def function(source: str) -> Any:
    """The function `f` of the source."""
    return module_of(f"from mindspore import ops\nfrom bridge import aten\n\n\n{source}").f


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    ms.runtime.synchronize()
    return time.perf_counter() - start


def chain(link: Callable[[int], str], length: int, a_function: int, gradient: bool) -> float:
    """Seconds to compile a chain of so many links, so many a function, and run it once."""
    source = calls = ""
    starts = range(1, length + 1, a_function)
    for start in starts:
        links = "".join(f"    x = {link(i)}\n" for i in range(start, min(start + a_function, length + 1)))
        source += f"def f{start}(x, w, b):\n{links}    return x\n\n\n"
        calls += f"    x = f{start}(x, w{start}, b{start})\n"
    weights = ", ".join(f"w{start}, b{start}" for start in starts)
    f = function(f"{source}def f(x, {weights}):\n{calls}    return x\n")
    rng = np.random.default_rng(0)
    shapes = [(16, 16), *[(16, 16), (16,)] * len(starts)]
    tensors = [ms.Tensor(rng.standard_normal(shape, np.float32)) for shape in shapes]
    graph = ms.jit(ms.grad(f, tuple(range(len(tensors)))) if gradient else f)
    return seconds(lambda: graph(*tensors))


def print_chains(lengths: list[int], a_function: int) -> None:
    print(f"ms a call, {a_function} calls a function; MindSpore's own operators behind the stroke")
    print(f"{'':22}" + "".join(f"{f'{length} calls':>18}" for length in lengths))
    for name, links in CHAINS.items():
        for gradient in (False, True):
            row = f"{name + (', gradient' if gradient else ''):22}"
            for length in lengths:
                calls = CALLS_IN_A_LINK.get(name, 1)
                size = length // calls, a_function // calls
                ours, theirs = (1e3 * chain(link, *size, gradient) / length for link in links)
                row += f"{f'{ours:.1f} | {theirs:.1f}':>18}"
            print(row, flush=True)


def print_gpt() -> None:
    rng = np.random.default_rng(2)
    tokens, targets = (ms.Tensor(rng.integers(0, 100, (2, 16)), ms.int64) for _ in range(2))
    forward, step = GPT(), GPT()
    gradients = ms.value_and_grad(step, None, step.trainable_params())
    print(f"GPT of 107 calls, forward: {seconds(lambda: forward(tokens, targets)):.2f} s")
    print(f"GPT of 107 calls, training step: {seconds(lambda: gradients(tokens, targets)):.2f} s", flush=True)


def print_lists(length: int) -> None:
    for name, expression in (("cat", "aten.cat(xs)"), ("MindSpore's stack", "ops.stack(xs)")):
        graph = ms.jit(function(f"def f(xs):\n    return {expression}\n"))
        tensors = [ms.Tensor(np.full((2, 2), i, np.float32)) for i in range(length)]
        run = functools.partial(graph, tensors)
        print(f"{name} of a list of {length} tensors: {seconds(run):.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="20,60,200")
    parser.add_argument("--calls-in-a-function", type=int, default=100)
    parser.add_argument("--freeze", action="store_true")
    parser.add_argument("--device", default="CPU", choices=("CPU", "GPU"))
    arguments = parser.parse_args()
    ms.set_device(arguments.device)
    if arguments.freeze:
        gc.freeze()
    warm = ms.jit(function("def f(x):\n    return aten.tanh(ops.abs(x))\n"))
    print(f"the first graph, of two calls: {seconds(lambda: warm(ms.Tensor([1.0]))):.2f} s", flush=True)
    print_chains([int(length) for length in arguments.lengths.split(",")], arguments.calls_in_a_function)
    ms.set_context(mode=ms.GRAPH_MODE)
    print_gpt()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    print_lists(600)


if __name__ == "__main__":
    main()
