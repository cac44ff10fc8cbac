"""The MindSpore primitives of programs, for graph mode."""

from __future__ import annotations

import ctypes
import hashlib
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from mindspore import ops
from mindspore.ops.functional import depend

from bridge import _mindspore, aten
from bridge.infer.trial import Spec
from bridge.op import devices, dtypes
from bridge.op.encoding import encode
from bridge.op.table import SHARED, Device
from bridge.primitive import bprops
from bridge.primitive.graph_calls import Call, Item, PlannedBprop
from bridge.primitive.kernel import Kernel
from bridge.primitive.launch_errors import error_of
from bridge.programs import sizes
from bridge.programs.passing import of_part
from bridge.programs.plan import Plan, ProgramFile
from bridge.programs.refusals import no_gradient

# A graph of another process, which MindSpore kept, has other names for its programs.
_PROCESS = uuid.uuid4().hex


class _Saving:
    """Whether a forward program brings what only its gradient needs. A graph without gradients is faster without.

    Args:
        name: of the program and its gradient.
        results: how many of the program's results it brings in any case.
        device: see Kernel.
    """

    def __init__(self, name: str, results: int, device: Device) -> None:
        self.name = hashlib.sha256(name.encode()).hexdigest()
        self.results = results
        self._device = device
        self._tell(False)

    def begin(self) -> None:
        """The gradient is asked for: MindSpore plans it before it runs the graph."""
        self._tell(True)

    def _tell(self, is_differentiated: bool) -> None:
        library = devices.load(SHARED[self._device])
        library.ms_ext_name_program(self.name.encode(), ctypes.c_bool(is_differentiated))


