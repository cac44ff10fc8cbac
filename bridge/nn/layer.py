"""A layer of PyTorch's as a Cell: the class for a class of modules, and the Cell for a module."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import mindspore as ms
import torch
from torch.nn.modules.lazy import LazyModuleMixin

from bridge import _mindspore
from bridge._start import start_on
from bridge.call import in_program
from bridge.documentation import PAGES
from bridge.nn.in_place import returning_new_tensors
from bridge.nn.module import Module, is_own, refuse_inside
from bridge.nn.overrides import RESETS, made, refuse_overrides, registering
from bridge.op import devices
from bridge.primitive.graph_calls import graph_call
from bridge.primitive.tensors import from_torch, torch_view, wait_for_pytorch
from bridge.programs import tree
from bridge.programs.cell import ModuleCell
from bridge.programs.constructor import to_torch, without_device
from bridge.programs.state import parameter_of, tensor_of


class Layer(ModuleCell, Module):
    """A Cell that makes PyTorch's module from the same arguments, and runs it.

    Attributes, methods and layers inside it are the module's; its parameters and buffers are MindSpore's Parameters.
    """

    torch_class: ClassVar[type[torch.nn.Module]] = torch.nn.Module
    _not_copied = ModuleCell._not_copied | {"_inner", "around"}
    apply = Module.apply  # the layers inside it are Cells
    enable_tuple_broaden = False  # MindSpore's own; it asks for this in each call of a graph

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A layer that a fused program makes is PyTorch's module."""
        if in_program.is_inside() and cls is layer_class(cls.torch_class):
            return cls.torch_class(*to_torch(args), **to_torch(kwargs))
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refuse_inside(self)
        start_on(devices.target())  # which seeds PyTorch as MindSpore was seeded
        kwargs = without_device(type(self).__name__, kwargs)
        resets = [name for name in RESETS if _is_overridden(self, name)]
        self._hold(returning_new_tensors(made(self.torch_class, resets, *to_torch(args), **to_torch(kwargs))))
        for name in resets:
            getattr(self, name)()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "torch_class" not in vars(cls):
            refuse_overrides(cls, cls.torch_class)

    def _hold(self, module: torch.nn.Module) -> None:
        self.__dict__["_inner"] = {}
        super().__init__(module)

    @classmethod
    def of(cls, module: torch.nn.Module) -> Layer:
        """The layer for a PyTorch module that exists."""
        found = layer_class(type(module))
        layer: Layer = ms.nn.Cell.__new__(found)
        layer._hold(module)
        return layer

    def __getattr__(self, name: str) -> Any:
        try:
            return Module.__getattr__(self, name)  # whose words are for layers; ModuleCell's are not
        except AttributeError:
            if name.startswith("_") or "program" not in self.__dict__:
                raise
            found = self._of_module(name)
            if found is _MISSING:
                raise
            return found

    def _of_module(self, name: str) -> Any:
        """What the module has under a name, but its forward, its parameters and what every module has."""
        module = self.module
        if name in module._modules:
            return self._inside(module._modules[name])
        if name in module._parameters or name in module._buffers:
            kept = module._parameters.get(name, module._buffers.get(name))
            is_shared = kept is not None and name not in module._non_persistent_buffers_set
            return _MISSING if is_shared else _to_mindspore(kept)
        if name in vars(module):
            return self._given(getattr(module, name))
        if name == "forward" or hasattr(torch.nn.Module, name) or not hasattr(type(module), name):
            return _MISSING
        self.program.follow()  # a method may read and write the parameters
        method = getattr(module, name)
        return _then_wait(method) if callable(method) and devices.target() == "GPU" else self._given(method)

    def _given(self, value: Any) -> Any:
        """What the module has, for MindSpore."""
        return self._inside(value) if isinstance(value, torch.nn.Module) else _to_mindspore(value)

    def _inside(self, module: torch.nn.Module | None) -> Layer | None:
        """The layer for a module inside this one's, which has the same Parameters."""
        if module is None:
            return None
        inner: dict[int, Layer] = self.__dict__["_inner"]
        if id(module) not in inner:
            inner[id(module)] = Layer.of(module)
            inner[id(module)].__dict__["around"] = type(self).__name__
        inner[id(module)].take_mode(module.training)
        return inner[id(module)]

    def named_children(self) -> Iterator[tuple[str, ms.nn.Cell]]:
        """The layers inside this one, with their names, and those that a derived class adds."""
        for name, module in self.module.named_children():
            layer = self._inside(module)
            assert layer is not None
            yield name, layer
        yield from super().named_children()

    @property
    def own_parameters(self) -> list[str]:
        """The names of the Parameters that are no buffers, and in no layer inside this one."""
        return [*self.module._parameters, *(name for name in self._params if name not in self.program_parameters)]

    @property
    def own_buffers(self) -> list[str]:
        """The names of the module's buffers, of which none is in a layer inside this one."""
        return list(self.module._buffers)

    def __setattr__(self, name: str, value: Any) -> None:
        module = self.__dict__["program"].function if "program" in self.__dict__ else None
        if module is None or is_own(self, name, value):
            super().__setattr__(name, value)
        elif name in module._parameters:
            self._tie(name, value)
        elif name in module._modules:
            setattr(module, name, to_torch(value))
            self.run(module)
        elif name in vars(module) and name != "training":
            setattr(module, name, to_torch(value))
        else:
            super().__setattr__(name, value)

    def _tie(self, name: str, value: Any) -> None:
        """Put another Parameter, which others may have too, in the place of one of the module's."""
        if value is not None and not isinstance(value, ms.Parameter):
            given = "PyTorch's" if isinstance(value, torch.Tensor) else type(value).__name__
            raise TypeError(f"{type(self).__name__}.{name} takes one of MindSpore's Parameters or None, not {given}")
        setattr(self.module, name, None if value is None else tensor_of(value))
        self.run(self.module)

    def run(self, module: torch.nn.Module) -> None:
        before = self.__dict__.get("program")
        if before is None:
            super().run(module)
            return
        before.follow()
        names = {key: parameter.name for key, parameter in self._params.items()}
        prefix = next((name.removesuffix(key) for key, name in names.items() if name.endswith(f".{key}")), "")
        super().run(module)
        self.program.precision = before.precision
        for key, parameter in self._params.items():
            if parameter.name == key:  # a new one
                parameter.name = names.get(key, prefix + key)

    def _class_of_copies(self) -> type[ModuleCell]:
        own = type(self)  # the module's class may be another one: PyTorch derives it for parametrizations
        if own is not layer_class(own.torch_class):
            raise TypeError(
                f"{own.__name__} derives from a layer, whose copy would not have its attributes: let it derive "
                "from bridge.nn.Module, with the layer as an attribute"
            )
        return Layer

    def _how_to_change(self, name: str) -> str:
        module = self.module
        if name in module._parameters or name in module._modules or name in vars(module):
            return f"assign to it, `layer.{name} = ...`, also None"
        return "change its `module`, and call bridge.cell with that"

    def __repr__(self) -> str:
        return repr(self.module)

    def extra_repr(self) -> str:
        """PyTorch's description of the layer's settings."""
        return self.module.extra_repr()

    extend_repr = extra_repr  # MindSpore's name


