#include "shim.h"

namespace ms_ext {

Kernel::Kernel() = default;
Kernel::~Kernel() = default;

std::string read_attribute(void *extra, const char *name) {
  std::string text;
  ms_ext_read_attribute(
      extra, name,
      [](const char *data, unsigned long size, void *to) { static_cast<std::string *>(to)->assign(data, size); },
      &text);
  return text;
}

std::string label(void *extra) {
  const std::string name = read_attribute(extra, "aten_op");
  return name.find("::") == std::string::npos ? "aten." + name : name;
}

Kernel *Kernel::decode(Make make, std::string text, std::vector<int64_t> lengths) {
  Arguments arguments(text, std::move(lengths));
  std::unique_ptr<Kernel> kernel(make(arguments));
  kernel->saves_random_state = arguments.saves_random_state();
  kernel->inputs = arguments.inputs();
  if (!arguments.length_inputs().empty()) {
    kernel->lengths_ = std::make_unique<Lengths>();
    kernel->lengths_->make = make;
    kernel->lengths_->text = std::move(text);
    kernel->lengths_->inputs = arguments.length_inputs();
  }
  return kernel.release();
}

std::shared_ptr<const Kernel> Kernel::at(int64_t **shapes) const {
  if (lengths_ == nullptr) return {std::shared_ptr<const Kernel>(), this};  // owned by its primitive
  std::vector<int64_t> lengths;
  for (const int input : lengths_->inputs) lengths.push_back(shapes[input][0]);
  const std::lock_guard<std::mutex> lock(lengths_->mutex);
  if (lengths_->kernel == nullptr || lengths_->last != lengths) {
    lengths_->kernel.reset(decode(lengths_->make, lengths_->text, lengths));
    lengths_->last = std::move(lengths);
  }
  return lengths_->kernel;
}

int init(void *extra, Kernel::Make make) {
  ms_ext_set_kernel_data(extra, Kernel::decode(make, read_attribute(extra, "aten_args")));
  return 0;
}

}  // namespace ms_ext