class ProgramKernel(Kernel):
    """A program as a primitive that takes a tuple of tensors for each dtype. ms_ext/programs/program.cpp has
    the kernel.

    Args:
        name: what errors call it.
        program: the program. Its path follows from its content, and so tells primitives apart.
        device: see Kernel.
        differentiate: what differentiates it, called with inputs, results and their gradients.
        saving: see _Saving.
    """

    def __init__(
        self, name: str, program: ProgramFile, device: Device, differentiate: Any, saving: _Saving | None = None
    ) -> None:
        count = sum(map(len, program.groups))
        text = encode(program.path) + encode(count)
        text += encode(saving.name if saving else "") + encode(saving.results if saving else len(program.results))
        of_inputs = " ".join(dtype for dtype, group in zip(program.dtypes, program.groups, strict=True) for _ in group)
        name = name + sizes.SUFFIX if sizes.is_family(program) else name
        super().__init__(name, text, f"{SHARED[device]}:aten_program", device, False, of_inputs)
        self.results = tuple((tuple(shape) or (1,), dtypes.TORCH_DTYPES[dtype]) for shape, dtype in program.results)
        # By aten_programInferType: some graphs are compiled without Python.
        _mindspore.infer_types_in_cpp(self, [dtypes.to_mindspore(dtype) for _, dtype in self.results])
        if device == "CPU" and not _mindspore.joins_all_reduces():  # whose memory the program must not choose
            _mindspore.use_registered_kernel(self, "aten_program")
        if not sizes.is_family(program):
            _mindspore.has_known_shapes(self)
        if program.changes:
            _mindspore.keep_in_order(self)
        if program.draws:
            _mindspore.compute_once(self)
        self.bprop = bprops.make(len(program.groups), differentiate)
        if count > 1:
            self.refused_in_vmap = (
                f"{name.partition('::')[0]}: mindspore.vmap, jacrev and jacfwd map no program of several tensors: "
                "MindSpore passes on the first. Give the module a batch, or map inside it with torch.vmap"
            )

    def __infer__(self, *inputs: dict[str, Any]) -> dict[str, Any]:
        types = tuple(_mindspore.TensorType(dtypes.to_mindspore(dtype)) for _, dtype in self.results)
        return {"shape": tuple(shape for shape, _ in self.results), "dtype": types, "value": None}

    def _specs(self, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
        return self.results


class _InGraph(PlannedBprop):
    """A bprop for graph mode only."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, inputs: Any, out: Any, dout: Any) -> Any:
        raise RuntimeError(f"{self.name}: a program runs in graph mode only")


class Differentiate(_InGraph):
    """The gradient of a forward program: its backward programs.

    Args:
        name: see PlannedBprop.
        plan: of the function.
        state: how many of its first inputs are Parameters that it keeps.
        device: see Kernel.
        saving: see _Saving.
    """

    def __init__(self, name: str, plan: Plan, state: int, device: Device, saving: _Saving) -> None:
        super().__init__(name)
        self.plan = plan
        self.state = state
        self.device = device
        self.saving = saving

    def _plan_in_graph(self, inputs: list[Any], out: Any, dout: Any) -> Any:
        self.saving.begin()
        plan = self.plan
        places = [(i, j) for i, group in enumerate(plan.forward.groups) for j in range(len(group))]
        order = [position for group in plan.forward.groups for position in group]
        tensors = {position: inputs[i][j] for position, (i, j) in zip(order, places, strict=True)}
        gradients: dict[int, Any] = {position: Call(ops.zeros_like, [tensor]) for position, tensor in tensors.items()}
        given = {"input": tensors, "output": out, "cotangent": dout}
        name, differentiate = f"{self.name}::backward", FirstOrderOnly(self.name)
        kernels = [ProgramKernel(name, program, self.device, differentiate) for program in plan.backward]
        calls = _calls_in_turn(kernels, plan.backward, plan.sources, given)
        in_order = any(program.changes for program in (plan.forward, *plan.backward))
        for position, gradient in enumerate(plan.gradients):
            if gradient is not None:
                part, at = gradient
                gradients[position] = _program_result(calls[part], plan.backward[part], at)
                others = [i for i, own in enumerate(plan.sources) if i != part and ("input", position) in own]
                if in_order and others and position < self.state:  # what writes to it then would come before these
                    gradients[position] = Call(depend, [gradients[position], tuple(Item(calls[i], 0) for i in others)])
        return tuple(tuple(gradients[position] for position in group) for group in plan.forward.groups)


def program_call(kernel: ProgramKernel, program: ProgramFile, tensors: Sequence[Any]) -> Call:
    """The call of a program's primitive in a graph."""
    return Call(kernel, [tuple(tensors[position] for position in group) for group in program.groups])


def _calls_in_turn(
    kernels: Iterable[ProgramKernel],
    programs: Sequence[ProgramFile],
    sources: Iterable[Sequence[tuple[str, int]]],
    given: dict[str, Any],
) -> list[Call]:
    """The calls of programs that also take what earlier ones of them give.

    Args:
        sources: what each takes (see Source).
        given: what comes from elsewhere, by the kinds of sources.
    """
    calls: list[Call] = []
    given = {**given}
    for part, (kernel, program, own) in enumerate(zip(kernels, programs, sources, strict=True)):
        calls.append(program_call(kernel, program, [given[kind][position] for kind, position in own]))
        given[of_part(part)] = [Item(calls[part], position) for position in range(len(program.results))]
    return calls


def _program_result(call: Call, program: ProgramFile, position: int) -> Any:
    """One of the results of that call."""
    shape, dtype = program.results[position]
    item = Item(call, position)
    if shape:
        return item
    # MindSpore's reshape moves nothing, and knows no bfloat16 on a CPU.
    return Call(aten.reshape, [item, []]) if dtype == "bfloat16" else Call(ops.reshape, [item, ()])


class FirstOrderOnly(_InGraph):
    """The gradient of a backward program, which does not exist."""

    def _plan_in_graph(self, inputs: list[Any], out: Any, dout: Any) -> Any:
        raise RuntimeError(
            f"{self.name}: the gradient of a PyTorch module's gradient is not available, for which mindspore.jvp and "
            "jacfwd ask, too: a module of bridge.cell or a function of bridge.fuse may take the inner one, by "
            "torch.autograd.grad(..., create_graph=True)"
        )


class NoGradient(_InGraph):
    """A gradient that does not exist.

    Args:
        name: see PlannedBprop.
        reason: the error (`error_of`).
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name)
        self.reason = reason

    def _plan_in_graph(self, inputs: list[Any], out: Any, dout: Any) -> Any:
        raise error_of(self.reason)


class _Zeros(_InGraph):
    """The gradient of a program of numbers that have none."""

    def _plan_in_graph(self, inputs: list[Any], out: Any, dout: Any) -> Any:
        return tuple(tuple(Call(ops.zeros_like, [tensor]) for tensor in group) for group in inputs)


def count_kernel(name: str, plan: Plan, device: Device) -> ProgramKernel:
    """The primitive of a program that gives sizes (counts.py)."""
    return ProgramKernel(f"{name}::sizes", plan.forward, device, _Zeros(name))


def program_results(
    name: str, plan: Plan, device: Device, is_differentiable: bool, inputs: Sequence[Any], state: int
) -> list[Any]:
    """The results of a function in a graph, with their gradient.

    Args:
        name, device: see Kernel.
        plan: of the function.
        is_differentiable: see Program.
        inputs: what the function takes, as graph_calls.py has it.
        state: how many of the first ones are Parameters that it keeps.
    """
    reason = plan.no_gradient if is_differentiable else no_gradient(name)
    # MindSpore differentiates primitives with equal attributes by the bprop of one of them. A forward program may be
    # that of inputs of several shapes; each has its own backward program.
    backward = f"{[program.path for program in plan.backward]} {plan.sources} {plan.gradients} {state}"
    brought = len(plan.results if plan.backward else plan.forward.results)
    saving = _Saving(f"{_PROCESS} {plan.forward.path} {backward}", brought, device)
    refused = NoGradient(name, reason) if reason else None
    gradient = refused or Differentiate(name, plan, state, device, saving)
    kernel = ProgramKernel(f"{name}::forward", plan.forward, device, gradient, saving)
    kernel.add_prim_attr("backward", backward)
    call = program_call(kernel, plan.forward, inputs)
    given = {"input": inputs, "output": [Item(call, i) for i in range(len(plan.forward.results))]}
    later = [ProgramKernel(f"{name}::forward", program, device, refused or _Zeros(name)) for program in plan.later]
    calls = [call, *_calls_in_turn(later, plan.later, plan.later_sources, given)]
    programs = [plan.forward, *plan.later]
    return [_program_result(calls[part], programs[part], i) for part, i in plan.results]
