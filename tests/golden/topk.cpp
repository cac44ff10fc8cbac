// topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)
struct topk_shim {
  Tensor self;
  int64_t k;
  int64_t dim;
  bool largest;
  bool sorted;
  MS_EXT_ONCE explicit topk_shim(Arguments &args) { args >> self >> k >> dim >> largest >> sorted; }
  void operator()(Call &c) const { at::topk_out(c.out(0), c.out(1), c(self), k, dim, largest, sorted); }
};
MS_EXT_CPU_SHIM_TUPLE(topk)
