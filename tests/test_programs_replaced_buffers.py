"""Modules in graphs that put other tensors in the places of their buffers, and use the former ones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from of_users.scripted import Counting
from shared import on_device, torch_device


class Buffers(torch.nn.Module):
    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor
    d: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in "abcd":
            self.register_buffer(name, torch.zeros(2, device=torch_device()))
        self.w = torch.nn.Parameter(torch.ones(2, device=torch_device()))


class Former(Buffers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.b = self.a
        self.a = x.detach()
        return x * self.w + self.b


class Exchanged(Buffers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.a, self.b = self.b + x.detach(), self.a
        self.a, self.b = self.b, self.a
        return x * self.a * self.w


class Ring(Buffers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.d, self.c, self.b, self.a = self.c, self.b, self.a, x.detach()
        return x * self.w + self.d + self.c * 2


class Views(Buffers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.b, self.c = self.a.view(-1), self.a.detach()
        self.a = x.detach() * 2
        return x * self.w + self.b


class FormerAsResult(Buffers):
    def forward(self, x: torch.Tensor) -> Any:
        former, part = self.a, self.a[:1]
        self.a = x.detach() + 0
        return x * self.w, former, part, self.a


class OfItsView(torch.nn.Module):
    a: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.arange(4.0).view(2, 2))
        self.w = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.a = self.a.t()
        return x * self.w + self.a[0]


class Averaged(torch.nn.Module):
    """An average whose weight follows from a counter."""

    step: torch.Tensor
    average: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("step", torch.tensor(0.0))
        self.register_buffer("average", torch.zeros(2))
        self.w = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        decay = min(0.9, (1 + self.step.item()) / (3 + self.step.item()))
        with torch.no_grad():
            self.average.lerp_(self.w * x, 1 - decay)
        return x * self.w + self.average


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("differentiate", [None, ms.value_and_grad, bridge.value_and_grad])
@pytest.mark.parametrize("make", [Former, Exchanged, Ring, Views, FormerAsResult, OfItsView, Averaged])
def test_former_buffers_keep_their_values(make: Callable[[], Any], differentiate: Any) -> None:
    module = make()
    reference = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    called = net if differentiate is None else differentiate(net, None, net.trainable_params())

    @ms.jit
    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return called(x)

    for i in range(1, 6):
        x = np.array([i, i * i], np.float32)
        found = step(ms.Tensor(x))
        expected = as_tuple(reference(on_device(x)))
        if differentiate is not None:
            found, [gradient] = found
            [own] = torch.autograd.grad(sum(value.sum() for value in expected), [reference.w])
            np.testing.assert_array_equal(gradient.asnumpy(), own.cpu().numpy())
        for one, other in zip(as_tuple(found), expected, strict=True):
            np.testing.assert_array_equal(one.asnumpy(), other.detach().cpu().numpy())
        buffers = dict(reference.named_buffers())
        for name, parameter in net.parameters_and_names():
            if name in buffers:
                np.testing.assert_array_equal(parameter.asnumpy(), buffers[name].cpu().numpy())


class Known(Buffers):
    """Its buffer has another name, and gets another tensor in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.also = self.know(self.a)

    @staticmethod
    def know(tensor: torch.Tensor) -> Any:
        return tensor

    def known(self) -> torch.Tensor:
        return self.also  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.a = self.a * 0.5 + x.detach()
        return x * self.w + self.a + self.known()


class KnownInList(Known):
    know = staticmethod(lambda tensor: [tensor])

    def known(self) -> torch.Tensor:
        return self.also[0]  # type: ignore[no-any-return]


class KnownByView(Known):
    know = staticmethod(lambda tensor: tensor[:1])


@pytest.mark.parametrize("make", [Known, KnownInList, KnownByView])
def test_another_name_of_a_buffer_keeps_the_first_tensor(make: Callable[[], Any]) -> None:
    module = make()
    kept, before = module.a, module.a.clone().cpu()
    test_former_buffers_keep_their_values(lambda: module, ms.value_and_grad)
    assert torch.equal(kept.cpu(), before)
    again = make()
    test_former_buffers_keep_their_values(lambda: again, None)  # by the kept program


