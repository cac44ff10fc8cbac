// What kernels get from MindSpore's primitive, for all files of the project.
#pragma once

#include <string>

#include "../custom_aot_extra.h"

std::string read_mode(mindspore::AotExtra *extra);
float sign_of(const std::string &mode);
