"""An optimizer of PyTorch's as one of MindSpore's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import mindspore as ms
import numpy as np
import torch

from bridge import _mindspore
from bridge._start import start_on
from bridge.documentation import PAGES
from bridge.op import devices
from bridge.optim.groups import Asked, asked
from bridge.optim.rates import Rates, item_of
from bridge.optim.step import Step
from bridge.primitive.kernel import one_at_a_time
from bridge.programs.sharing import Sharing


class Optimizer(ms.nn.Optimizer):
    """A MindSpore optimizer that holds PyTorch's, over MindSpore's Parameters.

    Args:
        params: MindSpore's Parameters, or groups of them with options of their own, as in PyTorch.
        lr: a number; or a schedule of MindSpore's: a LearningRateSchedule, or the rates of all steps.
        args, kwargs: PyTorch's.
        loss_scale: what the gradients are divided by, as in MindSpore's optimizers.

    Attributes:
        torch_optimizer: PyTorch's. Its parameters share their memory with MindSpore's.
    """

    torch_class: ClassVar[type[torch.optim.Optimizer]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not hasattr(cls, "torch_class") or "step" in vars(cls):
            raise TypeError(
                f"{cls.__name__}: a step is PyTorch's: write the optimizer as a class of torch.optim.Optimizer, say L, "
                "and here `torch_class = L`"
            )

    def __init__(self, *args: Any, loss_scale: float = 1.0, **kwargs: Any) -> None:
        start_on(devices.target())
        name = type(self).__name__
        if kwargs.get("differentiable"):
            raise ValueError(f"{name}: MindSpore does not differentiate a step of PyTorch's: leave differentiable out")
        given = asked(self.torch_class, args, kwargs)
        sharing = Sharing(name, given.parameters, given.torch_parameters)
        optimizer = _made(lambda: self.torch_class(**given.arguments), sharing)
        super().__init__(float(given.arguments.get("lr", 1.0)), given.parameters, loss_scale=float(loss_scale))
        self.torch_optimizer = optimizer
        self.needs_closure = (  # of `step`, in which MindSpore's compiler takes no text of several lines
            f"{name}: call the optimizer with the gradients that mindspore.value_and_grad gives, optimizer(gradients); "
            "its method step takes a closure"
        )
        self.dynamic_lr = bool(given.schedules)
        self.schedules = ms.nn.CellList([self._schedule(rate) for rate in given.schedules])
        self.is_rate_scheduled = given.rate is not None
        if given.rate is not None:
            delattr(self, "learning_rate")  # a Parameter
            self.learning_rate = self.schedules[given.rate]
        self._hold_rates(given)
        self.update = Step(name, optimizer, sharing, self.rates)

    def _hold_rates(self, given: Asked) -> None:
        """Have Parameters for the rates that are numbers: the optimizer's is there, and a group may have its own."""
        groups = self.torch_optimizer.param_groups
        count = len(given.schedules)
        values = [] if self.is_rate_scheduled else [given.arguments.get("lr", 1.0)]
        own: list[ms.Parameter] = []
        sources = []  # for each group: of the schedules, the optimizer's Parameter and those of groups
        for i, (group, follows, schedule) in enumerate(zip(groups, given.follows, given.rates, strict=True)):
            if follows or schedule is not None:
                sources.append(count if schedule is None else schedule)
                continue
            sources.append(count + len(values))
            values.append(group["lr"])
            own.append(ms.Parameter(ms.Tensor(float(group["lr"]), ms.float32), name=f"learning_rate_group_{i}"))
        self.own_rates = ms.ParameterTuple(own)
        self.has_own_rates = not all(given.follows)
        self.rate_sources = tuple(
            source for group, source in zip(groups, sources, strict=True) for _ in group["params"]
        )
        self.rates = Rates(self, self.torch_optimizer, count, sources, own, values)

    def _schedule(self, rate: Any) -> ms.nn.Cell:
        if not isinstance(rate, ms.nn.Cell):
            rate = ms.Tensor(np.asarray(rate.asnumpy() if isinstance(rate, ms.Tensor) else list(rate), np.float32))
        return self._build_single_lr(rate, "learning_rate")

    def construct(self, gradients):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        gradients = self.scale_grad(gradients)
        if not self.dynamic_lr:
            return self.update(gradients, ())
        rates = self._scheduled()
        self.assignadd(self.global_step, self.global_step_increase_tensor)
        return self.update(gradients, rates)

    def _scheduled(self):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        rates = ()
        for schedule in self.schedules:
            rates += (schedule(self.global_step).reshape(()),)
        return rates

    def step(self, closure: Callable[[], tuple[ms.Tensor, Any]] | None = None) -> ms.Tensor:
        """PyTorch's step with a closure, as LBFGS wants it, in PyNative mode.

        Args:
            closure: gives the loss and the gradients of `parameters`, as a function of mindspore.value_and_grad does.

        Returns:
            The loss before the step.

        Raises:
            TypeError: it is no closure.
            ValueError: the learning rate is a schedule of MindSpore's, whose steps a closure does not count.
        """
        if not callable(closure):
            raise TypeError(self.needs_closure)
        if self.dynamic_lr:
            raise ValueError(f"{type(self).__name__}: a step by a closure takes no schedule of MindSpore's for a rate")
        return self.update.by_closure(closure)

    def get_lr(self):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        """The rate of the next step, as MindSpore's give it: the Parameter that holds it, or what the schedule gives.

        If groups have rates of their own, it is a tuple of one for each parameter.
        """
        scheduled = self._scheduled()
        apart = self.rates(scheduled)
        if apart is not None:
            return apart
        held = self.own_rates if self.is_rate_scheduled else (self.learning_rate, *self.own_rates)
        rates = (*scheduled, *held)
        if not self.has_own_rates:
            return rates[0]
        found = ()
        for source in self.rate_sources:
            found += (rates[source],)
        return found

    @property
    def defaults(self) -> dict[str, Any]:
        """PyTorch's options for groups that do not say otherwise."""
        return self.torch_optimizer.defaults

    def wait_for_steps(self) -> None:
        """Until the steps that graphs were asked for have been taken on the host. On a GPU, MindSpore's threads launch
        a graph while the caller goes on, and a step takes the options and rates that are there by then."""
        if not one_at_a_time._is_owned():  # type: ignore[attr-defined]  # what is still to be done may want this lock
            _mindspore.wait_outside()

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """PyTorch's groups, with the options that the next step takes. On a GPU, get them anew for each change: that
        waits for the steps before."""
        self.wait_for_steps()
        self.rates.follow(item_of)
        return self.torch_optimizer.param_groups

    @property
    def state(self) -> Mapping[torch.Tensor, Any]:
        """PyTorch's state of each parameter."""
        self.wait_for_steps()
        return self.torch_optimizer.state

    def __reduce_ex__(self, protocol: Any) -> Any:
        name = type(self).__name__
        raise TypeError(
            f"{name}: an optimizer has no copy and no pickle: make one for the copy's Parameters, "
            f"optim.{name}(copied.trainable_params()), and call its load_state_dict(optimizer.state_dict())"
        )

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override]
        """PyTorch's state_dict, which torch.optim's optimizers load."""
        self.wait_for_steps()
        self.rates.follow(item_of)
        return self.torch_optimizer.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:  # type: ignore[override]
        """Load a state_dict of this class or of torch.optim's."""
        self.wait_for_steps()
        self.torch_optimizer.load_state_dict(dict(state_dict))
        self.rates.show()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """PyTorch's name for what MindSpore has no need of.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("MindSpore's gradients are values, which no step adds to: leave zero_grad out")

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """PyTorch's name for what a MindSpore optimizer cannot do.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("MindSpore's training steps keep an optimizer's parameters: make it with all groups")

    def __repr__(self) -> str:
        return repr(self.torch_optimizer)


def _made(make: Callable[[], torch.optim.Optimizer], sharing: Sharing) -> torch.optim.Optimizer:
    """PyTorch's optimizer, made when its parameters are where MindSpore's are."""
    found: list[torch.optim.Optimizer] = []
    sharing.run(lambda _: found.append(make()), [])
    return found[0]


_classes: dict[Any, type[Optimizer]] = {torch.optim.Optimizer: Optimizer}


def optimizer_class(torch_class: type[torch.optim.Optimizer]) -> type[Optimizer]:
    """The class for one of PyTorch's. It derives as that does."""
    if torch_class not in _classes:
        _classes[torch_class] = _derived(torch_class)
    return _classes[torch_class]


def _derived(torch_class: type[torch.optim.Optimizer]) -> type[Optimizer]:
    name = torch_class.__name__
    page = f"{PAGES}/torch.optim.{name}.html"
    members = {
        "torch_class": torch_class,
        "__module__": "bridge.optim",
        "__doc__": f"PyTorch's {name} as a MindSpore optimizer. {page}\n\n{inspect.getdoc(torch_class)}",
        "__signature__": inspect.signature(torch_class),
    }
    base: Any = torch_class.__base__
    return type(name, (optimizer_class(base),), members)
