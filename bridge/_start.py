"""What the first call changes in the process. Importing the package only has `mindspore.set_seed` seed PyTorch too
(bridge/seeds.py), `mindspore.rewrite` leave the bridge's calls as they are, threads take turns with graphs, and
PyTorch's functions say where those are that take MindSpore's tensors."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from bridge import _mindspore, seeds
from bridge.infer import strides
from bridge.op import devices
from bridge.op.table import SHARED, SHIMS
from bridge.primitive import direct, graph_calls, graph_shapes, launch_errors
from bridge.primitive.in_torch import meet_in_torch, why_no_gradient

_mindspore.leave_calls_alone()
_mindspore.take_turns_with_graphs()
meet_in_torch()
_lock = threading.Lock()
_started = False


def start() -> None:
    """Make the process ready for calls, once.

    It loads the libraries, lets their kernels ask Python for shapes, makes MindSpore's seeds PyTorch's too, and notes
    from then on whether a network of `mindspore.amp`'s level "auto" is made. It has MindSpore infer the operators of a
    graph while that runs, refuse to differentiate PyTorch's tensors, stop recording when a function that is
    differentiated raises an error, compile a graph anew after a run that failed, say how a graph takes what a
    dictionary has, and refuse to map what it cannot map. The first call of a CUDA kernel also gives PyTorch's allocator
    MindSpore's memory (ms_ext/cuda/allocator.cu).
    """
    global _started
    with _lock:
        if not _started:
            _start()
            _started = True


def _start() -> None:
    shared = devices.load(SHARED["CPU"])
    graph_shapes.install(shared)
    strides.install(shared)
    devices.load(SHIMS["CPU"])
    seeds.follow_mindspore()
    direct.infer_at_run_time()
    _mindspore.auto_levels()
    _mindspore.stop_recordings_that_fail()
    if direct.is_built():
        _mindspore.begin_gradients_with(_ones_like, why_no_gradient)
        _mindspore.record_only_what_is_asked(direct.leave_out)
    _mindspore.suggest_keys()
    _mindspore.around_graphs(
        _late_failures(shared), direct.own_graph, launch_errors.in_own_class, graph_calls.lines_of_call
    )
    _mindspore.refuse_in_vmap(lambda primitive: getattr(primitive, "refused_in_vmap", ""))


def _ones_like(tensor: Any) -> Any:
    """Ones by which a gradient begins; None if the tensor's dtype has no gradient, or the bridge no kernels for
    MindSpore's device. It makes the CUDA operators ready: MindSpore may ask before the first of their calls."""
    device = devices.target()
    if device == "CPU" or (device == "GPU" and devices.has_cuda_set()):
        return direct.ones_like(tensor, device == "CPU")
    return None


def _late_failures(shared: ctypes.CDLL) -> Callable[[], int]:
    """What tells how many launches have failed of which the caller did not hear: those of a GPU."""
    failed = ctypes.c_int64.in_dll(shared, "ms_ext_failed_launches")
    return lambda: failed.value if failed.value and devices.target() == "GPU" else 0


def start_on(device: str) -> None:
    """Make the process ready for a call that runs on `device` ("CPU" or "GPU")."""
    start()
    # MindSpore's own work is then done on the thread that calls.
    if device == devices.target() == "CPU":
        direct.leave_queues()
        _mindspore.launch_where_graphs_run()


def manual_seed(seed: int) -> None:
    """Seed the random operators: from here on they draw what PyTorch draws after `torch.manual_seed(seed)`.

    `mindspore.set_seed` and `mindspore.manual_seed` do this too.

    Args:
        seed: as `torch.manual_seed` takes it.
    """
    start()
    seeds.seed(seed)
