"""Runs every entry of PyTorch's ModuleInfo database as a layer of bridge.nn, beside PyTorch, and compares all bits.

    python -m scripts.layers                     # all, in both modes
    python -m scripts.layers Conv LSTM           # those with one of these in their names
    python -m scripts.layers --mode pynative     # in one mode
    python -m scripts.layers --device GPU --every 5

Of each sample, in training and in evaluation, it compares the names and initial values of the `state_dict`, the
results, the gradients of inputs and parameters, and the buffers after the call. A sample that PyTorch refuses or that
has no tensors is not counted. On a GPU PyTorch's modules are made on the CPU, where the layers draw their initial
values, and run on the GPU.
"""

from __future__ import annotations

import argparse
import collections
import copy
import inspect
import itertools
import signal
import warnings
from collections.abc import Iterator
from typing import Any

import mindspore as ms
import torch
from torch.testing._internal.common_modules import module_db

import bridge
from bridge import aten
from bridge import nn as tnn
from bridge.op import devices
from bridge.primitive.tensors import from_torch, torch_view
from bridge.programs.tree import Tree

LIMIT = 120  # seconds that one sample may take
MODES = ("pynative", "graph")


class Missed(Exception):
    """A difference."""


def with_tensors(value: Any, kind: type, convert: Any) -> Any:
    tree = Tree(value, kind, lambda leaf: leaf)
    return tree.with_tensors([convert(tensor) for tensor in tree.tensors])


def to_mindspore(value: Any) -> Any:
    return with_tensors(value, torch.Tensor, lambda tensor: from_torch(tensor.detach()))


def tensors_of(value: Any, kind: type) -> list[Any]:
    return Tree(value, kind, lambda leaf: leaf).tensors


def in_float32(tensor: torch.Tensor) -> torch.Tensor:
    """As the database's users bring a module to the dtype of its inputs."""
    return tensor.detach().float() if tensor.is_floating_point() else tensor


def torch_device() -> str:
    """PyTorch's name of MindSpore's device."""
    return devices.torch_name(devices.target())


def same(own: ms.Tensor, expected: torch.Tensor) -> bool:
    found, expected = torch_view(own).cpu().reshape(-1), expected.detach().cpu().contiguous().reshape(-1)
    return found.dtype == expected.dtype and torch.equal(found.view(torch.uint8), expected.view(torch.uint8))


def compare(what: str, own: list[Any], expected: list[Any]) -> None:
    if len(own) != len(expected):
        raise Missed(f"{what}: {len(own)} tensors for {len(expected)}")
    for i, (one, other) in enumerate(zip(own, expected, strict=True)):
        if other is None:
            other = torch.zeros(tuple(one.shape), dtype=torch_view(one).dtype)  # MindSpore has zeros for no gradient
        if tuple(one.shape) != tuple(other.shape) or not same(one, other):
            raise Missed(f"{what} {i}: {'other bits' if tuple(one.shape) == tuple(other.shape) else 'another shape'}")


def paths(value: Any) -> Iterator[tuple[int, ...]]:
    """Where in nested tuples the tensors stand."""
    if isinstance(value, (torch.Tensor, ms.Tensor)):
        yield ()
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from ((i, *path) for path in paths(item))


class Pick(ms.nn.Cell):
    def __init__(self, path: tuple[int, ...]) -> None:
        super().__init__()
        self.path = path

    def construct(self, value):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        for i in self.path:
            value = value[i]
        return value


class Loss(ms.nn.Cell):
    """Half the sum of those of a layer's results that have a gradient. Of an argument that is a tuple it takes the
    items: MindSpore has no gradient of the tuple in PyNative mode."""

    def __init__(self, layer: Any, places: list[Any], picks: list[Pick]) -> None:
        super().__init__()
        self.layer = layer
        self.places = places
        self.picks = ms.nn.CellList(picks)

    def construct(self, *items):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        args = ()
        for kind, place in self.places:
            if kind == "tensor":
                args = (*args, items[place])
            elif kind == "pair":
                args = (*args, (items[place], items[place + 1]))
            else:
                args = (*args, place)
        results = self.layer(*args)
        total = 0.0
        for pick in self.picks:
            total = total + aten.sum(aten.mul(pick(results), 0.5))
        return total, results


