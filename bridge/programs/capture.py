"""A function of tensors as two tapes: what PyTorch calls forward, and what its autograd calls backward.

The backward calls are those that `torch.autograd.grad` makes, so a program's gradient is PyTorch's, call by call.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from bridge.call.int64_hint import give_hint
from bridge.call.matmul import matmul
from bridge.primitive.graph_calls import add_lines
from bridge.primitive.launch_errors import text_of
from bridge.programs import checkpoints, constant_arguments, data_floats, in_lists, leaves, loaded, numbers_in_lists
from bridge.programs.added_gradients import gradients_of
from bridge.programs.allclose import ALLCLOSE
from bridge.programs.calls import Call, Refusal, in_line, in_lines
from bridge.programs.ctc_loss import LENGTHS_AS_TENSORS
from bridge.programs.data_sizes import NOT_TOLD, Sizes, UnknownSize
from bridge.programs.draws import unused_states
from bridge.programs.failures import is_raised
from bridge.programs.formatted import FORMAT
from bridge.programs.guards import Guards
from bridge.programs.held import Changes
from bridge.programs.istft import ISTFT
from bridge.programs.kept_elsewhere import is_layers, is_own
from bridge.programs.memory import storage_of
from bridge.programs.prod import PROD
from bridge.programs.reads import refuse_reads
from bridge.programs.refusals import (
    AS_SUBCLASS,
    COND,
    LINEARIZE,
    SEEDS,
    backward,
    refuse_foreign_results,
    refuse_resized,
)
from bridge.programs.replaced import Replacement, replaced
from bridge.programs.shares import NoShares
from bridge.programs.swallowed import none_swallowed
from bridge.programs.tape import Tape, unknown

# PyTorch logs what a meta kernel raises. The tape asks the kernel then.
_QUIET = Replacement(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)
_MATMUL = [
    *(Replacement(holder, "matmul", matmul) for holder in (torch, torch.Tensor, torch.linalg)),
    Replacement(torch.Tensor, "__matmul__", matmul),
    Replacement(torch.Tensor, "__rmatmul__", lambda self, other: matmul(other, self)),
]
_REPLACEMENTS = [
    *constant_arguments.REPLACEMENTS, *in_lists.REPLACEMENTS, *numbers_in_lists.REPLACEMENTS, checkpoints.REPLACEMENT,
    leaves.REPLACEMENT, *loaded.REPLACEMENTS, *ALLCLOSE, *_MATMUL, FORMAT, ISTFT, LENGTHS_AS_TENSORS, LINEARIZE, *PROD,
    _QUIET, AS_SUBCLASS, COND, *SEEDS,
]  # fmt: skip


_UNKNOWN_SHAPE = unknown("PyTorch asks for a shape")


@dataclass(frozen=True)
class Spec:
    """A tensor that a program takes or gives."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool = False


@dataclass
class Captured:
    """What one run of a function calls. Registers are those of the tape."""

    tape: Tape
    inputs: list[int]
    forward: list[Call]
    backward: list[Call]
    outputs: list[int]
    cotangents: list[int | None]
    """For each output the register of its gradient; None if it has none."""
    gradients: list[int | None]
    """For each input the register of its gradient; None if it is zero, or not asked for."""
    written: list[int]
    """The positions of the inputs that the function writes to."""
    state: int
    """How many of the inputs are not arguments: they come first."""
    frozen: set[int]
    """The registers of those of them that no gradient is captured for."""
    no_gradient: str = ""
    """What PyTorch said when it was to differentiate the function; it may be called all the same."""

    def spec(self, register: int) -> Spec:
        tensor = self.tape.tensors[register]
        return Spec(tuple(tensor.shape), tensor.dtype)


def capture(
    function: Callable[..., Sequence[torch.Tensor]],
    state: Sequence[torch.Tensor],
    inputs: Sequence[Spec],
    device: str,
    sizes: Sizes = NOT_TOLD,
) -> Captured:
    """Run a function on tensors without data, and write down what it calls.

    Args:
        function: takes tensors, and gives tensors.
        state: what it finds elsewhere than in its arguments. Where it meets one of these, the program has an input.
        inputs: the specs of the state, and then of the arguments; contiguous ones. Gradients are captured for those
            that require one.
        device: PyTorch's name of where they are.
        sizes: those that data decides.

    Raises:
        Refusal: the function asks for what a graph does not know. The message has the line.
        Exception: what the function raises.
    """
    guards = Guards(sizes.both_ways)
    copied: set[int] = set()
    torch.clear_autocast_cache()  # around this `torch.autocast` may keep weights that it has cast
    try:
        while True:
            guards.begin()
            failed: Exception | None = None
            try:
                captured, assigned = _captured(function, state, inputs, device, sizes, guards, copied)
            except NoShares as error:
                numbers, whole = error.whole
                if not sizes.known.keys().isdisjoint(numbers):
                    raise
                if numbers in sizes.wholes:
                    raise RuntimeError(*error.args) from None
                sizes = replace(sizes, wholes={**sizes.wholes, numbers: whole})
                copied.clear()
            except Changes:
                if not guards.takes_held:
                    raise
                guards.forget()
                guards = Guards(sizes.both_ways, takes_held=False, of_changed=sizes.of_changed)
                copied.clear()
            except Refusal:
                raise
            except Exception as error:
                if guards.gave_sizes and not is_raised(error):
                    raise UnknownSize(_UNKNOWN_SHAPE + in_lines(error)) from None
                failed = guards.failed(error)
                copied.clear()  # with another answer it may assign others
            else:
                if not assigned <= copied:
                    copied |= assigned
                elif guards.succeeded():
                    if guards.gave_sizes:
                        raise UnknownSize(_UNKNOWN_SHAPE)
                    return captured
                else:
                    copied.clear()
            if failed is not None:
                raise failed
    finally:
        torch.clear_autocast_cache()  # of tensors without data
        guards.forget()
        failed = None  # it holds this frame


