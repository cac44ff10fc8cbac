// bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor
struct bernoulli_p_shim {
  Tensor self;
  double p;
  MS_EXT_ONCE explicit bernoulli_p_shim(Arguments &args) { args >> self >> p; }
  void operator()(Call &c) const { c.store([&] { return at::bernoulli(c(self), p, std::optional<at::Generator>()); }); }
};
MS_EXT_CPU_SHIM(bernoulli_p)
