"""Runs a network of each family of torchvision, timm and transformers beside PyTorch, as networks.py does.

    python scripts/families.py torchvision timm           # the smallest network of each file, in PyNative mode
    python scripts/families.py transformers --mode graph  # each model and head, made small
    python scripts/families.py transformers --heads causal_lm question_answering --names bert gpt2

Nobody chose these networks: the table tells what a user's is likely to do. A network that the package itself cannot
make small, or call with what this script has, is left out, and the table says why.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import mindspore as ms
import numpy as np
import torch

from networks import Make, Network, image, tokens, with_limit
from ported.torchvisions import define_torchvisions_operators

LARGEST = 30_000_000  # parameters
SIZES = 32, 64, 96, 128, 160, 224, 256, 299  # of images
LOOKED_AT = 4  # networks of a family, by the shortness of their names, to find the smallest

Given = dict[str, np.ndarray]

# What transformers' configurations name the numbers that make a network large.
SMALL = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "embed_dim", "projection_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "d_inner", "encoder_ffn_dim", "decoder_ffn_dim"), 64),
    **dict.fromkeys(("hidden_dim", "max_position_embeddings", "n_positions"), 64),
    **dict.fromkeys(("d_kv", "head_dim", "attention_head_size", "rotary_dim", "d_head", "patch_size"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "mamba_d_head", "mamba_n_heads"), 8),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("moe_intermediate_size", "shared_intermediate_size", "expert_ffn_hidden_size", "image_size"), 32),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok", "moe_topk", "top_k"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "mamba_n_groups", "pad_token_id"), 1),
    "vocab_size": 100,
    "bos_token_id": 2,
    "eos_token_id": 3,
}


def parameters(make: Callable[[], torch.nn.Module]) -> int:
    """How many a network has, without their memory."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in make().parameters())


def fitting(module: torch.nn.Module, inputs: Iterable[Given], by_name: bool = True) -> Given:
    """The first of these inputs that the module takes while it trains."""
    errors: list[Exception] = []
    for given in inputs:
        tensors = {name: torch.from_numpy(array.copy()) for name, array in given.items()}
        try:
            with torch.no_grad():
                copied = copy.deepcopy(module).train()
                copied(**tensors) if by_name else copied(*tensors.values())
            return given
        except Exception as error:
            errors.append(error)
    raise errors[0]


def with_images(make: Callable[[], torch.nn.Module]) -> Make:
    def made() -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
        module = make()
        found = fitting(module, ({"x": image(size)} for size in SIZES), by_name=False)
        return module, tuple(found.values()), {}

    return made


def smallest(networks: dict[str, Callable[[], torch.nn.Module]]) -> tuple[str, Callable[[], torch.nn.Module]] | None:
    """That of a family, if it is not too large."""
    sizes = {}
    for name in sorted(networks, key=len)[:LOOKED_AT]:
        with contextlib.suppress(Exception):
            sizes[name] = parameters(networks[name])
    name = min(sizes, key=lambda one: sizes[one], default="")
    return (name, networks[name]) if name and sizes[name] <= LARGEST else None


def of_families(package: str, families: dict[str, dict[str, Callable[[], torch.nn.Module]]]) -> Iterator[Network]:
    for family in families.values():
        found = smallest(family)
        if found is not None:
            yield Network(f"{package} {found[0]}", with_images(found[1]))


def torchvision_networks() -> Iterator[Network]:
    import torchvision

    families: dict[str, Any] = {}
    for name in torchvision.models.list_models(torchvision.models):
        builder = torchvision.models.get_model_builder(name)
        families.setdefault(builder.__module__, {})[name] = builder
    return of_families("torchvision", families)


def timm_networks() -> Iterator[Network]:
    import timm

    families: dict[str, Any] = {}
    for name in timm.list_models():
        entry = timm.models.model_entrypoint(name)
        families.setdefault(entry.__module__, {})[name] = entry
    return of_families("timm", families)


