"""Runs whole networks by bridge.cell beside PyTorch: three training steps, every result, gradient and buffer compared.

    python scripts/networks.py                   # all, in PyNative mode
    python scripts/networks.py resnet llama      # those with one of these in their names
    python scripts/networks.py --mode graph      # in graph mode
    python scripts/networks.py --device GPU      # on a GPU, beside PyTorch there

The networks are torchvision's, timm's, transformers' and PyTorch Geometric's, small and with random weights:

    pip install torchvision timm transformers torch-geometric

A result or gradient is equal if its bits are. After each step both sides take `weight - 0.01 * gradient`. On a GPU,
PyTorch takes those algorithms of cuDNN that repeat themselves; where a network differs, PyTorch trains it twice more,
and the table says if these two differ as well.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms
import numpy as np
import torch

import bridge
from bridge.op import devices
from bridge.programs.tree import Tree
from ported.torchvisions import define_torchvisions_operators

STEPS = 3
LIMIT = 180  # seconds that one network may take

Make = Callable[[], tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]]


@dataclasses.dataclass
class Network:
    """A module and what it is called with: arrays, nested as the module takes them."""

    name: str
    make: Make


def image(size: int = 64, batch: int = 2) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((batch, 3, size, size)).astype(np.float32)


def tokens(length: int = 12, batch: int = 2, words: int = 90) -> np.ndarray:
    return np.random.default_rng(0).integers(5, words, (batch, length))


TORCHVISION = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small",
    "regnet_y_400mf", "resnet18", "resnext50_32x4d", "shufflenet_v2_x0_5", "squeezenet1_1", "swin_t", "vgg11_bn",
)  # fmt: skip
TORCHVISION_OTHERS: dict[str, tuple[dict[str, Any], int]] = {
    "googlenet": ({"aux_logits": True, "init_weights": False}, 96),
    "segmentation.lraspp_mobilenet_v3_large": ({"weights_backbone": None}, 64),
    "segmentation.deeplabv3_mobilenet_v3_large": ({"weights_backbone": None, "aux_loss": True}, 64),
}


def torchvision_networks() -> Iterator[Network]:
    import torchvision

    def classifier(name: str) -> Make:
        return lambda: (getattr(torchvision.models, name)(num_classes=10), (image(),), {})

    def other(name: str, options: dict[str, Any], size: int) -> Make:
        package, _, function = f"models.{name}".rpartition(".")
        models = sys.modules[f"torchvision.{package}"]
        return lambda: (getattr(models, function)(weights=None, num_classes=7, **options), (image(size),), {})

    def retinanet() -> Any:
        model = torchvision.models.detection.retinanet_resnet50_fpn(
            weights=None, weights_backbone=None, num_classes=4, min_size=64, max_size=64
        )
        boxes = np.array([[4.0, 4.0, 40.0, 50.0]], np.float32)
        return model, ([image()[0]], [{"boxes": boxes, "labels": np.array([1])}]), {}

    def r3d() -> Any:
        clip = np.random.default_rng(0).standard_normal((1, 3, 4, 32, 32)).astype(np.float32)
        return torchvision.models.video.r3d_18(num_classes=5), (clip,), {}

    for name in TORCHVISION:
        yield Network(f"torchvision {name}", classifier(name))
    for name, (options, size) in TORCHVISION_OTHERS.items():
        yield Network(f"torchvision {name}", other(name, options, size))
    yield Network("torchvision detection.retinanet", retinanet)
    yield Network("torchvision video.r3d_18", r3d)


TIMM = (
    "coat_lite_tiny", "convit_tiny", "convnext_atto", "crossvit_tiny_240", "cs3darknet_s", "dla34", "dpn48b",
    "edgenext_xx_small", "efficientvit_b0", "ese_vovnet19b_dw", "fastvit_t8", "ghostnet_100", "hardcorenas_a",
    "lcnet_050", "levit_128s", "mobileone_s0", "mobilevit_xxs", "poolformer_s12", "pvt_v2_b0", "repvgg_a0",
    "resmlp_12_224", "resnest14d", "rexnet_100", "seresnext26d_32x4d", "shvit_s1", "skresnet18", "tinynet_e",
    "tiny_vit_5m_224", "vit_tiny_patch16_224", "xcit_nano_12_p16_224",
)  # fmt: skip
WITH_DROP_PATH = ("convnext_atto", "pvt_v2_b0", "vit_tiny_patch16_224")
# Networks that take images of one size only.
TIMM_SIZES = {
    "crossvit_tiny_240": 240, "tiny_vit_5m_224": 224, "levit_128s": 224, "convit_tiny": 224, "coat_lite_tiny": 224,
    "resmlp_12_224": 224, "vit_tiny_patch16_224": 224, "xcit_nano_12_p16_224": 224,
}  # fmt: skip


def timm_networks() -> Iterator[Network]:
    import timm

    def make(name: str) -> Make:
        def model() -> Any:
            options: dict[str, Any] = {"drop_path_rate": 0.1} if name in WITH_DROP_PATH else {}
            return timm.create_model(name, num_classes=10, **options), (image(TIMM_SIZES.get(name, 64)),), {}

        return model

    for name in TIMM:
        yield Network(f"timm {name}", make(name))


SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
         "max_position_embeddings": 64}  # fmt: skip
DECODER = {**SMALL, "num_key_value_heads": 2, "use_cache": False}
# The prefix of config and model, the model's suffix, and what the configuration has.
TRANSFORMERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Albert": ("ForMaskedLM", {**SMALL, "embedding_size": 16}),
    "Bert": ("ForMaskedLM", SMALL),
    "Bloom": ("ForCausalLM", {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4, "use_cache": False}),
    "DebertaV2": ("ForMaskedLM", {**SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "DistilBert": ("ForMaskedLM", {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}),
    "Electra": ("ForMaskedLM", {**SMALL, "embedding_size": 16}),
    "FNet": ("ForMaskedLM", SMALL),
    "Gemma": ("ForCausalLM", {**DECODER, "head_dim": 8}),
    "GPT2": ("LMHeadModel", {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False}),
    "GPTNeoX": ("ForCausalLM", {**SMALL, "use_cache": False}),
    "Llama": ("ForCausalLM", DECODER),
    "Mamba": ("ForCausalLM", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "use_cache": False}),
    "Mistral": ("ForCausalLM", DECODER),
    "Mixtral": ("ForCausalLM", {**DECODER, "num_local_experts": 4}),
    "OPT": ("ForCausalLM", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                            "ffn_dim": 48, "word_embed_proj_dim": 32, "use_cache": False}),
    "Phi": ("ForCausalLM", {**SMALL, "use_cache": False}),
    "Qwen2": ("ForCausalLM", DECODER),
    "Roberta": ("ForMaskedLM", SMALL),
}  # fmt: skip


def transformers_networks() -> Iterator[Network]:
    import transformers

    def make(prefix: str, suffix: str, options: dict[str, Any]) -> Make:
        def model() -> Any:
            config = getattr(transformers, f"{prefix}Config")(**options, pad_token_id=0, bos_token_id=1, eos_token_id=2)
            module = getattr(transformers, prefix + suffix)(config)
            return module, (), {"input_ids": tokens(), "labels": tokens()}

        return model

    def t5() -> Any:
        options: dict[str, Any] = {"vocab_size": 99, "use_cache": False, "decoder_start_token_id": 0}
        config = transformers.T5Config(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, **options)
        return transformers.T5ForConditionalGeneration(config), (), {"input_ids": tokens(), "labels": tokens(7)}

    def clip() -> Any:
        text = {**SMALL, "eos_token_id": 98}
        vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
                  "image_size": 32, "patch_size": 8}  # fmt: skip
        config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
        return transformers.CLIPModel(config), (), {"input_ids": tokens(), "pixel_values": image(32)}

    def vit() -> Any:
        size: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        config = transformers.ViTConfig(**size, intermediate_size=48, image_size=32, patch_size=8)
        return transformers.ViTForImageClassification(config), (image(32),), {}

    def segformer() -> Any:
        config = transformers.SegformerConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], decoder_hidden_size=16)
        return transformers.SegformerForSemanticSegmentation(config), (image(),), {}

    for prefix, (suffix, options) in TRANSFORMERS.items():
        yield Network(f"transformers {prefix}", make(prefix, suffix, options))
    for name, function in (("T5", t5), ("CLIP", clip), ("ViT", vit), ("Segformer", segformer)):
        yield Network(f"transformers {name}", function)


def geometric_networks() -> Iterator[Network]:
    from torch_geometric.nn import models

    random = np.random.default_rng(0)
    nodes, edges = random.standard_normal((20, 8)).astype(np.float32), random.integers(0, 20, (2, 60))

    def make(name: str) -> Make:
        return lambda: (getattr(models, name)(8, 16, num_layers=2, out_channels=4, dropout=0.2), (nodes, edges), {})

    for name in ("GCN", "GraphSAGE", "GAT", "GIN"):
        yield Network(f"torch_geometric {name}", make(name))


class Complex(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 5, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=8)


def own_networks() -> Iterator[Network]:
    sequence = np.random.default_rng(0).standard_normal((5, 3, 6)).astype(np.float32)
    signals = np.random.default_rng(0).standard_normal((2, 8, 8)).astype(np.float32)
    source = np.random.default_rng(0).standard_normal((5, 3, 16)).astype(np.float32)

    def recurrent(kind: Any) -> Make:
        return lambda: (kind(6, 7, 2, dropout=0.3, bidirectional=True), (sequence,), {})

    for kind in (torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM):
        yield Network(f"torch {kind.__name__}", recurrent(kind))
    yield Network("torch Transformer", lambda: (torch.nn.Transformer(16, 4, 1, 1, 32), (source, source), {}))
    yield Network("own complex numbers", lambda: (Complex(), (signals,), {}))


def available(source: Callable[[], Iterator[Network]]) -> Iterator[Network]:
    """The networks of a package; none if it is not installed."""
    try:
        yield from source()
    except ImportError as error:
        print(f"{source.__name__}: left out, {error}")


SOURCES = (own_networks, torchvision_networks, timm_networks, transformers_networks, geometric_networks)


def mapped(value: Any, function: Callable[[np.ndarray], Any]) -> Any:
    """Nested arrays as a framework's tensors."""
    tree = Tree(value, np.ndarray, lambda leaf: leaf)
    return tree.with_tensors([function(array) for array in tree.tensors])


