"""What ends the process in plain PyTorch."""

# Operators left out, because PyTorch 2.13 itself crashes on some arguments: a call in plain PyTorch that ends the
# process. An entry goes when the bridge or PyTorch refuses the call.
PYTORCH_DOES_NOT_SURVIVE = {
    "_batch_norm_impl_index_backward": "save_mean and save_var_transform of None with impl_index 5: SIGSEGV",
    "_cholesky_solve_helper": "_cholesky_solve_helper(ones(0, 0, 3), ones(3, 0), False): SIGSEGV",
    "_fft_r2c": "_fft_r2c(ones(4, 0, 5, 3, 1), [2, -2], -1, True): SIGSEGV",
    "_foreach_copy": "_foreach_copy([], [ones(3)]): SIGSEGV",
    "_linalg_eigvals": "_linalg_eigvals(full((3, 3), nan)): SIGSEGV",
    "_log_softmax_backward_data": "output of ones(2, 3, 1) and grad_output of ones(2, 3, 0): SIGFPE",
    "_native_batch_norm_legit": "no_stats(ones(2, 5), None, ones(4, 0, 5, 0), False, 0.1, 0.0): SIGSEGV",
    "_new_zeros_with_same_feature_meta": "a negative self_num_batch_dims: SIGSEGV",
    "_nnpack_spatial_convolution": "a stride of 0: SIGFPE",
    "_pdist_backward": "_pdist_backward(ones(0, 4), ones(0, 4), 1e300, ones(0, 4)): SIGSEGV",
    "_pdist_forward": "_pdist_forward(ones(3, 3, 0)): SIGSEGV",
    "_remove_batch_dim": "_remove_batch_dim(ones(3, 3, 5), 3, -2, -2): SIGSEGV",
    "_stack": "_stack([]): SIGSEGV",
    "_thnn_differentiable_gru_cell_backward": "input_bias of ones and hidden_bias of None: SIGSEGV",
    "_thnn_differentiable_lstm_cell_backward": "gradients of None: SIGSEGV",
    "_transform_bias_rescale_qkv": "_transform_bias_rescale_qkv(ones(4, 0, 4), ones(4, 0, 4), 0): SIGFPE",
    "_weight_norm_interface": "_weight_norm_interface(ones(2, 1, 3, 0), ones(2, 1, 3, 0), 0): SIGSEGV",
    "fbgemm_linear_quantize_weight": "fbgemm_linear_quantize_weight(ones(2, 5, 0)): SIGSEGV",
    "linalg_matrix_power": "linalg_matrix_power(ones(1, 1), -(2**63)): does not end",
    "lu_unpack": "lu_unpack(ones(3, 5), ones(0)): SIGSEGV",
    "matrix_power": "matrix_power(ones(1, 1), -(2**63)): does not end",
    "native_batch_norm": "running_mean of ones(0): SIGSEGV",
    "native_layer_norm_backward": "grad_out of ones(0, 2, 3) for an input of ones(1, 2, 3): SIGSEGV",
}
