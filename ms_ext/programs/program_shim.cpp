// The kernel of a program: its argument text is the path of the program's file.
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "programs/program.h"

namespace ms_ext {
namespace {

std::shared_ptr<const Program> program_of(Arguments &args) {
  std::string path;
  args >> path;
  return Program::load(path);
}

class program_shim {
 public:
  explicit program_shim(Arguments &args) : program_(program_of(args)) { args.expect_more_inputs(program_->inputs()); }
  void operator()(Call &c) const { program_->run(c); }

 private:
  std::shared_ptr<const Program> program_;
};

}  // namespace
}  // namespace ms_ext

#ifdef MS_EXT_CUDA
constexpr auto launch_program = ms_ext::launch_cuda;
#else
constexpr auto launch_program = ms_ext::launch_cpu;
#endif

extern "C" {

int aten_programInit(int *, int64_t **, const char **, void *extra) {
  return ms_ext::init(extra, ms_ext::make_kernel<ms_ext::program_shim>);
}

int aten_program(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                 void *extra) {
  return launch_program(nparam, params, ndims, shapes, dtypes, stream, extra);
}

ms_ext::Shapes aten_programInferShape(int *, int64_t **, void *extra) {
  ms_ext::Arguments args(ms_ext::read_attribute(extra, "aten_args"));
  return ms_ext::program_of(args)->shapes();
}

// MindSpore's numbers for dtypes, which Python knows.
std::vector<int> aten_programInferType(std::vector<int>, void *extra) {
  std::istringstream types(ms_ext::read_attribute(extra, "aten_types"));
  return {std::istream_iterator<int>(types), std::istream_iterator<int>()};
}

}  // extern "C"
