"""Questions that decide about messages only."""

from __future__ import annotations

import copy
import io
import logging
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge.programs import graph
from shared import data, torch_device

pytestmark = [pytest.mark.usefixtures("own_programs", "graph_mode")]

Forward = Callable[["Says", torch.Tensor], Any]
logger = logging.getLogger("says")


class Says(nn.Module):
    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(0.3)
        self.logger, self.rate = logger, 0.5
        self._forward = forward

    def forward(self, x: torch.Tensor) -> Any:
        return self._forward(self, x)

    @property
    def normal(self) -> torch.Tensor:
        return self.norm(self.layers[0].weight)

    def doubled(self, x: torch.Tensor) -> torch.Tensor:
        self.norm(x)
        return x * 2


def prints(module: Says, x: torch.Tensor) -> torch.Tensor:
    for i, layer in enumerate(module.layers):
        x = module.drop(layer(x))
        if torch.min(x) < -1.0:
            print("min value is ", torch.min(x), f"{x.max().item():.2f} {x.abs().sum()}", i, x.shape, flush=True)
        if not torch.isnan(x).any():
            pass
    return x


def logs(module: Says, x: torch.Tensor) -> torch.Tensor:
    if torch.isnan(x).any():
        logger.warning("%d numbers are none", torch.isnan(x).sum())
        module.logger.info("and the mean is %s", x.mean().item())
    if (x > 0.5).any():
        """Large."""
        logging.error("large")
    return module.layers[0](x)


def says_numbers(module: Says, x: torch.Tensor) -> torch.Tensor:
    out = {"loss": x.mean(), "one": x[:1, :1]}
    loss, step = out["loss"], 3
    if torch.isnan(loss):
        print("nan", loss.item(), float(loss), out["loss"], out["one"].detach().cpu().item(), module.rate)
    if loss > 0:
        print(f"loss is {loss.item():.3f} and {loss.detach().float().item()} at {step:02d}, {torch.abs(loss).item()}")
        logger.warning("loss is %.3f in step %d", out["loss"].item(), step)
    return module.layers[0](x) * loss


def says_a_number_of_many(module: Says, x: torch.Tensor) -> torch.Tensor:
    if x.mean() > 0:
        print(x.item())
    return module.layers[0](x)


def passes_the_answer_on(module: Says, x: torch.Tensor) -> torch.Tensor:
    found: list[bool] = []

    def note(value: bool) -> bool:
        found.append(value)
        return value

    if note(bool(x.mean() > 0)):
        print("positive")
    return x * 2 if found[0] else x


