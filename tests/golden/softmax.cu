// _softmax(Tensor self, int dim, bool half_to_float) -> Tensor
struct _softmax_shim {
  Tensor self;
  int64_t dim;
  bool half_to_float;
  MS_EXT_ONCE explicit _softmax_shim(Arguments &args) { args >> self >> dim >> half_to_float; }
  void operator()(Call &c) const { cuda_kernels::_softmax(c, c(self), dim, half_to_float); }
};
MS_EXT_CUDA_SHIM(_softmax)