def found_in(value: Any, tensor_type: type) -> list[Any]:
    return Tree(value, tensor_type, lambda leaf: leaf).tensors


def difference(own: ms.Tensor, expected: torch.Tensor | None) -> float:
    """0 if the bits are equal; otherwise the largest difference, relative to the largest number."""
    a = own.asnumpy()
    b = np.zeros_like(a) if expected is None else expected.detach().resolve_conj().cpu().numpy()
    if a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"):
        return 0.0
    if a.shape != b.shape:
        return float("inf")
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))


@dataclasses.dataclass
class Verdict:
    """How a network compares: differences of results, gradients and state over all steps; or an error."""

    results: list[float] = dataclasses.field(default_factory=list)
    gradients: list[float] = dataclasses.field(default_factory=list)
    state: list[float] = dataclasses.field(default_factory=list)
    error: str = ""
    repeats: bool = True
    """Whether PyTorch gives the same bits each time, as far as that was looked at."""

    @property
    def all(self) -> list[float]:
        return self.results + self.gradients + self.state

    def __str__(self) -> str:
        if self.error:
            return f"ERROR {self.error}"
        parts = (f"{sum(d == 0 for d in part)}/{len(part)}" for part in (self.results, self.gradients, self.state))
        largest = f"  {max(self.all):.1e}" if any(self.all) else ""
        return "  ".join(f"{part:>9}" for part in parts) + largest + ", as PyTorch from itself" * (not self.repeats)