def warns(module: Says, x: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if x.mean() > 0:
            warnings.warn("positive", stacklevel=2)
    return module.layers[0](x) * (1 + len(caught))


def counts_what_it_says(module: Says, x: torch.Tensor) -> torch.Tensor:
    written = io.StringIO()
    if x.mean() > 0:
        print("positive", file=written)
    return module.layers[0](x) * (1 + len(written.getvalue()))


def draws_an_index(module: Says, x: torch.Tensor) -> torch.Tensor:
    if x.mean() > 0:
        print("sample", x[torch.randint(0, 3, (1,))])
    return module.drop(module.layers[0](x))


def has_a_property(module: Says, x: torch.Tensor) -> torch.Tensor:
    y = module.layers[0](x)
    if y.mean() > 0:
        print("normal", module.normal)
    return module.norm(y)


def says_and_does(module: Says, x: torch.Tensor) -> torch.Tensor:
    x = module.layers[0](x)
    if x.mean() > 0:
        print("positive")
        x = x * 2
    return x


def asks_again(module: Says, x: torch.Tensor) -> torch.Tensor:
    is_positive = x.mean() > 0
    if is_positive:
        print("positive")
    return module.layers[0](x) * 2 if is_positive else x


def does_otherwise(module: Says, x: torch.Tensor) -> torch.Tensor:
    if x.mean() > 0:
        print("positive")
    else:
        x = -x
    return x


def calls_its_own(module: Says, x: torch.Tensor) -> torch.Tensor:
    if x.mean() > 0:
        print("twice", module.doubled(x).sum())
    return module.norm(module.layers[0](x))


def calls_a_layer(module: Says, x: torch.Tensor) -> torch.Tensor:
    if x.mean() > 0:
        print("normal", module.norm(x).sum())
    return module.norm(module.layers[0](x))


def writes(module: Says, x: torch.Tensor) -> torch.Tensor:
    y = module.layers[0](x)
    if x.mean() > 0:
        print("in place", y.mul_(2).sum())
    return y


def draws(module: Says, x: torch.Tensor) -> torch.Tensor:
    if x.mean() > 0:
        print("drawn", torch.rand(3, device=x.device).sum())
    return module.drop(module.layers[0](x))


def names(module: Says, x: torch.Tensor) -> torch.Tensor:
    if (y := x.mean()) > 0 and (x := x * 2).sum() > 1:
        print("twice", y)
    return x


def has_its_own_print(module: Says, x: torch.Tensor) -> torch.Tensor:
    found: list[int] = []
    print = found.append
    if x.mean() > 0:
        print(1)
    return module.layers[0](x) * (1 + len(found))


CASES = [data(3, 4, seed=seed) + add for seed, add in ((0, 0), (1, 0.5), (2, -0.5), (3, 2), (4, -2))]


def compare(function: Forward) -> None:
    torch.manual_seed(0)
    module = Says(function)
    expected = copy.deepcopy(module).to(torch_device())
    cell = bridge.cell(module)
    for i, case in enumerate(CASES):
        bridge.manual_seed(i)
        found = cell(ms.Tensor(case))
        bridge.manual_seed(i)
        wanted = expected(torch.from_numpy(case).to(torch_device()))
        assert np.array_equal(found.asnumpy(), wanted.detach().cpu().numpy())
    for name, buffer in expected.named_buffers():
        assert np.array_equal(cell.parameters_dict()[name].asnumpy(), buffer.cpu().numpy())


@pytest.mark.parametrize("function", [prints, logs, says_numbers])
def test_what_decides_about_messages_is_not_asked(
    function: Forward, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counted: list[Any] = []
    own = graph.count_kernel

    def count_kernel(*args: Any) -> Any:
        counted.append(args)
        return own(*args)

    monkeypatch.setattr(graph, "count_kernel", count_kernel)
    compare(function)
    assert not counted
    assert "FakeTensor" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "function",
    [
        says_and_does, asks_again, does_otherwise, calls_its_own, calls_a_layer, writes, draws, names,
        has_its_own_print, passes_the_answer_on, warns, counts_what_it_says, draws_an_index, has_a_property,
    ],
)  # fmt: skip
def test_what_does_something_else_is_asked(function: Forward) -> None:
    compare(function)


def test_an_error_of_what_is_said_is_not_left_out() -> None:
    cell = bridge.cell(Says(says_a_number_of_many))
    cell(ms.Tensor(data(3, 4) - 9))
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        cell(ms.Tensor(data(3, 4) + 9))
        ms.runtime.synchronize()


def test_what_is_not_finite_may_be_told() -> None:
    torch.manual_seed(0)
    module = Says(logs)
    expected = copy.deepcopy(module).to(torch_device())
    case = np.full((3, 4), np.nan, np.float32)
    found = bridge.cell(module)(ms.Tensor(case)).asnumpy()
    wanted = expected(torch.from_numpy(case).to(torch_device())).detach().cpu().numpy()
    np.testing.assert_array_equal(found, wanted)


def test_a_file_that_has_changed_is_not_believed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "changed.py"
    path.write_text("def forward(module, x):\n    if x.mean() > 0:\n        x = x * 2\n    return x\n")
    space: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    path.write_text("def forward(module, x):\n    if x.mean() > 0:\n        print(x)\n    return x\n")
    compare(space["forward"])
