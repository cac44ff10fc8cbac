#include "attributes.h"

std::string read_mode(mindspore::AotExtra *extra) { return extra->Attr<std::string>("mode"); }

float sign_of(const std::string &mode) { return mode == "negate" ? -1 : 1; }