@pytest.mark.parametrize("make_program", [bridge.fuse, lambda f: bridge.value_and_grad(f, 0)])
def test_programs_follow_a_buffer_that_pynative_mode_has_replaced(make_program: Callable[[Any], Any]) -> None:
    module = Known()
    reference = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    x = np.array([1, 2], np.float32)
    net(ms.Tensor(x))
    reference(on_device(x))
    program = make_program(lambda x: net(x).sum())
    found = program(ms.Tensor(x))
    expected = reference(on_device(x)).sum()
    np.testing.assert_array_equal(
        (found[0] if isinstance(found, tuple) else found).asnumpy(), expected.detach().cpu().numpy()
    )


class OfAWeight(Buffers):
    def __init__(self) -> None:
        super().__init__()
        self.a = self.w.detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.a = self.a * 0.9 + self.w.detach() * 0.1
        return x[0, :2] * self.a * self.w


class TwoNames(OfAWeight):
    def __init__(self) -> None:
        super().__init__()
        self.a = self.b


class Tied(Buffers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.a.add_(x[0, :2])
        y = self.b * self.w
        self.b = self.a[:]
        return y


class TiedToAWeight(Buffers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.b * self.w * x[0, :2]
        self.b = self.w.detach()
        return y


def test_a_buffer_of_torchscript_is_refused_and_stays() -> None:
    module = torch.jit.script(Counting().to(torch_device()))
    net = bridge.cell(module)

    @ms.jit
    def called(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    with pytest.raises(RuntimeError, match="in the place of its buffer 'n'"):
        called(ms.Tensor(np.ones((1, 2), np.float32)))
    assert torch.equal(module.n.cpu(), torch.zeros(2))
    np.testing.assert_array_equal(net(ms.Tensor(np.ones((1, 2), np.float32))).asnumpy(), np.ones((1, 2)))


class BothReplaced(Buffers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.a = self.b = self.b + x.detach()
        return x * self.w + self.a


def test_two_buffers_that_a_call_has_made_one() -> None:
    module = BothReplaced()
    reference = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)

    @ms.jit
    def called(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    for call in (net, called, called, net, called):
        x = np.array([1, 2], np.float32)
        np.testing.assert_array_equal(call(ms.Tensor(x)).asnumpy(), reference(on_device(x)).detach().cpu().numpy())


class Resizes(torch.nn.Module):
    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(1))
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.scale.shape != (4,):
            self.scale.resize_(4)
        self.scale.copy_(x.abs().amax(0))
        return self.layer(x / self.scale)


class Named(torch.Tensor):
    pass


class OfAClass(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.as_subclass(Named) * 2


class DifferentiatedLerp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w.lerp(x, x.mean().item())


@pytest.mark.parametrize(
    "make, words",
    [
        (OfAWeight, "the buffer 'a' has the memory of 'w'"),
        (TwoNames, "the buffer 'a' has the memory of 'b'"),
        (Tied, "the buffer 'b' becomes one memory with 'a'"),
        (TiedToAWeight, "the buffer 'b' becomes one memory with 'w'"),
        (Resizes, r"of the shape \(1,\) gets the shape \(4,\), which a graph does not keep"),
        (OfAClass, "no tensors of a class of their own, as Named: PyNative mode does"),
        (DifferentiatedLerp, "a float that depends on data is given to lerp"),
    ],
)
def test_what_a_graph_does_not_take(make: Callable[[], Any], words: str) -> None:
    net = bridge.cell(make())

    @ms.jit
    def called(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    with pytest.raises(RuntimeError, match=rf"(?s){words}.*test_programs_replaced_buffers\.py"):
        called(ms.Tensor(np.ones((2, 4), np.float32)))


class Halves(Buffers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.a = self.a * 0.5 + 1
        return x * self.w * self.a


class HalvesInPlace(Buffers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.a.mul_(0.5).add_(1)
        return x * self.w * self.a


def test_two_calls_in_one_gradient_of_a_module_that_writes_to_a_buffer() -> None:
    """PyTorch refuses that gradient, and so does bridge.value_and_grad. MindSpore's has what the first call used."""
    net, reference = bridge.cell(HalvesInPlace()), Halves()

    def loss_of(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(net(x)).square().sum()

    differentiate = ms.value_and_grad(loss_of, None, net.trainable_params())

    @ms.jit
    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(x)

    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for _ in range(2):
        reference.zero_grad()
        loss = reference(reference(on_device(x))).square().sum()
        loss.backward()
        found, (gradient,) = step(ms.Tensor(x))
        assert float(found) == loss.item()
        assert gradient.asnumpy().tobytes() == reference.w.grad.cpu().numpy().tobytes()  # type: ignore[union-attr]
