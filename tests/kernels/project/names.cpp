#include "ops.h"

namespace project {

double factor_of(const std::string &name) { return name == "double" ? 2 : name == "gpu" ? 1 : 0; }

std::string canonical(std::string name) {
  for (char &letter : name) letter = static_cast<char>(letter | ' ');
  return name;
}

}  // namespace project
