"""Samples for the functional ATen overloads that PyTorch's OpInfo does not reach.

SAMPLES maps "name.overload" to a function that takes a Make (random tensors of one dtype) and gives calls. Overloads
whose tensors are of fixed dtypes (indices, masks) ignore the dtype. census.py says which overloads have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .make import Arguments, Make, call

Builder = Callable[[Make], list[Arguments]]
SAMPLES: dict[str, Builder] = {}


def calls(name: str, dtype: torch.dtype) -> list[Arguments]:
    """The calls of one overload in one dtype, always the same for the same seed."""
    return SAMPLES[name](Make(dtype))


def each(names: str, builder: Builder) -> None:
    """The same samples for several overloads."""
    for name in names.split():
        SAMPLES[name] = builder


# Elementwise, two operands --------------------------------------------------------------------------------------------

each(
    "greater.Scalar greater_equal.Scalar less.Scalar less_equal.Scalar not_equal.Scalar",
    lambda m: [call(m(4, 3), 0), call(m(), 1), call(m(0, 2), 0)],
)
each(
    "multiply.Scalar divide.Scalar true_divide.Scalar floor_divide.Scalar fmod.Scalar subtract.Scalar clamp_max "
    "float_power.Tensor_Scalar xlogy.Scalar_Other special_xlogy.other_scalar special_xlog1py.other_scalar",
    lambda m: [call(m.positive(4, 3), 2), call(m.positive(), 3)],
)
each(
    "float_power.Scalar remainder.Scalar_Tensor xlogy.Scalar_Self special_xlogy.self_scalar "
    "special_xlog1py.self_scalar",
    lambda m: [call(2, m.positive(4, 3)), call(3, m.positive())],
)
each(
    "div.Scalar_mode divide.Scalar_mode",
    lambda m: [call(m(4, 3), 2, rounding_mode=mode) for mode in (None, "trunc", "floor")],
)
each("special_zeta.other_scalar", lambda m: [call(m.positive(4, 3) + 1, 2)])
each("special_zeta.self_scalar", lambda m: [call(2, m.positive(4, 3))])
each("fill.Tensor", lambda m: [call(m(4, 3), m())])
each("lcm gcd", lambda m: [call(m.ints(4, 3), m.ints(3)), call(m.ints(), m.ints())])
each("_add_relu.Tensor", lambda m: [call(m(4, 3), m(4, 3)), call(m(4, 3), m(3), alpha=2)])
each("_add_relu.Scalar", lambda m: [call(m(4, 3), 1)])
each("where.Scalar", lambda m: [call(m.bools(4, 3), 1.5, 2)])
each("where.ScalarOther", lambda m: [call(m.bools(4, 3), m(4, 3), 2)])
each("where", lambda m: [call(m.bools(4, 3)), call(m(4))])
for _operation in ("and", "or", "xor"):
    each(f"__{_operation}__.Scalar bitwise_{_operation}.Scalar", lambda m: [call(m.ints(4, 3), 5)])
    each(f"bitwise_{_operation}.Scalar_Tensor", lambda m: [call(5, m.ints(4, 3))])
    each(f"__{_operation}__.Tensor bitwise_{_operation}.Tensor", lambda m: [call(m.ints(4, 3), m.ints(3))])
for _operation in ("left", "right"):
    _short = f"__{_operation[0]}shift__"
    each(f"{_short}.Scalar bitwise_{_operation}_shift.Tensor_Scalar", lambda m: [call(m.ints(4, 3), 2)])
    each(f"bitwise_{_operation}_shift.Scalar_Tensor", lambda m: [call(40, m.ints(4, 3, high=4))])
    each(f"{_short}.Tensor bitwise_{_operation}_shift.Tensor", lambda m: [call(m.ints(4, 3), m.ints(3, high=4))])
for _polynomial in [
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
]:
    each(f"special_{_polynomial}.n_scalar", lambda m: [call(m.positive(4, 3), n) for n in (0, 1, 4)])
    each(f"special_{_polynomial}.x_scalar", lambda m: [call(0.3, m.ints(4, high=6))])

# Elementwise, one operand, and copies ---------------------------------------------------------------------------------

each(
    "_lazy_clone detach_copy conj lift lift_fresh_copy data",
    lambda m: [call(m(4, 3)), call(m()), call(m(0, 2))],
)
each("_neg_view _neg_view_copy", lambda m: [] if m.dtype == torch.bool else [call(m(4, 3)), call(m()), call(m(0, 2))])
each("imag", lambda m: [call(torch.randn(4, 3, dtype=torch.complex64))])
each("view_as_real_copy _conj_copy", lambda m: [call(torch.randn(4, 3, dtype=torch.complex64))])
each("view_as_complex_copy", lambda m: [call(torch.randn(4, 3, 2))])
each(
    "_cast_Byte _cast_Char _cast_Double _cast_Float _cast_Half _cast_Int _cast_Long _cast_Short",
    lambda m: [call(m.positive(4, 3)), call(m.positive())],
)
each("_autocast_to_full_precision", lambda m: [call(m(4, 3), False, True)])
each("_autocast_to_reduced_precision", lambda m: [call(m(4, 3), False, True, torch.float16, torch.bfloat16)])
each("_saturate_weight_to_fp16", lambda m: [call(m(4, 3) * 3)])
each("to.other", lambda m: [call(m(4, 3), torch.zeros(2, dtype=torch.float64)), call(m.ints(4), m(1))])
each("to_dense", lambda m: [call(m(4, 3))])
each("to_dense_backward", lambda m: [call(m(4, 3), m(4, 3))])
each(
    "view.dtype view_copy.dtype", lambda m: [call(torch.randn(4, 6), torch.int32), call(torch.randn(4, 6), torch.uint8)]
)
each("_to_cpu", lambda m: [call(m.many())])
each("_is_all_true _is_any_true", lambda m: [call(m.bools(4, 3)), call(m.bools(0))])
each("_compute_linear_combination", lambda m: [call(m(3, 4, 4), m(2, 3))])
each("_logcumsumexp", lambda m: [call(m(4, 3), 0), call(m(4, 3), 1)])
each("_new_zeros_with_same_feature_meta", lambda m: [call(m(4, 3), m(2, 5))])

# Views ----------------------------------------------------------------------------------------------------------------

each("_reshape_copy", lambda m: [call(m(4, 3), [2, 6]), call(m(4, 3), [-1])])
each("_reshape_alias _reshape_alias_copy", lambda m: [call(m(4, 3), [2, 6], [6, 1])])
each("_reshape_from_tensor", lambda m: [call(m(4, 3), torch.tensor([2, 6]))])
each("_shape_as_tensor", lambda m: [call(m(4, 3)), call(m())])
each("_dim_arange", lambda m: [call(m(4, 3), 0)])
each("moveaxis.int", lambda m: [call(m(2, 3, 4), 0, 2), call(m(2, 3, 4), -1, 0)])
each("select_copy.int", lambda m: [call(m(4, 3), 0, 1), call(m(4, 3), 1, -1)])
each("slice_copy.Tensor", lambda m: [call(m(6, 3)), call(m(6, 3), 0, 1, 5, 2), call(m(6, 3), 1, -2, None)])
each("slice_inverse", lambda m: [call(m(6, 3), m(2, 3), 0, 1, 5, 2)])
each("split.sizes", lambda m: [call(m(6, 3), [1, 2, 3]), call(m(6, 3), [1, 2], 1)])
each("split_copy.Tensor", lambda m: [call(m(6, 3), 4), call(m(6, 3), 1, 1)])
each("unsafe_split_with_sizes", lambda m: [call(m(6, 3), [1, 2, 3])])
each("squeeze_copy.dims", lambda m: [call(m(1, 3, 1), [0, 2]), call(m(1, 3, 1), [1])])
each("set", lambda m: [call(m(4, 3))])
each("set.source_Tensor", lambda m: [call(m(4, 3), m(2, 2))])
each("meshgrid", lambda m: [call([m(3), m(2)])])
each("_stack", lambda m: [call([m(3, 2), m(3, 2)]), call([m(3, 2), m(3, 2)], 1)])
each("flatten_dense_tensors", lambda m: [call(m.many())])
each("unflatten_dense_tensors", lambda m: [call(m(12), [m(2, 3), m(6)])])
each("pad_sequence", lambda m: [call([m(4, 2), m(2, 2)]), call([m(4, 2), m(2, 2)], True, 1.0, "left")])
each("_pad_enum", lambda m: [call(m(2, 3, 5), [1, 2], mode) for mode in (0, 1, 2, 3)])
each("native_channel_shuffle", lambda m: [call(m(2, 6, 3, 3), 3)])
each("gradient.array", lambda m: [call(m(5, 4), dim=[0, 1])])
each("gradient.scalararray", lambda m: [call(m(5, 4), spacing=2, dim=[0, 1])])
each("gradient.tensorarrayint", lambda m: [call(m(5, 4), spacing=[m.positive(5)], dim=0)])

# Factories ------------------------------------------------------------------------------------------------------------

each(
    "bartlett_window blackman_window hamming_window hann_window kaiser_window",
    lambda m: [call(7, dtype=m.dtype), call(1), call(0), call(4)],
)
each(
    "bartlett_window.periodic blackman_window.periodic hamming_window.periodic hann_window.periodic "
    "kaiser_window.periodic",
    lambda m: [call(7, True, dtype=m.dtype), call(7, False)],
)
each("hamming_window.periodic_alpha", lambda m: [call(7, True, 0.5, dtype=m.dtype)])
each("hamming_window.periodic_alpha_beta", lambda m: [call(7, True, 0.5, 0.4, dtype=m.dtype)])
each("kaiser_window.beta", lambda m: [call(7, True, 9.5, dtype=m.dtype)])
each("fft_fftfreq fft_rfftfreq", lambda m: [call(7, dtype=m.dtype), call(8, 0.25)])
each("range", lambda m: [call(1, 5, dtype=m.dtype), call(0.5, 3)])
each("range.step", lambda m: [call(1, 5, 2, dtype=m.dtype), call(3.0, 0.0, -0.75)])
each("tril_indices triu_indices", lambda m: [call(4, 3), call(3, 4, 1, dtype=torch.int32), call(4, 3, -1)])
each("vander", lambda m: [call(m(4)), call(m(4), 3, True)])
each("_spdiags", lambda m: [call(m(2, 4), torch.tensor([0, 1]), [4, 4])])
each("_make_dep_token", lambda m: [call()])

# Random ---------------------------------------------------------------------------------------------------------------

each(
    "rand.generator randn.generator", lambda m: [call([4, 3], generator=None, dtype=m.dtype), call([], generator=None)]
)
each("rand_like", lambda m: [call(m(4, 3)), call(m(4, 3), dtype=torch.float64)])
each("rand_like.generator randn_like.generator", lambda m: [call(m(4, 3), generator=None)])
each("randint.generator", lambda m: [call(9, [4, 3], generator=None)])
each("randint.low_generator", lambda m: [call(-3, 9, [4, 3], generator=None, dtype=torch.int32)])
each("randint_like.generator", lambda m: [call(m(4, 3), 9, generator=None)])
each("randint_like.low_generator_dtype", lambda m: [call(m(4, 3), -3, 9, generator=None)])
each("randint_like.Tensor", lambda m: [call(m(4, 3), torch.tensor(9))])
each("randint_like.Tensor_generator", lambda m: [call(m(4, 3), torch.tensor(9), generator=None)])
each("randperm", lambda m: [call(7), call(7, dtype=torch.int32), call(0)])
each("randperm.generator", lambda m: [call(7, generator=None)])
each("random", lambda m: [call(m(4, 3))])
each("random.from", lambda m: [call(m(4, 3), 2, 9), call(m.ints(4), 2, None)])
each("random.to", lambda m: [call(m(4, 3), 9)])
each("bernoulli.Tensor", lambda m: [call(m(4, 3), torch.rand(4, 3))])
each("binomial", lambda m: [call(m.ints(4, 3).to(m.dtype), m.positive(4, 3))])
each("poisson _standard_gamma", lambda m: [call(m.positive(4, 3) * 3)])
each("_sample_dirichlet", lambda m: [call(m.positive(4, 3))])
each("_standard_gamma_grad", lambda m: [call(m.positive(4, 3), m.positive(4, 3))])
each("_dirichlet_grad", lambda m: [call(m.positive(4, 3), m.positive(4, 3), m.positive(4, 3) + 2)])
each("normal.float_Tensor", lambda m: [call(0.5, m.positive(4, 3))])
each("normal_functional", lambda m: [call(m(4, 3)), call(m(4, 3), 1.0, 0.5)])
each("rrelu_with_noise_functional", lambda m: [call(m(4, 3), m(4, 3)), call(m(4, 3), m(4, 3), 0.1, 0.3, True)])
each("_sobol_engine_draw", lambda m: [call(torch.zeros(3, dtype=torch.int64), 4, m.ints(3, 30), 3, 0, torch.float32)])

# Reductions, norms, linear algebra ------------------------------------------------------------------------------------

each("_aminmax", lambda m: [call(m(4, 3))])
each("_aminmax.dim", lambda m: [call(m(4, 3), 1), call(m(4, 3), 0, True)])
each("norm.Scalar", lambda m: [call(m(4, 3)), call(m(4, 3), 1)])
each("norm.ScalarOpt_dtype", lambda m: [call(m(4, 3), 2, dtype=torch.float64)])
each("norm.ScalarOpt_dim_dtype", lambda m: [call(m(4, 3), 2, [1], True, dtype=torch.float64)])
each("frobenius_norm.dim", lambda m: [call(m(4, 3), [0, 1]), call(m(4, 3), [1], True)])
each("nuclear_norm", lambda m: [call(m(4, 3)), call(m(4, 3), True)])
each("nuclear_norm.dim", lambda m: [call(m(2, 4, 3), [1, 2])])
each("norm_except_dim", lambda m: [call(m(4, 3), 2, 0)])
each("linalg__powsum", lambda m: [call(m(4, 3)), call(m(4, 3), 3, [1], True)])
each("slogdet _linalg_eigvals", lambda m: [call(m(3, 3)), call(m(2, 3, 3))])
each("linalg_cond.p_str", lambda m: [call(m(3, 3), "fro"), call(m(3, 3), "nuc")])
each("linalg_matrix_rank", lambda m: [call(m(4, 3), 0.5)])
each("linalg_matrix_rank.tol_tensor", lambda m: [call(m(4, 3), torch.tensor(0.5))])
each("linalg_pinv.rcond_tensor", lambda m: [call(m(4, 3), torch.tensor(0.1))])
each("chain_matmul", lambda m: [call([m(4, 3), m(3, 5), m(5, 2)])])
each("matrix_exp_backward", lambda m: [call(m(3, 3), m(3, 3))])
each("_cholesky_solve_helper", lambda m: [call(m(3, 2), (m(3, 3).tril() + 4 * torch.eye(3)).to(m.dtype), False)])
each("_addmm_activation", lambda m: [call(m(5), m(4, 3), m(3, 5)), call(m(5), m(4, 3), m(3, 5), use_gelu=True)])
each("_int_mm", lambda m: [call(m.ints(32, 16).to(torch.int8), m.ints(16, 24).to(torch.int8))])
each(
    "_grouped_mm",
    lambda m: [call(m(8, 16).bfloat16(), m(2, 16, 8).bfloat16(), torch.tensor([4, 8], dtype=torch.int32))],
)
each("_weight_int8pack_mm", lambda m: [call(m(4, 64).bfloat16(), m.ints(32, 64).to(torch.int8), m(32).bfloat16())])
each("trace_backward", lambda m: [call(m(), [4, 3])])
each("bincount", lambda m: [call(m.ints(9)), call(m.ints(9), m(9), 12)])
each("histogramdd.int_bins", lambda m: [call(m(9, 2), 3), call(m(9, 2), 3, [-1.0, 1.0, -1.0, 1.0])])
each("istft", lambda m: [call(torch.randn(9, 7, dtype=torch.complex64), 16, 4, window=torch.hann_window(16))])
each("bucketize.Scalar", lambda m: [call(2, torch.tensor([1.0, 2.0, 3.0])), call(2, m.ints(4).sort()[0], right=True)])
each("isin.Scalar_Tensor", lambda m: [call(2, m.ints(4, 3))])
each("isin.Tensor_Scalar", lambda m: [call(m.ints(4, 3), 2), call(m.ints(4, 3), 2, invert=True)])
each("one_hot", lambda m: [call(m.ints(4, 3)), call(m.ints(4, 3), 10)])
each("unique_dim_consecutive", lambda m: [call(torch.tensor([[1, 2], [1, 2], [3, 2]]), 0, True, True)])

# Indexing and its backward --------------------------------------------------------------------------------------------

each(
    "_index_put_impl _unsafe_index_put",
    lambda m: [
        call(m(5, 3), [torch.tensor([0, 2])], m(2, 3)),
        call(m(5, 3), [None, torch.tensor([0, 2])], m(5, 2), True),
    ],
)
each("index_select_backward", lambda m: [call(m(2, 3), [5, 3], 0, torch.tensor([0, 4]))])
each("gather_backward", lambda m: [call(m(2, 3), m(5, 3), 0, m.ints(2, 3, low=0, high=5), False)])
each("masked_select_backward", lambda m: [call(m(3), m(5), torch.tensor([True, False, True, True, False]))])
each("value_selecting_reduction_backward", lambda m: [call(m(4), 1, m.ints(4, low=0, high=3), [4, 3], False)])
each("cummaxmin_backward", lambda m: [call(m(4, 3), m(4, 3), m.ints(4, 3, low=0, high=4), 0)])
each("cumprod_backward", lambda m: [call(m(4, 3), x := m(4, 3), 0, x.cumprod(0))])
each("embedding_backward", lambda m: [call(m(5, 3), m.ints(5, high=6), 6, -1, False, False)])
each(
    "embedding_bag _embedding_bag",
    lambda m: [
        call(m(6, 3), m.ints(5, high=6), torch.tensor([0, 2])),
        call(m(6, 3), m.ints(5, high=6), torch.tensor([0, 2]), False, 2),
        call(m(6, 3), m.ints(5, high=6), torch.tensor([0, 2]), True, 1),
    ],
)
each(
    "_embedding_bag_dense_backward",
    lambda m: [
        call(
            m(2, 3),
            i := m.ints(5, high=6),
            torch.tensor([0, 0, 1, 1, 1]),
            torch.tensor([2, 3]),
            i[:0],
            6,
            False,
            0,
            None,
        )
    ],
)
each(
    "_convert_indices_from_coo_to_csr", lambda m: [call(torch.tensor([0, 0, 2]), 3), call(m.ints(0), 2, out_int32=True)]
)
each("_convert_indices_from_csr_to_coo", lambda m: [call(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]))])
each("_rowwise_prune", lambda m: [call(m(4, 3), torch.tensor([True, False, True, True]), torch.int64)])

# _foreach and fused optimizers ----------------------------------------------------------------------------------------

each("_foreach_add.Tensor", lambda m: [call(m.many(), m()), call(m.many(), m(), alpha=2)])
each("_foreach_addcdiv.Tensor _foreach_addcmul.Tensor", lambda m: [call(m.many(), m.many(), m.many(), torch.rand(3))])
each("_foreach_pow.ScalarAndTensor", lambda m: [call(2, m.many())])
each("_foreach_powsum.Scalar", lambda m: [call(m.many()), call(m.many(), 1)])
each("_amp_foreach_non_finite_check_and_unscale", lambda m: [call(m.many(), torch.zeros(()), torch.tensor(0.5))])
each(
    "_amp_update_scale",
    lambda m: [
        call(torch.tensor(4.0), torch.tensor(1, dtype=torch.int32), torch.tensor(f), 2.0, 0.5, 2) for f in (0.0, 1.0)
    ],
)


def _steps() -> list[torch.Tensor]:
    return [torch.tensor(float(i + 1)) for i in range(3)]


def _adam(m: Make, lr: Any) -> list[Arguments]:
    """With and without amsgrad, which alone reads the fifth list."""
    shared = {"lr": lr, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8}
    return [
        call(*(m.many() for _ in range(5)), _steps(), **shared, amsgrad=True, maximize=False),
        call(*(m.many() for _ in range(4)), [], _steps(), **shared, amsgrad=False, maximize=True),
    ]


def _adagrad(m: Make, lr: Any) -> list[Arguments]:
    shared = {"lr": lr, "lr_decay": 0.1, "weight_decay": 0.1, "eps": 1e-8, "maximize": False}
    return [call(m.many(), m.many(), m.many(), _steps(), **shared)]


def _sgd(m: Make, lr: Any) -> list[Arguments]:
    shared = {"lr": lr, "weight_decay": 0.1, "dampening": 0.0, "maximize": False, "is_first_step": False}
    return [call(m.many(), m.many(), m.many(), **shared, momentum=0.9, nesterov=nesterov) for nesterov in (False, True)]


each("_fused_adam _fused_adamw", lambda m: _adam(m, 0.1))
each("_fused_adam.tensor_lr _fused_adamw.tensor_lr", lambda m: _adam(m, torch.tensor(0.1)))
each("_fused_adagrad", lambda m: _adagrad(m, 0.1))
each("_fused_adagrad.tensor_lr", lambda m: _adagrad(m, torch.tensor(0.1)))
each("_fused_sgd", lambda m: _sgd(m, 0.1))
each("_fused_sgd.tensor_lr", lambda m: _sgd(m, torch.tensor(0.1)))

# Convolution ----------------------------------------------------------------------------------------------------------

each(
    "_convolution",
    lambda m: [
        call(m(2, 4, 6, 6), m(6, 4, 3, 3), m(6), [1, 1], [1, 1], [1, 1], False, [0, 0], 1, False, False, True, True),
        call(m(2, 4, 6, 6), m(4, 3, 3, 3), None, [2, 2], [0, 0], [1, 1], True, [1, 1], 2, False, False, True, True),
    ],
)
each(
    "_convolution.deprecated",
    lambda m: [call(m(2, 4, 6, 6), m(6, 4, 3, 3), m(6), [1, 1], [1, 1], [1, 1], False, [0, 0], 1, False, False, True)],
)
each(
    "_convolution_double_backward",
    lambda m: [
        call(
            m(1, 2, 5, 5), m(3, 2, 3, 3), m(3), m(1, 3, 3, 3), m(3, 2, 3, 3), m(1, 2, 5, 5),
            [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True],
        )
    ],
)  # fmt: skip
each("conv_tbc", lambda m: [call(m(6, 2, 4), m(3, 4, 5), m(5)), call(m(6, 2, 4), m(3, 4, 5), m(5), 1)])
each("conv_tbc_backward", lambda m: [call(m(4, 2, 5), m(6, 2, 4), m(3, 4, 5), m(5), 0)])
each(
    "thnn_conv2d",
    lambda m: [call(m(2, 4, 6, 6), m(5, 4, 3, 3), [3, 3]), call(m(2, 4, 6, 6), m(5, 4, 3, 3), [3, 3], m(5))],
)
each("_slow_conv2d_forward", lambda m: [call(m(2, 4, 6, 6), m(5, 4, 3, 3), [3, 3], m(5), [2, 2], [1, 1])])
each(
    "_slow_conv2d_backward.output_mask",
    lambda m: [call(m(2, 5, 4, 4), m(2, 4, 6, 6), m(5, 4, 3, 3), [3, 3], [1, 1], [0, 0], [True, True, True])],
)
each("slow_conv3d", lambda m: [call(m(1, 2, 4, 4, 4), m(3, 2, 3, 3, 3), [3, 3, 3], m(3))])
each("slow_conv3d_forward", lambda m: [call(m(1, 2, 4, 4, 4), m(3, 2, 3, 3, 3), [3] * 3, m(3), [1] * 3, [0] * 3)])
each("slow_conv_dilated2d", lambda m: [call(m(2, 4, 7, 7), m(5, 4, 3, 3), [3, 3], m(5), [1, 1], [0, 0], [2, 2])])
each(
    "slow_conv_dilated3d",
    lambda m: [call(m(1, 2, 6, 6, 6), m(3, 2, 3, 3, 3), [3] * 3, m(3), [1] * 3, [0] * 3, [2] * 3)],
)
each("slow_conv_transpose2d", lambda m: [call(m(2, 4, 5, 5), m(4, 3, 3, 3), [3, 3], m(3), [2, 2], [1, 1], [1, 1])])
each(
    "slow_conv_transpose3d",
    lambda m: [call(m(1, 2, 3, 3, 3), m(2, 3, 3, 3, 3), [3] * 3, m(3), [2] * 3, [1] * 3, [1] * 3)],
)
each("mkldnn_convolution", lambda m: [call(m(2, 4, 6, 6), m(5, 4, 3, 3), m(5), [1, 1], [1, 1], [1, 1], 1)])
each("_nnpack_spatial_convolution", lambda m: [call(m(2, 4, 6, 6), m(5, 4, 3, 3), m(5), [1, 1])])

# Upsampling and grids -------------------------------------------------------------------------------------------------

each("upsample_linear1d", lambda m: [call(m(2, 3, 5), [8], a) for a in (True, False)])
each(
    "upsample_bilinear2d upsample_bicubic2d _upsample_bicubic2d_aa _upsample_lanczos2d_aa",
    lambda m: [call(m(2, 3, 5, 4), [7, 6], a) for a in (True, False)] + [call(m(2, 3, 5, 4), [3, 2], False)],
)
each("upsample_trilinear3d", lambda m: [call(m(1, 2, 3, 4, 3), [5, 6, 2], a) for a in (True, False)])
each("upsample_nearest1d _upsample_nearest_exact1d", lambda m: [call(m(2, 3, 5), [8]), call(m(2, 3, 5), [10], 2.0)])
each("upsample_nearest2d _upsample_nearest_exact2d", lambda m: [call(m(2, 3, 5, 4), [7, 6])])
each("upsample_nearest3d _upsample_nearest_exact3d", lambda m: [call(m(1, 2, 3, 4, 3), [5, 6, 2])])
each(
    "_upsample_bicubic2d_aa.vec _upsample_lanczos2d_aa.vec",
    lambda m: [call(m(2, 3, 5, 4), [7, 6], True, None), call(m(2, 3, 5, 4), None, False, [1.5, 0.5])],
)
each(
    "_upsample_bicubic2d_aa_backward _upsample_lanczos2d_aa_backward",
    lambda m: [call(m(2, 3, 7, 6), [7, 6], [2, 3, 5, 4], False)],
)
each("affine_grid_generator", lambda m: [call(m(2, 2, 3), [2, 3, 4, 5], a) for a in (True, False)])
each("affine_grid_generator_backward", lambda m: [call(m(2, 4, 5, 2), [2, 3, 4, 5], True)])
each("_grid_sampler_2d_cpu_fallback", lambda m: [call(m(1, 2, 4, 4), m(1, 3, 3, 2), i, 0, False) for i in (0, 1)])
each(
    "_grid_sampler_2d_cpu_fallback_backward", lambda m: [call(m(1, 2, 3, 3), m(1, 2, 4, 4), m(1, 3, 3, 2), 0, 0, False)]
)

# Normalisation --------------------------------------------------------------------------------------------------------

each(
    "_batch_norm_with_update_functional",
    lambda m: [call(m(4, 3, 5), m(3), m(3), m(3), m.positive(3), 0.1, 1e-5)],
)
each(
    "_batch_norm_no_update _native_batch_norm_legit_no_training",
    lambda m: [call(m(4, 3, 5), m(3), m(3), m(3), m.positive(3), 0.1, 1e-5)],
)
each(
    "_native_batch_norm_legit_functional",
    lambda m: [call(m(4, 3, 5), m(3), m(3), m(3), m.positive(3), training, 0.1, 1e-5) for training in (True, False)],
)
each(
    "batch_norm_update_stats", lambda m: [call(m(4, 3, 5), m(3), m.positive(3), 0.1), call(m(4, 3, 5), None, None, 0.1)]
)
each(
    "_batch_norm_impl_index_backward",
    lambda m: [
        call(
            0, m(4, 3, 5), m(4, 3, 5), m(3), m(3), m.positive(3), m(3), m.positive(3), True, 1e-5, [True] * 3,
            torch.zeros(0, dtype=torch.uint8),
        )
    ],
)  # fmt: skip
each(
    "_weight_norm _weight_norm_interface",
    lambda m: [call(m(4, 3), m.positive(4, 1)), call(m(4, 3), m.positive(1, 3), 1)],
)
each(
    "_weight_norm_interface_backward _weight_norm_differentiable_backward",
    lambda m: [call(m(4, 3), m(4, 3), m.positive(4, 1), m.positive(4, 1), 0)],
)

# Activations, attention, losses ---------------------------------------------------------------------------------------

each("infinitely_differentiable_gelu_backward", lambda m: [call(m(4, 3), m(4, 3))])
each("glu_jvp", lambda m: [call(m(4, 2), m(4, 4), m(4, 4), 1)])
each("glu_backward_jvp", lambda m: [call(m(4, 4), m(4, 2), m(4, 4), m(4, 2), m(4, 4), 1)])
each("_masked_softmax", lambda m: [call(m(2, 3, 4, 4), m.bools(2, 3, 4, 4), 3, 2), call(m(4, 3), m.bools(4, 3), 1, 2)])
each("_masked_softmax_backward", lambda m: [call(m(4, 3), m.positive(4, 3), m.bools(4, 3), 1)])
each("_transform_bias_rescale_qkv", lambda m: [call(m(2, 3, 24), m(24), 2)])
each(
    "_native_multi_head_attention",
    lambda m: [call(x := m(2, 3, 8), x, x, 8, 2, m(24, 8), m(24), m(8, 8), m(8), None, w) for w in (True, False)],
)
each(
    "_transformer_encoder_layer_fwd",
    lambda m: [
        call(
            m(2, 3, 8), 8, 2, m(24, 8), m(24), m(8, 8), m(8), gelu, first, 1e-5,
            m(8), m(8), m(8), m(8), m(16, 8), m(16), m(8, 16), m(8),
        )
        for gelu, first in ((False, True), (True, False))
    ],
)  # fmt: skip


def _ctc_backward(m: Make) -> list[Arguments]:
    """The forward's results are the backward's inputs, so the forward runs here."""
    log_probs = m(8, 2, 5).log_softmax(2)
    targets, inputs, lengths = torch.randint(1, 5, (2, 3)), torch.tensor([8, 7]), torch.tensor([3, 2])
    loss, alpha = torch.ops.aten._ctc_loss.Tensor(log_probs, targets, inputs, lengths)
    return [call(torch.ones_like(loss), log_probs, targets, inputs, lengths, loss, alpha, 0)]


each("_ctc_loss_backward.Tensor", _ctc_backward)

# Recurrent networks ---------------------------------------------------------------------------------------------------

INPUT, HIDDEN = 3, 4


def _weights(m: Make, gates: int, directions: int = 1) -> list[torch.Tensor]:
    shapes = [(gates * HIDDEN, INPUT), (gates * HIDDEN, HIDDEN), (gates * HIDDEN,), (gates * HIDDEN,)]
    return [m(*shape) for _ in range(directions) for shape in shapes]


def _rnn(gates: int, packed: bool, states: int = 1) -> Builder:
    """A one-layer network, in one and in both directions, over padded or packed sequences."""

    def build(m: Make) -> list[Arguments]:
        found = []
        for directions in (1, 2):
            state = [m(directions, 2, HIDDEN) for _ in range(states)]
            hidden: Any = state if states > 1 else state[0]
            head = (m(7, INPUT), torch.tensor([2, 2, 2, 1])) if packed else (m(5, 2, INPUT),)
            settings: tuple[Any, ...] = (True, 1, 0.0, False, directions == 2)
            found.append(call(*head, hidden, _weights(m, gates, directions), *settings, *(() if packed else (False,))))
        return found

    return build


for _name, _gates, _states in (("rnn_relu", 1, 1), ("rnn_tanh", 1, 1), ("gru", 3, 1), ("lstm", 4, 2)):
    SAMPLES[f"{_name}.input"] = _rnn(_gates, False, _states)
    SAMPLES[f"{_name}.data"] = _rnn(_gates, True, _states)
each("rnn_relu_cell rnn_tanh_cell", lambda m: [call(m(2, INPUT), m(2, HIDDEN), *_weights(m, 1))])
each("gru_cell", lambda m: [call(m(2, INPUT), m(2, HIDDEN), *_weights(m, 3))])
each("lstm_cell", lambda m: [call(m(2, INPUT), [m(2, HIDDEN), m(2, HIDDEN)], *_weights(m, 4))])
each(
    "_thnn_differentiable_gru_cell_backward",
    lambda m: [
        call(m(2, 4), m(2, 12), m(2, 12), m(2, 4), m(12), m(12)),
        call(m(2, 4), m(2, 12), m(2, 12), m(2, 4), None, None),
    ],
)
each(
    "_thnn_differentiable_lstm_cell_backward",
    lambda m: [call(m(2, 4), m(2, 4), m(2, 16), m(2, 16), m(16), m(16), m(2, 4), m(2, 4))],
)
each(
    "_pack_padded_sequence",
    lambda m: [call(m(5, 2, 3), torch.tensor([5, 3]), False), call(m(2, 5, 3), torch.tensor([4, 4]), True)],
)
each("_pack_padded_sequence_backward", lambda m: [call(m(8, 3), [5, 2, 3], torch.tensor([2, 2, 2, 1, 1]), False)])
each("_pad_packed_sequence", lambda m: [call(m(8, 3), torch.tensor([2, 2, 2, 1, 1]), False, 0.5, 5)])
each("_jagged_to_padded_dense_forward", lambda m: [call(m(5, 3), [torch.tensor([0, 2, 5])], [4])])
each("_padded_dense_to_jagged_forward", lambda m: [call(m(2, 4, 3), [torch.tensor([0, 2, 5])], 5)])
each(
    "mkldnn_rnn_layer",
    lambda m: [call(m(5, 2, 3), *_weights(m, 4), m(2, 4), m(2, 4), False, [], 2, 4, 1, True, False, False, False)],
)

# Fake quantisation ----------------------------------------------------------------------------------------------------

each(
    "fake_quantize_per_tensor_affine fake_quantize_per_tensor_affine_cachemask",
    lambda m: [call(m(4, 3), 0.1, 2, 0, 255)],
)
each(
    "fake_quantize_per_tensor_affine.tensor_qparams",
    lambda m: [call(m(4, 3), torch.tensor(0.1), torch.tensor(2, dtype=torch.int32), 0, 255)],
)
each(
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    lambda m: [call(m(4, 3), torch.tensor(0.1), torch.tensor(2, dtype=torch.int32), torch.tensor([1]), 0, 255)],
)
each(
    "fake_quantize_per_channel_affine fake_quantize_per_channel_affine_cachemask",
    lambda m: [call(m(4, 3), torch.rand(3) + 0.1, torch.zeros(3, dtype=torch.int32), 1, 0, 255)],
)
each(
    "fake_quantize_per_channel_affine_cachemask_backward fake_quantize_per_tensor_affine_cachemask_backward",
    lambda m: [call(m(4, 3), m.bools(4, 3))],
)
each(
    "_fake_quantize_learnable_per_tensor_affine",
    lambda m: [call(m(4, 3), torch.tensor([0.1]), torch.tensor([2.0]), 0, 255)],
)
each(
    "_fake_quantize_learnable_per_tensor_affine_backward",
    lambda m: [call(m(4, 3), m(4, 3), torch.tensor([0.1]), torch.tensor([2.0]), 0, 255)],
)
each(
    "_fake_quantize_learnable_per_channel_affine",
    lambda m: [call(m(4, 3), torch.rand(3) + 0.1, torch.zeros(3), 1, 0, 255)],
)
each(
    "_fake_quantize_learnable_per_channel_affine_backward",
    lambda m: [call(m(4, 3), m(4, 3), torch.rand(3) + 0.1, torch.zeros(3), 1, 0, 255)],
)
each(
    "_fused_moving_avg_obs_fq_helper_functional",
    lambda m: [
        call(
            m(4, 3), torch.tensor([1]), torch.tensor([1]), torch.tensor([-1.0]), torch.tensor([1.0]),
            torch.tensor([0.1]), torch.tensor([0], dtype=torch.int32), 0.01, 0, 255, 0,
        )
    ],
)  # fmt: skip
each("_choose_qparams_per_tensor", lambda m: [call(m(4, 3)), call(m(4, 3), True)])
each("choose_qparams_optimized", lambda m: [call(m(32), 32, 20, 0.16, 8)])
each("dequantize.self", lambda m: [call(m(4, 3))])


def _int4(m: Make) -> tuple[torch.Tensor, torch.Tensor]:
    """A packed 4-bit weight of 32 by 64, and its scales and zero points in groups of 32."""
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(m.ints(32, 64, low=0, high=16).int(), 2)
    return packed, m(2, 32, 2).bfloat16()


def _dynamic_4bit(m: Make) -> torch.Tensor:
    weights = m.ints(32, 32, low=0, high=256).to(torch.uint8)
    return torch.ops.aten._dyn_quant_pack_4bit_weight(weights, torch.rand(64), None, 32, 64, 32)


each("_convert_weight_to_int4pack_for_cpu", lambda m: [call(m.ints(32, 64, low=0, high=16).int(), 2)])
each("_weight_int4pack_mm_for_cpu", lambda m: [call(m(4, 64).bfloat16(), (w := _int4(m))[0], 32, w[1])])
each(
    "_dyn_quant_pack_4bit_weight",
    lambda m: [call(m.ints(32, 32, low=0, high=256).to(torch.uint8), torch.rand(64), None, 32, 64, 32)],
)
each("_dyn_quant_matmul_4bit", lambda m: [call(torch.randn(4, 64), _dynamic_4bit(m), 32, 64, 32)])
each("fbgemm_linear_quantize_weight", lambda m: [call(m(4, 8))])
each(
    "_scaled_mm",
    lambda m: [
        call(
            torch.randn(16, 32).to(torch.float8_e4m3fn),
            torch.randn(32, 16).to(torch.float8_e4m3fn),
            torch.tensor(0.5),
            torch.tensor(2.0),
            out_dtype=torch.bfloat16,
        )
    ],
)

# PyTorch's own test operators: they cover argument types that few others have -----------------------------------------

each(
    "_test_optional_filled_intlist _test_optional_intlist", lambda m: [call(m.ints(2).int(), a) for a in ([3, 4], None)]
)
each("_test_optional_floatlist", lambda m: [call(torch.randn(2), a) for a in ([3.5, 4.25], None)])
each("_test_string_default", lambda m: [call(m(2))])
each("_test_ambiguous_defaults.a", lambda m: [call(m(2))])
each("_test_ambiguous_defaults.b", lambda m: [call(m(2))])
each("_test_serialization_subcmul _test_functorch_fallback", lambda m: [call(m(3), m(3))])
each("_test_parallel_materialize", lambda m: [call(m(3), 1)])
each("_test_autograd_multiple_dispatch.ntonly", lambda m: [call(m(3), True)])
each(
    "_test_autograd_multiple_dispatch.fullcoverage _test_autograd_multiple_dispatch_view _test_warn_in_autograd "
    "_test_autograd_multiple_dispatch_view_copy _foobar",
    lambda m: [call(m(4, 3))],
)

# What returns no tensors ----------------------------------------------------------------------------------------------

each(
    "_is_zerotensor _version cudnn_is_acceptable dense_dim dim get_device is_complex is_conj is_contiguous "
    "is_distributed is_floating_point is_inference is_leaf is_neg is_pinned is_signed numel output_nr retains_grad "
    "storage_offset sym_is_contiguous sym_numel sym_storage_offset _debug_has_internal_overlap sparse_dim",
    lambda m: [call(m(4, 3)), call(m())],
)
each("_nnpack_available _use_cudnn_rnn_flatten_weight is_vulkan_available", lambda m: [call()])
each("size.int stride.int sym_size.int sym_stride.int", lambda m: [call(m(4, 3), 0), call(m(4, 3), -1)])
each("is_contiguous.memory_format", lambda m: [call(m(2, 3, 4, 4), memory_format=torch.channels_last)])
each(
    "_has_same_storage_numel _has_compatible_shallow_copy_type is_same_size is_set_to",
    lambda m: [call(m(4, 3), m(4, 3)), call(m(4, 3), m(2))],
)
each("_fused_sdp_choice", lambda m: [call(m(2, 2, 3, 4), m(2, 2, 3, 4), m(2, 2, 3, 4))])
each("can_cast promote_types", lambda m: [call(torch.float32, torch.int32), call(torch.int32, torch.float64)])
each("result_type.Scalar", lambda m: [call(m(4, 3), 2.5)])
each("result_type.Scalar_Tensor", lambda m: [call(2.5, m(4, 3))])
each("result_type.Scalar_Scalar", lambda m: [call(2, 2.5)])
each("_assert_async", lambda m: [call(torch.tensor(True))])
each("_assert_async.msg", lambda m: [call(torch.tensor(True), "message")])
each("_functional_assert_async.msg", lambda m: [call(torch.tensor(True), "message", torch.zeros(()))])
each("_assert_scalar", lambda m: [call(1, "message")])
each("_functional_assert_scalar", lambda m: [call(1, "message", torch.zeros(()))])
each("_assert_tensor_metadata", lambda m: [call(m(4, 3), [4, 3])])
each("sym_constrain_range sym_constrain_range_for_size", lambda m: [call(4, min=2, max=9)])
each(
    "_functional_sym_constrain_range _functional_sym_constrain_range_for_size",
    lambda m: [call(4, 2, 9, torch.zeros(()))],
)