class Flat(torch.nn.Module):
    """A module as a function of the arrays among its arguments, to the tensors among its results: what a graph can
    pass through whatever the network's own containers are."""

    def __init__(self, module: torch.nn.Module, inputs: Any) -> None:
        super().__init__()
        self.module, self.inputs = module, inputs

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = dict(zip(map(id, distinct(self.inputs)), tensors, strict=True))
        args, kwargs = mapped(self.inputs, lambda array: given[id(array)])
        return tuple(found_in(self.module(*args, **kwargs), torch.Tensor))


def distinct(inputs: Any) -> list[np.ndarray]:
    """The arrays among nested inputs, each once; floating ones first."""
    arrays = {id(array): array for array in found_in(inputs, np.ndarray)}
    return sorted(arrays.values(), key=lambda array: array.dtype != np.float32)


def compare(network: Network, is_graph: bool) -> Verdict:
    """Train the network in both frameworks."""
    torch.manual_seed(0)
    module, *inputs = network.make()
    module.train()
    reference = copy.deepcopy(module).to(device())
    cell = bridge.cell(Flat(module, inputs) if is_graph else module)
    train = in_graph(cell, inputs) if is_graph else in_pynative(cell, inputs)
    verdict = Verdict()
    for seed in range(STEPS):
        step(verdict, seed, reference, cell, inputs, train)
    expected = reference.state_dict()
    for name, parameter in cell.parameters_dict().items():
        verdict.state.append(difference(parameter, expected[name.removeprefix("module.") if is_graph else name]))
    verdict.repeats = not any(verdict.all) or repeats(network)
    return verdict


