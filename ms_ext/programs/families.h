// Programs of inputs with sizes that only the run tells: bridge/programs/sizes.py says which one is for which sizes.
#pragma once

#include <memory>
#include <string>

#include "programs/program.h"

namespace ms_ext {

// The program of a family for inputs of these sizes.
std::shared_ptr<const Program> program_of(const std::string &family, at::ArrayRef<at::Tensor> inputs);

}  // namespace ms_ext
