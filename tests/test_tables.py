"""Tables that say the same in several places are compared here: a new fact, argument type or dtype that is missing in
one of them is named."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import mindspore as ms
import pytest
import torch

import aten_ops.facts
from aten_ops.shims import HOLDERS, SUPPLIED
from aten_ops.tables import PYTHON_TYPES
from bridge import aten, kernels
from bridge.call.arguments import CONVERTIBLE, Binder
from bridge.kernels import native
from bridge.op import devices, dtypes
from bridge.op.overload import overload
from bridge.op.schema import argument
from bridge.op.table import Fact, table
from bridge.primitive.aten import ATen
from conformance.dtypes import SHARED_DTYPES

ROOT = pathlib.Path(__file__).parent.parent

# Facts about single overloads.


def sources(*folders: str) -> str:
    return "".join(path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py"))


def test_the_generator_and_the_bridge_know_the_same_facts() -> None:
    at_run_time = set(aten_ops.facts.Fact) - aten_ops.facts.FOR_THE_GENERATOR
    assert {(fact.name, fact.value) for fact in Fact} == {(fact.name, fact.value) for fact in at_run_time}


def test_each_fact_has_an_overload() -> None:
    assert set(aten_ops.facts.table()["facts"]) == {fact.value for fact in aten_ops.facts.Fact}


def test_each_fact_is_read() -> None:
    of_bridge = set(re.findall(r"\bFact\.(\w+)", sources("bridge", "scripts")))
    assert {fact.name for fact in Fact} - of_bridge == set()
    of_generator = re.sub(r"FOR_THE_GENERATOR = \{.*?\}", "", sources("aten_ops"), flags=re.DOTALL)
    read = set(re.findall(r"\bFact\.(\w+)", of_generator))
    assert {fact.name for fact in aten_ops.facts.FOR_THE_GENERATOR} - read == set()


def test_the_table_has_the_facts_of_this_source() -> None:
    found = {name: row.get("facts", {}) for name, row in table().items()}
    assert found == {name: aten_ops.facts.at_run_time(name) for name in table()}


# Argument types: what a caller passes for each, and what PyTorch must get.

ARGUMENT_TYPES: dict[str, tuple[Any, Any]] = {
    "Scalar": (2.5, 2.5),
    "Scalar?": (None, None),
    "Scalar[]": ([1, 2.5, True], [1, 2.5, True]),
    "int": (-3, -3),
    "int?": (2**62, 2**62),
    "int[]": ([1, 2], [1, 2]),
    "int[]?": (None, None),
    "float": (0.1, 0.1),
    "float?": (-0.0, -0.0),
    "float[]": ([0.1, 2.0], [0.1, 2.0]),
    "float[]?": ([0.1], [0.1]),
    "bool": (True, True),
    "bool?": (False, False),
    "str": ("BILINEAR", "BILINEAR"),
    "str?": ("", ""),
    "ScalarType": (ms.float16, torch.float16),
    "ScalarType?": (None, None),
    "Layout": ("strided", torch.strided),
    "Layout?": (None, None),
    "MemoryFormat": ("channels_last", torch.channels_last),
    "MemoryFormat?": ("preserve_format", torch.preserve_format),
    "DeviceIndex": (0, 0),
    # What a shim supplies: a caller may leave it out.
    "Generator?": (None, None),
    "Device": ("MindSpore's", torch.device("cpu")),
    "Device?": (None, torch.device("cpu")),
    "Tensor": (ms.Tensor([3.0]), [3.0]),
    "Tensor?": (ms.Tensor([3.0]), [3.0]),
    "Tensor[]": ([ms.Tensor([3.0]), ms.Tensor([4.0])], [[3.0], [4.0]]),
    "Tensor?[]": ([None, ms.Tensor([4.0])], [None, [4.0]]),
}


def converter(schema_type: str) -> str:
    """The key of an argument type's converter (bridge/call/arguments.py)."""
    return argument(torch._C.parse_schema(f"f({schema_type} x) -> Tensor").arguments[0]).base


def test_the_tables_have_the_same_argument_types() -> None:
    assert set(ARGUMENT_TYPES) == {*HOLDERS, *SUPPLIED}
    bases = {re.sub(r"[?\[\]]", "", each) for each in ARGUMENT_TYPES}
    assert set(PYTHON_TYPES) == {*bases, "SymInt"}
    assert {converter(each) for each in {*bases, "SymInt"}} == CONVERTIBLE


def plain(value: Any) -> Any:
    """Tensors as lists, so that values can be compared; of those without data nothing."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, torch.Tensor):
        return None if value.is_meta else value.tolist()
    return value


@pytest.mark.parametrize("schema_type", ARGUMENT_TYPES)
def test_each_argument_type_reaches_pytorch(schema_type: str) -> None:
    """On both ways: by Python, to infer shapes on `meta` tensors, and by C++, to launch the kernel."""
    name = f"argument_types::f{list(ARGUMENT_TYPES).index(schema_type)}"
    given, expected = ARGUMENT_TYPES[schema_type]
    if schema_type == "Device":
        given = devices.torch_name(devices.target())
    received: dict[str, Any] = {}

    def kernel(x: torch.Tensor, value: Any) -> torch.Tensor:
        received[x.device.type] = plain(value)
        return x.clone()

    library = torch.library.Library("argument_types", "FRAGMENT")
    library.define(f"{name}(Tensor x, {schema_type} value) -> Tensor")
    for key in ("CPU", "Meta"):
        library.impl(name, kernel, key)
    kernels.registered(name).on_cpu(ms.Tensor([1.0]), given).asnumpy()
    assert repr(received["cpu"]) == repr(expected)  # which tells 1 from True, and -0.0 from 0.0
    if "Tensor" not in schema_type and "Device" not in schema_type:
        assert repr(received["meta"]) == repr(expected)
    assert set(received) == {"cpu", "meta"}


# Dtypes.


def test_the_tables_have_the_same_dtypes() -> None:
    assert set(SHARED_DTYPES) == set(dtypes.TORCH_DTYPES)
    assert set(native._SCALAR_TYPES.values()) == set(dtypes.TORCH_DTYPES.values())


@pytest.mark.parametrize("name", dtypes.TORCH_DTYPES)
def test_each_dtype_reaches_pytorch_and_comes_back(name: str) -> None:
    """As an input, a result and an argument, which are read in C++ in both ways of a call."""
    dtype = dtypes.MINDSPORE_DTYPES[name]
    zeros = aten.zeros([2], dtype=dtype)
    assert (zeros.dtype, zeros.shape) == (dtype, (2,))
    assert aten.clone(zeros).dtype == dtype
    bound = Binder(overload("clone"), (zeros,), {}).bind()
    primitive = ATen("clone", bound.text, devices.place(bound.overload))
    assert primitive.direct([zeros]) is not None