def inputs_of(head: str, main_input: str) -> Iterator[Given]:
    """What a model of transformers with this head may be called with: labels too, so that it computes its loss."""
    numbers, ids = np.random.default_rng(0), tokens()
    one_each = {"labels": np.array([0, 1])}
    labels: Given = {
        "causal_lm": {"labels": ids},
        "masked_lm": {"labels": ids},
        "seq2seq_lm": {"labels": tokens(8)},
        "token_classification": {"labels": ids % 2},
        "sequence_classification": one_each,
        "image_classification": one_each,
        "audio_classification": one_each,
        "question_answering": {"start_positions": np.array([1, 2]), "end_positions": np.array([3, 4])},
    }.get(head, {})
    if main_input == "pixel_values":
        yield from ({"pixel_values": image(size), **labels} for size in SIZES)
    elif main_input == "input_values":
        yield {"input_values": numbers.standard_normal((2, 4000)).astype(np.float32), **labels}
    elif main_input == "input_features":
        for shape in ((2, 80, 128), (2, 64, 80)):
            yield {"input_features": numbers.standard_normal(shape).astype(np.float32), **labels}
    else:
        yield {"input_ids": ids, **labels}
        yield {"input_ids": ids, "decoder_input_ids": tokens(8), **labels}
        yield from ({"input_ids": ids, "pixel_values": image(size), **labels} for size in SIZES)


def smaller(configuration: Any) -> Any:
    """A small configuration of this class, with small ones for its parts."""
    usual = configuration()
    numbers = {name: value for name, value in SMALL.items() if type(getattr(usual, name, None)) is int}
    for name in getattr(configuration, "sub_configs", {}):
        if getattr(usual, name, None) is not None:
            with contextlib.suppress(Exception):
                numbers[name] = smaller(type(getattr(usual, name)))
    return configuration(**numbers)


HEADS = {
    "base": "MODEL_MAPPING",
    "causal_lm": "MODEL_FOR_CAUSAL_LM_MAPPING",
    "masked_lm": "MODEL_FOR_MASKED_LM_MAPPING",
    "seq2seq_lm": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "sequence_classification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "token_classification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
    "question_answering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
    "image_classification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING",
    "audio_classification": "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING",
}


def transformers_networks(heads: Iterable[str]) -> Iterator[Network]:
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto

    for head in heads:
        mapping = getattr(modeling_auto, HEADS[head])
        for name, configuration in CONFIG_MAPPING.items():
            if configuration not in mapping:
                continue

            def made(configuration: Any = configuration, mapping: Any = mapping, head: str = head) -> Any:
                classes = mapping[configuration]
                model = classes[0] if isinstance(classes, (tuple, list)) else classes
                small = smaller(configuration)
                if parameters(lambda: model(small)) > LARGEST:
                    raise ValueError(f"more than {LARGEST} parameters")
                module = model(small)
                for part in module.modules():  # Wav2Vec2's, whose inputs have no gradient without it, in PyTorch either
                    getattr(part, "_freeze_parameters", lambda: None)()
                return module, (), fitting(module, inputs_of(head, module.main_input_name))

            yield Network(f"transformers {head} {name}", made)


def why_not(network: Network) -> str:
    """Why the package cannot make or call it; empty if it can."""
    try:
        torch.manual_seed(0)
        network.make()
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", choices=("torchvision", "timm", "transformers"))
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS), help="of transformers")
    parser.add_argument("--names", nargs="+", help="networks with one of these in their names")
    parser.add_argument("--mode", choices=("pynative", "graph"), default="pynative")
    options = parser.parse_args()
    ms.set_device("CPU")
    if options.mode == "graph":
        ms.set_context(mode=ms.GRAPH_MODE)
    warnings.filterwarnings("ignore")
    define_torchvisions_operators()
    sources: dict[str, Callable[[], Iterator[Network]]] = {
        "torchvision": torchvision_networks,
        "timm": timm_networks,
        "transformers": lambda: transformers_networks(options.heads),
    }
    ran = equal = failed = left_out = 0
    for package in options.packages:
        for network in sources[package]():
            if options.names and not any(name in network.name for name in options.names):
                continue
            reason = why_not(network)
            if reason:
                print(f"{network.name:60} left out, {reason}", flush=True)
                left_out += 1
                continue
            verdict = with_limit(network, options.mode == "graph")
            print(f"{network.name:60} {verdict}", flush=True)
            failed += bool(verdict.error)
            ran += not verdict.error
            equal += not verdict.error and not any(verdict.all)
    print(f"{ran} of {ran + failed} networks ran; {equal} of them with every bit equal; {left_out} were left out")
    return int(failed > 0 or equal < ran)


if __name__ == "__main__":
    sys.exit(main())
