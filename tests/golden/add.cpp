// add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
struct add_Tensor_shim {
  Tensor self;
  Tensor other;
  at::Scalar alpha;
  MS_EXT_ONCE explicit add_Tensor_shim(Arguments &args) { args >> self >> other >> alpha; }
  void operator()(Call &c) const { at::add_out(c.out(0), c(self), c(other), alpha); }
};
MS_EXT_CPU_SHIM(add_Tensor)