for _name in (
    "register_forward_pre_hook", "register_forward_hook", "register_backward_pre_hook", "register_backward_hook",
):  # fmt: skip
    setattr(Layer, _name, registering(_name))


_MISSING = object()


class _Uninitialised(_mindspore.CompiledAsMethod):
    """What a lazy layer has for a program: its first call gives the module shapes, and the layer its Parameters."""

    def __init__(self, layer: LazyLayer, module: torch.nn.Module) -> None:
        self.function = module
        self.precision: torch.dtype | None = None
        self._layer = weakref.ref(layer)

    def follow(self) -> None:
        """Nothing is shared yet."""

    def follow_between_calls(self) -> None:
        """Nothing is shared yet."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = tree.arguments(args, kwargs)
        _mindspore.wait()
        torch_args, torch_kwargs = given.with_tensors([torch_view(tensor) for tensor in given.tensors])
        lazy: Any = self.function
        lazy._infer_parameters(lazy, torch_args, torch_kwargs)
        layer = self._layer()
        assert layer is not None
        layer.__class__ = layer_class(type(self.function))
        layer.run(self.function)
        return layer.program(*args, **kwargs)

    @functools.cached_property
    def call(self) -> Any:
        """What MindSpore's compiler calls."""
        return graph_call(type(self.function).__name__, self._refuse)

    def _refuse(self, *_: Any) -> None:
        raise RuntimeError(f"{type(self.function).__name__} has no shapes yet: call it once in PyNative mode")

    def _call_in_graph(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.call(args, kwargs)


class LazyLayer(Layer):
    """A layer that has its Parameters from its first call on, when it becomes what its module becomes."""

    @property
    def is_uninitialised(self) -> bool:
        """Whether it has no Parameters yet."""
        return isinstance(self.program, _Uninitialised)

    def _hold(self, module: Any) -> None:
        if not module.has_uninitialized_params():
            super()._hold(module)
            return
        self.__dict__["_inner"] = {}
        Module.__init__(self)
        self.program = _Uninitialised(self, module)  # type: ignore[assignment]
        names = [name for name, _ in module.named_parameters()]  # which the Cells around may make longer
        self.have_parameters({name: ms.Parameter(ms.Tensor(0.0), name=name, requires_grad=False) for name in names})


_classes: dict[Any, type[Layer]] = {torch.nn.Module: Layer}


def layer_class(torch_class: type[torch.nn.Module]) -> type[Layer]:
    """The class of layers for a class of PyTorch's modules. It derives as that does."""
    if torch_class not in _classes:
        _classes[torch_class] = _derived(torch_class)
    return _classes[torch_class]


def _derived(torch_class: type[torch.nn.Module]) -> type[Layer]:
    bases = [layer_class(base) for base in torch_class.__bases__ if issubclass(base, torch.nn.Module)]
    if issubclass(torch_class, LazyModuleMixin) and not any(issubclass(base, LazyLayer) for base in bases):
        bases.insert(0, LazyLayer)
    name = torch_class.__name__
    is_public = getattr(torch.nn, name, None) is torch_class
    page = f"{PAGES}/torch.nn.{name}.html"
    members = {
        "torch_class": torch_class,
        "__module__": "bridge.nn" if is_public else __name__,
        "__doc__": f"PyTorch's {name} as a Cell. {page if is_public else ''}\n\n{inspect.getdoc(torch_class)}",
        "__signature__": inspect.signature(torch_class),
    }
    for key, member in vars(torch_class).items():
        if isinstance(member, (classmethod, staticmethod)) and not key.startswith("_"):
            members[key] = staticmethod(_of_class(torch_class, key))
        elif key in ("__getitem__", "__len__", "__iter__", "__contains__"):
            members[key] = _as_in_module(key)
        elif key in RESETS:
            members[key] = _reset_of_module(key)
    return type(name, tuple(bases), members)


def _is_overridden(layer: Layer, name: str) -> bool:
    """Whether the layer's class, which derives from one for a class of PyTorch's, has this method from elsewhere."""
    return getattr(type(layer), name, None) is not getattr(layer_class(layer.torch_class), name, None)


def _reset_of_module(name: str) -> Callable[..., None]:
    """A method that draws initial values: PyTorch's own, on the layer's module."""

    def reset(self: Layer) -> None:
        self._of_module(name)()

    return reset


def _as_in_module(name: str) -> Callable[..., Any]:
    """A method of containers, on what the module has."""

    def called(self: Layer, *args: Any) -> Any:
        found = getattr(self.module, name)(*args)
        if name == "__iter__":
            return map(self._given, found)
        return self._given(found)

    return called


def _then_wait(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of PyTorch's that may write to parameters, on a stream of PyTorch's."""

    @functools.wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        found = method(*args, **kwargs)
        wait_for_pytorch()
        return found

    return called


def _of_class(torch_class: type[torch.nn.Module], name: str) -> Callable[..., Any]:
    """A function of a class of PyTorch's, as `Embedding.from_pretrained`."""
    function = getattr(torch_class, name)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return _to_mindspore(function(*to_torch(args), **to_torch(kwargs)))

    return called


def _to_mindspore(value: Any) -> Any:
    if isinstance(value, torch.nn.Parameter) and parameter_of(value) is not None:
        return parameter_of(value)
    if isinstance(value, torch.Tensor):
        return from_torch(value.detach())
    return Layer.of(value) if isinstance(value, torch.nn.Module) else value
