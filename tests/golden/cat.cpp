// cat(Tensor[] tensors, int dim=0) -> Tensor
struct cat_shim {
  TensorList tensors;
  int64_t dim;
  MS_EXT_ONCE explicit cat_shim(Arguments &args) { args >> tensors >> dim; }
  void operator()(Call &c) const { at::cat_out(c.out(0), c(tensors), dim); }
};
MS_EXT_CPU_SHIM(cat)
