// Calls of Python in a graph (programs/host_call.cpp, bridge/optim/host_call.py).
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>

extern "C" {

// Calls what has that number, with the addresses of its tensors; null for one without elements. Called without the GIL.
// Returns null, or a text of the error (errors.h), which the caller frees.
char *ms_ext_call_host(int64_t number, void *const *addresses, size_t count);

// Python calls the others, with the GIL. They set its error where they fail.

// Sets the function that this calls: with the number, and a tuple of the addresses.
void ms_ext_set_host_function(PyObject *function);

// The next calls of what has that number are made without it, where they are to do again what the last one did.
// `again` is what that was (repeated_launch.h), in place of an earlier one at the same addresses; None to forget all.
bool ms_ext_repeat_host_call(int64_t number, PyObject *again);

}  // extern "C"
