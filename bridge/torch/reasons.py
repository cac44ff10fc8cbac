"""Names of PyTorch's that have no meaning in MindSpore, or another name there: what MindSpore has instead.

The generator of the stubs reads this file without the package.
"""

from __future__ import annotations

import re

# Patterns of names, as in "torch.no_grad", which are matched whole and in this order; and what to say of them.
_SENTENCES: tuple[tuple[str, str], ...] = (
    (
        r"torch\.(no_grad|enable_grad|inference_mode|set_grad_enabled|is_grad_enabled|is_inference_mode_enabled)",
        "MindSpore differentiates only what mindspore.grad is given; mindspore.ops.stop_gradient leaves a part out",
    ),
    (r"torch\.(autograd|func|vmap)(\..*)?", "mindspore.grad, value_and_grad, jvp, vjp and vmap differentiate and map"),
    (
        r"torch\.Tensor\.(backward|grad.*|requires_grad.*|retains?_grad|is_leaf|output_nr|register_hook|"
        r"register_post_accumulate_grad_hook|reinforce|volatile)",
        "MindSpore's tensors hold no gradients: mindspore.grad and value_and_grad return them",
    ),
    (
        r"torch\.(.*autocast.*|amp|(cuda|cpu)\.amp|GradScaler)(\..*)?",
        "Cell.to_float and mindspore.amp choose the precision, and mindspore.amp scales losses",
    ),
    (
        r"torch\.utils\.checkpoint(\..*)?",
        "Cell.recompute computes a part again, and a module of bridge.cell may call PyTorch's checkpoint",
    ),
    (
        r"torch\.cuda\.(manual_seed.*|seed.*|initial_seed|[gs]et_rng_state.*)",
        "bridge.manual_seed seeds, and mindspore.get_rng_state and set_rng_state keep the state of both frameworks",
    ),
    (
        r"torch\.(cuda|cpu|xpu|mps|mtia|accelerator|set_default_device|get_default_device|get_device_module)(\..*)?",
        "mindspore.set_device chooses the device, and tensors lie there",
    ),
    (
        r"torch\.Tensor\.(cuda|cpu|xpu|ipu|to_mkldnn|record_stream|pin_memory|share_memory|is_shared|is_pinned|"
        r"get_device|is_(cpu|cuda|xpu|mps|ipu|maia|meta|mkldnn|mtia|vulkan|xla))",
        "MindSpore keeps its tensors on the device that mindspore.set_device chose",
    ),
    (
        r"torch\.utils\.data(\..*)?",
        "mindspore.dataset loads data: mindspore.dataset.GeneratorDataset takes a PyTorch Dataset; PyTorch's own "
        "DataLoader works too, and mindspore.Tensor(x.numpy()) takes what it gives",
    ),
    (
        r"torch\.utils",
        "mindspore.dataset loads data, Cell.recompute stands for checkpoint, and the rest is about PyTorch itself: "
        "import torch for it",
    ),
    (
        r"torch\.(save|load|serialization)(\..*)?",
        "PyTorch's own write and read what state_dict gives (import torch), and mindspore.save_checkpoint and "
        "load_checkpoint a Cell's Parameters",
    ),
    (r"torch\.onnx(\..*)?", "mindspore.export writes a Cell, and PyTorch's own torch.onnx a module (import torch)"),
    (
        r"torch\.optim\.swa_utils(\..*)?",
        "PyTorch's own AveragedModel averages a module of bridge.cell as it is (import torch)",
    ),
    (r"torch\.(compile|jit|fx|export|compiler|cond|while_loop|fork|wait)(\..*)?", "mindspore.jit compiles"),
    (
        r"torch\.(distributed|multiprocessing|prepare_multiprocessing.*)(\..*)?",
        "mindspore.communication and mint.distributed do",
    ),
    (r"torch\.optim(\..*)?", "bridge.optim has the optimizers"),
    (
        r"torch\.nn\.parallel(\..*)?",
        "MindSpore trains on many devices by msrun and mindspore.set_auto_parallel_context",
    ),
    (r"torch\.nn\.(?!functional).*", "bridge.nn has the layers, and bridge.cell makes a Cell of any module"),
    (
        r"torch\.(seed|initial_seed|get_rng_state|set_rng_state|default_generator|thread_safe_generator|random)",
        "bridge.manual_seed seeds, and mindspore.get_rng_state and set_rng_state keep the state of both frameworks",
    ),
    (
        r"torch\.(Tensor\.)?(numpy|tolist|item)",
        "MindSpore's tensors have the methods asnumpy, tolist and item",
    ),
    (
        r"torch\.(Tensor\.)?(.*sparse.*|coalesce|is_coalesced|dense_dim|(c?col|c?row)_indices(_copy)?|(indices|values)"
        r"(_copy)?|hspmm|hsmm|dsmm|spmm|saddmm|sspaddmm|to_dense)(\..*)?",
        "MindSpore's sparse tensors are other types, which PyTorch's kernels do not take",
    ),
    (
        r"torch\.(Tensor\.)?((de|empty_)?quantize.*|fbgemm_.*|quantization|q_.*|int_repr|choose_qparams.*|fused_moving_avg.*|ao|qscheme|per_(channel|tensor)_"
        r".*|q?u?int[1-7]?|quint.*|qint.*)(\..*)?",
        "MindSpore has no quantized tensors",
    ),
    (r"torch\.(Tensor\.)?(nested|jagged|is_nested|to_padded_tensor)(\..*)?", "MindSpore has no nested tensors"),
    (
        r"torch\.(Tensor\.)?(names|rename|align_(as|to|tensors)|refine_names)",
        "MindSpore's tensors have no named dimensions",
    ),
    (
        r"torch\.((cudnn|miopen|mkldnn)_.*|batch_norm_(backward_|elemt|gather_|stats).*|native_norm)",
        "PyTorch calls it where a backend needs it; call the function without the backend's name",
    ),
    (
        r"torch\.(Tensor\.)?(to_dlpack|from_dlpack|from_file|frombuffer|data_ptr|const_data_ptr|untyped_storage|storage.*|"
        r"is_storage|is_set_to|module_load|as_subclass|set_|data|numpy_force|dim_order)",
        "MindSpore owns the memory of its tensors: mindspore.Tensor.from_numpy and asnumpy share it",
    ),
    (
        r"torch\.(sym_.*|Sym.*|.*_ir|import_ir.*|parse_.*|merge_type_.*|unify_type_list|init_num_threads|broadcast_shapes_sym)",
        "it serves PyTorch's own compiler",
    ),
    (
        r"torch\.((are|is|use)_deterministic_.*|(get|set)_deterministic_.*)",
        "mindspore.set_deterministic asks for repeatable results",
    ),
    (
        r"torch\.((get|set)_(num_threads|num_interop_threads|float32_matmul_precision|flush_denormal)|set_flush_denormal)",
        "it is a setting of PyTorch's own, which holds for the bridge's calls too: import torch and set it there",
    ),
    (
        r"torch\.distributions(\..*)?",
        "PyTorch's distributions work on PyTorch's tensors: a function that bridge.fuse is given, or a module that "
        "bridge.cell is, may import and call them",
    ),
    (
        r"torch\.(Float|Double|Half|BFloat16|Char|Short|Int|Long|Byte|Bool)Tensor",
        "write tensor(values, dtype=...), or empty(sizes, dtype=...)",
    ),
    (r"torch\.set_printoptions", "numpy.set_printoptions says how MindSpore prints tensors"),
    (r"torch\.set_default_tensor_type", "set_default_dtype says which dtype is the default"),
    (
        r"torch\.nn\.functional\.(boolean_dispatch|handle_torch_function|has_torch_function.*|assert_int_or_pair)|"
        r"torch\.(classproperty|compiled_with_cxx11_abi|get_file_path|profiler_.*|typename|is_vulkan_available|"
        r"(is|set)_(warn_always|anomaly).*|is_anomaly.*|cudnn_is_acceptable|has_(lapack|mkl|openmp|spectral)|"
        r"quantized_.*|functional|overrides|testing|utils|hub|library|ops|package|profiler|version|backends|futures|"
        r"masked|monitor|onnx|signal|storage|torch_version|types|return_types|quasirandom|windows)(\..*)?",
        "it is about PyTorch itself: import torch for it",
    ),
    (
        r"torch\.(eig|lstsq|matrix_rank|solve|symeig)",
        "PyTorch itself has only an error there, which names the function of torch.linalg that replaced it",
    ),
    (
        r"torch\.Tensor\.(type|new|new_tensor|apply_|map_|map2_|resize|resize_as|has_names|nelement|ndimension)",
        "write what it stands for: to, tensor, numel or dim",
    ),
)
_COMPILED = tuple((re.compile(pattern), sentence) for pattern, sentence in _SENTENCES)


def reason(name: str) -> str:
    """What MindSpore has instead of `name`, as in "torch.no_grad"; empty if nothing is known of it."""
    for pattern, sentence in _COMPILED:
        if pattern.fullmatch(name):
            return sentence
    last = name.rpartition(".")[2]
    if last.endswith("_") and not last.endswith("__"):
        return "it changes its argument, and the function without the underscore returns a new tensor"
    return ""
