// A call that PyTorch's autograd records, and differentiates by what it recorded: no Python, and nothing runs again.
// For code that is compiled with MindSpore's headers and string ABI, so C types only. CPU tensors only.
//
// What fails throws std::runtime_error, whose words begin with the overload's label.
#pragma once

#include <cstddef>

#include "programs/memory.h"

namespace ms_ext {

struct Recorder;      // an overload and its arguments
struct RecordedCall;  // what PyTorch recorded

}  // namespace ms_ext

extern "C" {

// Args: the overload's name; its argument text (bridge/op/encoding.py).
ms_ext::Recorder *ms_ext_recorder(const char *op, const char *text, size_t text_size);
void ms_ext_free_recorder(ms_ext::Recorder *recorder);

// Makes the call on these inputs, `differentiated` of which get gradients. `results` has a place for each result. Null
// if no result depends on those inputs as far as autograd is concerned.
ms_ext::RecordedCall *ms_ext_record_call(const ms_ext::Recorder *recorder, const ms_ext::TensorMemory *inputs,
                                         const bool *differentiated, size_t input_count, ms_ext::TensorMemory *results,
                                         size_t result_count);

// Says that a tensor of the call, which are the inputs and then the results, was written to, past PyTorch.
void ms_ext_written(const ms_ext::RecordedCall *call, size_t tensor);

// The gradients of the wanted inputs, once, from those of the results, of which some may be missing. Called without the
// GIL. `gradients` has a place for each input; it stays without tensor where the gradient is zero.
void ms_ext_differentiate_call(const ms_ext::RecordedCall *call, const ms_ext::TensorMemory *result_gradients,
                               const bool *wanted, ms_ext::TensorMemory *gradients);

void ms_ext_free_call(ms_ext::RecordedCall *call);

}  // extern "C"
