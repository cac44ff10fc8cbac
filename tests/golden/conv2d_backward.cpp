// convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor
struct convolution_derivative_shim {
  Saved saved;
  Tensor input;
  Tensor weight;
  OptionalTensor bias;
  std::vector<int64_t> stride;
  std::vector<int64_t> padding;
  std::vector<int64_t> dilation;
  bool transposed;
  std::vector<int64_t> output_padding;
  int64_t groups;
  MS_EXT_ONCE explicit convolution_derivative_shim(Arguments &args) { args >> saved >> input >> weight >> bias >> stride >> padding >> dilation >> transposed >> output_padding >> groups; }
  void operator()(Call &c) const {
    const auto &input = c(this->input);
    const auto &weight = c(this->weight);
    const auto &bias = c(this->bias);
    Backward<generated::ConvolutionBackward0> node(c, saved);
    node.save(node->input_, input);
    node.save(node->weight_, weight);
    node.save(node->bias_sym_sizes_opt, bias.has_value() ? std::optional<c10::SymIntArrayRef>(bias->sym_sizes()) : std::nullopt);
    node.save(node->stride, stride);
    node.save(node->padding, padding);
    node.save(node->dilation, dilation);
    node.save(node->transposed, transposed);
    node.save(node->output_padding, output_padding);
    node.save(node->groups, groups);
    node.wants(input);
    node.wants(weight);
    node.wants(bias);
    node.apply();
  }
};
MS_EXT_CPU_SHIM_TUPLE(convolution_derivative)