def _captured(
    function: Callable[..., Sequence[torch.Tensor]],
    state: Sequence[torch.Tensor],
    inputs: Sequence[Spec],
    device: str,
    sizes: Sizes,
    guards: Guards,
    copied: set[int],
) -> tuple[Captured, set[int]]:
    """One run, and the inputs that it assigns other data to. It is given copies of those of `copied`."""
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    tape = Tape(fake_mode, guards, sizes)
    with fake_mode:
        tensors = [torch.empty(spec.shape, dtype=spec.dtype, device=device) for spec in inputs]
    registers = [tape.add(tensor) for tensor in tensors]
    for tensor, register in zip(state, registers, strict=False):
        tape.take_state(tensor, register, register in copied)
    arguments = tensors[len(state) :]
    leaves = [*state, *arguments]
    _forget_history(state)
    for tensor, spec in zip(leaves, inputs, strict=True):
        tensor.requires_grad_(spec.requires_grad)
    try:
        with (
            data_floats.refusing_others(),
            torch.enable_grad(),
            torch.autograd.set_multithreading_enabled(False),
            refuse_reads(state, tape.data_of),
            replaced([*_REPLACEMENTS, *tape.replacements()]),
            fake_mode,
            tape,
        ):
            results: list[torch.Tensor] = []
            # What a backward adds is in the gradients.
            with replaced([backward(state)]), tape.data_sizes.ending(), none_swallowed():
                results = list(function(*arguments))
            if tape.data_sizes.end is None:
                tape.draws.refuse_set_back()
            tape.data_sizes.end = None
            refuse_foreign_results(results, device)
            tape.packed.refuse_all(results, "the function gives")
            outputs = [tape.register(result) for result in results]
            assigned = tape.assigned.changed()
            tape.calls += tape.assigned.write_back()
            tape.held.refuse_changes()
            refuse_resized(tensors[: len(state)], [spec.shape for spec in inputs[: len(state)]])
            tape.selected.refuse_writes()
            forward = len(tape.calls)
            tape.data_sizes.refused = "its gradient asks for a shape that depends on data, which a graph does not know"
            with none_swallowed():
                cotangents, gradients, no_gradient = _differentiate(tape, results, leaves)
            tape.draws.refuse_set_back()
            tape.settings.refuse_changes(device)
    except Exception as error:
        if tape.refused is not None and "TorchScript interpreter" in str(error):  # which says nothing of what it calls
            error.args = (f"{str(error).rstrip()} {tape.refused}",)
        give_hint(error)
        add_lines(error, _location(error, tape))
        tape.kept.give_data(tape.namespaces.values())
        tape.kept.forget()
        raise
    finally:
        tape.path.forget()
        _forget_history(state)
    tape.kept.give_data(tape.namespaces.values())
    calls, unused = tape.calls, unused_states(tape.calls)
    memory = {storage_of(tensor): i for i, tensor in enumerate(tensors)}
    touched = (storage_of(tape.tensors[number]) for call in calls[:forward] for number in call.written)
    written = sorted({memory[storage] for storage in touched if storage in memory})
    found = Captured(
        tape,
        registers,
        [call for call in calls[:forward] if id(call) not in unused],
        [] if no_gradient else [call for call in calls[forward:] if id(call) not in unused],
        outputs,
        cotangents,
        gradients,
        written,
        len(state),
        {number for number, spec in zip(registers[: len(state)], inputs, strict=False) if not spec.requires_grad},
        no_gradient,
    )
    return found, assigned


def _forget_history(state: Sequence[torch.Tensor]) -> None:
    """Parameters and buffers are leaves in each call, whatever the last one has written to them. PyTorch lets no view
    forget it."""
    for tensor in state:
        if tensor.grad_fn is not None and not tensor._is_view():
            tensor.detach_()


def _differentiate(
    tape: Tape, results: list[torch.Tensor], tensors: list[torch.Tensor]
) -> tuple[list[int | None], list[int | None], str]:
    """The registers of the results' gradients and of the tensors', or why there are none."""
    tracked = [result for result in results if result.requires_grad]
    nothing: tuple[list[int | None], list[int | None]] = [None] * len(results), [None] * len(tensors)
    if not tracked or not any(tensor.requires_grad for tensor in tensors):
        return *nothing, ""
    with torch.utils._python_dispatch._disable_current_modes(), tape.fake_mode:  # these are inputs, not results
        given = [torch.empty(r.shape, dtype=r.dtype, device=r.device) for r in tracked]
    cotangents = iter([tape.add(tensor) for tensor in given])
    try:
        found = gradients_of(tracked, tensors, given)
    except Refusal:
        raise
    except (RuntimeError, AttributeError, LookupError, TypeError, ValueError) as error:
        words = f"{error}{_location(error, tape)}"
        return *nothing, text_of(type(error), words) if _is_raised_by_own(error) else words
    return (
        [next(cotangents) if result.requires_grad else None for result in results],
        [None if gradient is None else tape.register(gradient) for gradient in found],
        "",
    )


def _is_raised_by_own(error: Exception) -> bool:
    """Whether a `raise` or `assert` in the user's code has raised it."""
    return is_raised(error) and is_own(traceback.extract_tb(error.__traceback__)[-1].filename)


def _location(error: Exception, tape: Tape) -> str:
    """The innermost line that is in neither framework nor the bridge; else the innermost of torch.nn; in backward that
    of the call whose gradient was at hand."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_own(frame.filename)]
    layers = [frame for frame in frames if is_layers(frame.filename)]
    known = own or layers
    return in_line(known[-1] if known else tape.line())