class Sample:
    """One sample of one entry: how a layer is made and called."""

    def __init__(self, info: Any, given: Any, training: bool) -> None:
        self.cls, self.training = info.module_cls, training
        self.made, self.called = given.constructor_input, given.forward_input

    def run(self, mode: str) -> None:
        made = with_tensors((tuple(self.made.args), dict(self.made.kwargs)), torch.Tensor, in_float32)
        args, kwargs = copy.deepcopy(made)
        torch.manual_seed(7)
        module = self.cls(*args, **kwargs).train(self.training)
        args, kwargs = to_mindspore(made)
        bridge.manual_seed(7)
        layer = getattr(tnn, self.cls.__name__)(*args, **kwargs).set_train(self.training)
        is_lazy = any(map(torch.nn.parameter.is_lazy, module.parameters()))
        if not is_lazy:
            self._compare_state("initial state_dict", module, layer)
        given = tuple(self.called.args), dict(self.called.kwargs)
        own = to_mindspore(given)
        if is_lazy:
            torch.manual_seed(9)
            module._infer_parameters(module, *given)
        module.to(torch_device())
        if is_lazy:
            module(*given[0], **given[1])
            bridge.manual_seed(9)
            layer(*own[0], **own[1])
        self._compare(module, layer, given, own, mode)
        self._compare_state("state_dict after", module, layer)

    def _compare(self, module: torch.nn.Module, layer: Any, given: Any, own: Any, mode: str) -> None:
        leaves: list[torch.Tensor] = []

        def leaf(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.requires_grad:
                return tensor
            leaves.append(tensor.detach().clone().requires_grad_())
            return leaves[-1]

        args, kwargs = with_tensors(given, torch.Tensor, leaf)
        torch.manual_seed(11)
        results = module(*args, **kwargs)
        flat = tensors_of(results, torch.Tensor)
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        roots = [(path, t) for path, t in zip(paths(results), flat, strict=True) if t.requires_grad]
        halves = [torch.full_like(t, 0.5, memory_format=torch.contiguous_format) for _, t in roots]
        wants = [item.requires_grad for item in _flat(_positional(module, (args, kwargs)), torch.Tensor)[0]]
        positions = tuple(i for i, wanted in enumerate(wants) if wanted)
        differentiated = [*leaves, *trained]
        in_graph = ms.jit if mode == "graph" else (lambda function: function)
        items, places = _flat(_positional(module, own), ms.Tensor)
        weights = list(layer.trainable_params())
        bridge.manual_seed(11)
        expected = gradients_in_torch([t for _, t in roots], differentiated, halves)
        if expected is None:

            def call(*args, **kwargs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
                return layer(*args, **kwargs)

            found = in_graph(call)(*own[0], **own[1])
            ms.runtime.synchronize()
            compare("result", tensors_of(found, ms.Tensor), flat)
            return
        loss = Loss(layer, places, [Pick(path) for path, _ in roots])
        loss.set_train(self.training)
        gradient = ms.value_and_grad(loss, positions or None, weights or None, has_aux=True)

        def step(*args):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            return gradient(*args)

        (_, found), gradients = in_graph(step)(*items)
        ms.runtime.synchronize()
        compare("result", tensors_of(found, ms.Tensor), flat)
        compare("gradient", tensors_of(gradients, ms.Tensor), list(expected))

    def _compare_state(self, what: str, module: torch.nn.Module, layer: Any) -> None:
        expected, own = module.state_dict(), layer.state_dict()
        if list(expected) != list(own):
            raise Missed(f"{what}: names {list(own)} for {list(expected)}")
        for name, value in expected.items():
            if not torch.equal(own[name].cpu(), value.cpu()):
                raise Missed(f"{what}: {name} has other bits")


def gradients_in_torch(results: list[Any], tensors: list[Any], given: list[Any]) -> tuple[Any, ...] | None:
    """None if there are none, or PyTorch refuses them, as of cuDNN's recurrent layers in evaluation."""
    if not results or not tensors:
        return None
    try:
        return torch.autograd.grad(results, tensors, given, allow_unused=True)
    except RuntimeError:
        return None


def _positional(module: torch.nn.Module, given: tuple[Any, Any]) -> tuple[Any, ...]:
    """All arguments by position: in a graph MindSpore does not differentiate a function of keywords."""
    bound = inspect.signature(module.forward).bind(*given[0], **given[1])
    bound.apply_defaults()
    return bound.args


def _flat(args: tuple[Any, ...], kind: type) -> tuple[list[Any], list[Any]]:
    """The tensors among the arguments, with pairs taken apart, and where the arguments are among them."""
    items: list[Any] = []
    places: list[Any] = []
    for value in args:
        if isinstance(value, tuple) and any(isinstance(item, kind) for item in value):
            places.append(("pair", len(items)))
            items += value
        elif isinstance(value, kind):
            places.append(("tensor", len(items)))
            items.append(value)
        else:
            places.append(("constant", value))
    return items, places


def samples(info: Any) -> Iterator[Sample]:
    for training in (True, False):
        torch.manual_seed(5)
        given = info.module_inputs_func(
            info, device=torch_device(), dtype=torch.float32, requires_grad=True, training=training
        )
        for one in given:
            if one.forward_input is not None:
                yield Sample(info, one, training)


def verdict(sample: Sample, mode: str) -> str:
    """Nothing if all bits are equal."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"more than {LIMIT} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    try:
        sample.run(mode)
        return ""
    except Missed as missed:
        return str(missed)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    finally:
        signal.alarm(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument("--first", type=int, help="only so many samples of each entry and mode")
    parser.add_argument("--every", type=int, default=1, help="only every so many entries")
    parser.add_argument("--device", choices=("CPU", "GPU"), default="CPU", help="PyTorch's modules run there too")
    arguments = parser.parse_args()
    ms.set_device(arguments.device)
    warnings.simplefilter("ignore")
    total: collections.Counter[str] = collections.Counter()
    equal: collections.Counter[str] = collections.Counter()
    for info in itertools.islice(module_db, 0, None, arguments.every):
        if arguments.names and not any(name.lower() in info.name.lower() for name in arguments.names):
            continue
        for mode in [arguments.mode] if arguments.mode else MODES:
            for i, sample in enumerate(itertools.islice(samples(info), arguments.first)):
                found = verdict(sample, mode)
                total[mode] += 1
                equal[mode] += not found
                if found:
                    print(
                        f"{info.name} {mode} sample {i} {'train' if sample.training else 'eval'}: {found}", flush=True
                    )
    for mode in total:
        print(f"{mode}: {equal[mode]} of {total[mode]} samples bit-equal, {100 * equal[mode] / total[mode]:.1f} %")


if __name__ == "__main__":
    main()
