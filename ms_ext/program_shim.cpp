// The kernel of a program: its argument text is the path of the program's file.
#include "program.h"

namespace ms_ext {
namespace {

class program_shim {
 public:
  explicit program_shim(Arguments &args) {
    std::string path;
    args >> path;
    program_ = Program::load(path);
    args.expect_more_inputs(program_->inputs());
  }
  void operator()(Call &c) const { program_->run(c); }

 private:
  std::shared_ptr<const Program> program_;
};

}  // namespace
}  // namespace ms_ext

using ms_ext::program_shim;
#ifdef MS_EXT_CUDA
MS_EXT_CUDA_SHIM_TUPLE(program)
#else
MS_EXT_CPU_SHIM_TUPLE(program)
#endif
