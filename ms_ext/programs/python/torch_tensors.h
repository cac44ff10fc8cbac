// PyTorch's tensors and autograd graphs, for code that is compiled with MindSpore's headers and string ABI: C types
// only.
//
// These functions are in libms_ext_python.so. They are called with the GIL unless they say otherwise, and those that
// can fail set Python's error, in PyTorch's words, and return nothing.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>

#include "programs/memory.h"

namespace ms_ext {

// What PyTorch is to take a tensor for: one without gradient, a leaf, or a result, which may be written to.
enum class Gradient { kNone, kOfLeaf, kOfResult };

}  // namespace ms_ext

extern "C" {

// A torch.Tensor on that memory, or null. If it has a gradient, `leaf` is set to the tensor at which that is found.
PyObject *ms_ext_to_torch(const ms_ext::TensorMemory *memory, ms_ext::Gradient gradient, PyObject **leaf);

// Whether it is a torch.Tensor or a parameter, and no instance of a class that derives from them.
bool ms_ext_is_torch(PyObject *object);

// The memory of a torch.Tensor; of a contiguous copy if it is not contiguous.
bool ms_ext_from_torch(PyObject *tensor, ms_ext::TensorMemory *memory);

// Where its elements are, as MindSpore has them; null if they lie or are written otherwise.
const void *ms_ext_torch_address(PyObject *tensor);

bool ms_ext_torch_requires_grad(PyObject *tensor);

// Whether somebody has registered hooks for its gradient, which may be removed by now.
bool ms_ext_torch_has_hooks(PyObject *tensor);

// How often the tensor was written to.
uint32_t ms_ext_torch_version(PyObject *tensor);

// Says that the tensor was written to, past PyTorch.
void ms_ext_torch_written(PyObject *tensor);

// Makes a torch.Tensor, such as a parameter, use that memory.
bool ms_ext_torch_set_data(PyObject *tensor, const ms_ext::TensorMemory *memory);

// Copies the tensor to that memory, and makes it use that.
bool ms_ext_torch_move(PyObject *tensor, const ms_ext::TensorMemory *memory);

// A reference to the memory of a tensor that fills it; null for one that does not. ms_ext_torch_drop drops it.
void *ms_ext_torch_hold(PyObject *tensor);
void ms_ext_torch_drop(void *held);

// How many references to that memory there are.
size_t ms_ext_torch_references(void *held);

// Moves what that memory holds from this place to another: for those who have it, as after `old = parameter.data`, it
// is what it was, whatever is written at the former place. It does nothing if the memory is elsewhere.
//
// Sets: the owner of the former place, which has to live as long as somebody uses that.
bool ms_ext_torch_move_away(void *held, const void *place, ms_ext::TensorMemory *former);

bool ms_ext_torch_set_requires_grad(PyObject *tensor, bool requires_grad);

// Leaves PyTorch's inference mode on this thread until the other function is given what this one returns.
void *ms_ext_torch_leave_inference_mode();
void ms_ext_torch_enter_again(void *left);

// Whether PyTorch records on this thread from now on; returns whether it did.
bool ms_ext_torch_record(bool enabled);

// The gradients of the wanted inputs, from those of the outputs, of which some may be missing. Called without the GIL.
// `results` has a place for each input; it stays without tensor where the outputs do not depend on the input. PyTorch
// frees what it saved, as it goes. `is_torch_code`: nobody else's Python ran.
bool ms_ext_differentiate(PyObject *const *inputs, const bool *wanted, size_t input_count, PyObject *const *outputs,
                          const ms_ext::TensorMemory *output_gradients, size_t output_count, bool is_torch_code,
                          ms_ext::TensorMemory *results);

}  // extern "C"
