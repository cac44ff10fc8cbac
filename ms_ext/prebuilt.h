// How bridge.kernels knows what a library was built for.
#pragma once

// The schema of a kernel, for a library that was built before to be checked against.
#define MS_EXT_SCHEMA(op, text) \
  extern "C" const char *aten_##op##Schema() { return text; }