def repeats(network: Network) -> bool:
    """Whether PyTorch has the same bits when it trains the network twice."""
    torch.manual_seed(0)
    module, *inputs = network.make()
    both = [copy.deepcopy(module.train()).to(device()) for _ in range(2)]
    for seed in range(STEPS):
        first, second = (pytorchs_step(seed, one, inputs) for one in both)
        for a, b in zip((*first[0], *first[1]), (*second[0], *second[1]), strict=True):
            if a is not None and not torch.equal(a, b):
                return False
    return True


# Runs a network of MindSpore's with sensitivities of 1: the tensors among its results, the gradients of the floating
# inputs, and those of its parameters.
Train = Callable[[], tuple[Any, Any, Any]]


def in_pynative(cell: Any, inputs: Any) -> Train:
    arrays = distinct(inputs)

    def train() -> tuple[Any, Any, Any]:
        values: list[Any] = []

        def run(*tensors: ms.Tensor) -> Any:
            given = dict(zip(map(id, arrays), tensors, strict=True))
            args, kwargs = mapped(inputs, lambda array: given[id(array)])
            values[:] = found_in(cell(*args, **kwargs), ms.Tensor)
            return tuple(value for value in values if value.is_floating_point())

        _, found = differentiated(run, cell, arrays)(*map(ms.Tensor, arrays))
        return values, *split(found, arrays)

    return train


def in_graph(cell: Any, inputs: Any) -> Train:
    arrays = distinct(inputs)
    run = differentiated(cell, cell, arrays)

    def train() -> tuple[Any, Any, Any]:
        values, found = run(*map(ms.Tensor, arrays))
        return values, *split(found, arrays)

    return train


def differentiated(function: Any, cell: Any, arrays: list[np.ndarray]) -> Any:
    positions = tuple(i for i, array in enumerate(arrays) if array.dtype == np.float32) or None
    return ms.value_and_grad(function, positions, cell.trainable_params())


def split(gradients: Any, arrays: list[np.ndarray]) -> tuple[Any, Any]:
    """Those of the inputs, and those of the parameters."""
    if not any(array.dtype == np.float32 for array in arrays):
        return (), gradients
    of_inputs, of_weights = gradients
    return of_inputs if isinstance(of_inputs, (tuple, list)) else (of_inputs,), of_weights


def device() -> str:
    """PyTorch's name of MindSpore's device."""
    return devices.torch_name(devices.target())


