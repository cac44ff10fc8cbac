"""Nothing that a Python caller passes may end the process, and the same calls again may not make it grow."""

from __future__ import annotations

import math
import pathlib
import subprocess
import sys
from typing import Any

import mindspore as ms
import numpy as np
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge import aten
from bridge.op.encoding import text_of
from misuse import memory
from misuse.random_calls import EXPECTED
from stress import run

CALLS = 1000  # scripts/stress.py makes 10,000


def test_random_calls_end_in_a_result_or_an_ordinary_exception() -> None:
    report = run(seed=20, calls=CALLS)
    assert not report.failures, "\n".join(report.failures)
    assert sum(report.outcomes.values()) == CALLS
    assert report.outcomes["ok"] > CALLS / 4  # the generator makes enough valid calls to mean something


REPEATED_CALLS = """
import mindspore as ms, numpy as np
from misuse.memory import rss
from bridge import aten
x = ms.Tensor(np.ones((64, 64), np.float32))
def calls(count):
    for n in range(count):
        aten.leaky_relu(x, 0.1)
        aten.sum(aten.mul(x, 2), [0]).asnumpy()
        aten.nonzero(x)
        try:
            aten.mm(x, None)
        except TypeError:
            pass
calls(1000)
before = rss()
calls(2000)
print(rss() - before)
"""


def test_repeated_calls_do_not_grow_the_process() -> None:
    scripts = pathlib.Path(memory.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", REPEATED_CALLS], capture_output=True, text=True, check=False, timeout=120, cwd=scripts
    )
    assert done.returncode == 0, done.stderr
    # 8,000 calls. An operator that kept one 64x64 tensor a call would show as 31 MiB; allocators may move by a dozen.
    assert int(done.stdout.split()[-1]) <= 16


numbers = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.complex_numbers(allow_nan=False),
)
texts = st.text(st.characters(codec="utf-8"))
# Texts that end as an argument text or one of its marks may: the encoding must not take them for its own.
texts = st.one_of(texts, texts.flatmap(lambda text: st.sampled_from("RTN;").map(lambda end: text + end)))
values = st.recursive(st.one_of(st.none(), numbers, texts), st.lists)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return type(b) is float and (a.hex() == b.hex() or (math.isnan(a) and math.isnan(b)))
    return type(a) is type(b) and a == b


@given(st.lists(values, max_size=6), st.booleans())
@settings(max_examples=200, deadline=None)
@example(["BILINEAR"], False)
@example(["R"], True)
@example([], True)
def test_arguments_survive_their_encoding_exactly(arguments: list[Any], draws: bool) -> None:
    text = text_of(arguments)
    text = text.drawing_again() if draws else text
    assert same(text.values, arguments)
    assert text.redraws == draws


@given(st.floats(), st.floats(width=64))
@settings(max_examples=150, deadline=None)
def test_every_float_reaches_the_kernel_exactly(number: float, fill: float) -> None:
    x = torch.tensor([fill, -1.0], dtype=torch.float64)
    result = aten.add(ms.Tensor(x.numpy()), number).asnumpy()
    np.testing.assert_array_equal(result, (x + number).numpy())
    assert np.array_equal(np.signbit(result), np.signbit((x + number).numpy())) or np.isnan(result).any()


@given(st.integers(-(2**70), 2**70))
@settings(max_examples=150, deadline=None)
def test_every_int_is_exact_or_refused(number: int) -> None:
    x = np.array([1, -1], np.int64)
    try:
        expected = torch.ops.aten.bitwise_xor(torch.tensor(x), number).numpy()
    except (RuntimeError, OverflowError):
        expected = None
    try:
        result = aten.bitwise_xor(ms.Tensor(x), number).asnumpy()
    except (RuntimeError, OverflowError):
        assert expected is None
    else:
        np.testing.assert_array_equal(result, expected)


anything = st.one_of(
    st.none(),
    numbers,
    st.text(max_size=5),
    st.binary(max_size=5),
    st.integers(),
    st.lists(st.integers(-3, 5), max_size=4),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.sampled_from([object, len, ms.float32, ...]),
    st.just(ms.Tensor(np.ones((2, 3), np.float32))),
    st.just(torch.ones(2)),
    st.just(np.ones(2)),
)


names = st.sampled_from(
    ["add", "leaky_relu", "sum", "cat", "softmax", "permute", "view", "where", "clamp", "topk", "item"]
)
keywords = st.dictionaries(st.sampled_from(["dim", "alpha", "self", "other", "x"]), anything, max_size=2)


@given(names, st.lists(anything, max_size=4), keywords)
@settings(max_examples=300, deadline=None)
def test_anything_may_be_passed(name: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    try:
        getattr(aten, name)(*args, **kwargs)
        ms.ops.zeros(1).asnumpy()  # waits, so that an error of the kernel shows here
    except EXPECTED as error:
        assert "frame #0" not in str(error)