def seed_all(seed: int) -> None:
    """Seed what networks draw from: PyTorch's generators, and Python's and NumPy's, as SpecAugment does."""
    bridge.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def pytorchs_step(seed: int, reference: torch.nn.Module, inputs: Any) -> tuple[list[torch.Tensor], Any]:
    """The tensors among the results, and the gradients of the floating inputs and of the parameters."""
    arrays = {id(array): torch.tensor(array, device=device()) for array in distinct(inputs)}
    floats = {key: tensor.requires_grad_() for key, tensor in arrays.items() if tensor.dtype == torch.float32}
    args, kwargs = mapped(inputs, lambda array: arrays[id(array)])
    seed_all(seed)
    results = found_in(reference(*args, **kwargs), torch.Tensor)
    roots = [one for one in results if one.requires_grad]
    weights = [one for one in reference.parameters() if one.requires_grad]
    # MindSpore's sensitivities lie row by row, wherever a result does not.
    ones = [torch.ones_like(one, memory_format=torch.contiguous_format) for one in roots]
    expected = torch.autograd.grad(roots, [*floats.values(), *weights], ones, allow_unused=True)

    with torch.no_grad():
        for weight, gradient in zip(weights, expected[len(floats) :], strict=True):
            if gradient is not None:
                weight.sub_(0.01 * gradient)
    return results, expected


def step(verdict: Verdict, seed: int, reference: torch.nn.Module, cell: Any, inputs: Any, train: Train) -> None:
    results, expected = pytorchs_step(seed, reference, inputs)
    seed_all(seed)
    values, of_inputs, of_weights = train()
    verdict.results += [difference(own, one) for own, one in zip(values, results, strict=True)]
    verdict.gradients += [difference(own, one) for own, one in zip((*of_inputs, *of_weights), expected, strict=True)]
    for parameter, gradient in zip(cell.trainable_params(), of_weights, strict=True):
        # Not set_data: a graph that ms.value_and_grad has compiled goes on with what it had, MindSpore's own too.
        ms.ops.assign(parameter, ms.Tensor(parameter.asnumpy() - np.float32(0.01) * gradient.asnumpy()))


def with_limit(network: Network, is_graph: bool) -> Verdict:
    def stop(*_: Any) -> None:
        raise TimeoutError(f"more than {LIMIT} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    try:
        return compare(network, is_graph)
    except Exception as error:
        return Verdict(error=f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}")
    finally:
        signal.alarm(0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="run the networks with one of these in their names")
    parser.add_argument("--mode", choices=("pynative", "graph"), default="pynative")
    parser.add_argument("--device", choices=("CPU", "GPU"), default="CPU")
    arguments = parser.parse_args()
    names, is_graph = arguments.names, arguments.mode == "graph"
    ms.set_device(arguments.device)
    if is_graph:
        ms.set_context(mode=ms.GRAPH_MODE)
    torch.backends.cudnn.deterministic = True
    warnings.filterwarnings("ignore")
    define_torchvisions_operators()
    verdicts = []
    print(f"{'network':45} {'results':>9}  {'gradients':>9}  {'state':>9}  largest relative difference")
    for source in SOURCES:
        for network in available(source):
            if names and not any(name.lower() in network.name.lower() for name in names):
                continue
            begin = time.perf_counter()
            verdicts.append(with_limit(network, is_graph))
            print(f"{network.name:45} {verdicts[-1]}  ({time.perf_counter() - begin:.0f} s)", flush=True)
    ran = [verdict for verdict in verdicts if not verdict.error]
    equal = sum(not any(verdict.all) for verdict in ran)
    others = sum(not verdict.repeats for verdict in ran)
    not_repeated = f", and of {others} others PyTorch does not repeat itself" * bool(others)
    print(f"{len(ran)} of {len(verdicts)} networks ran; {equal} of them with every bit equal{not_repeated}")
    return int(equal + others < len(verdicts))


if __name__ == "__main__":
    sys.exit(main())
