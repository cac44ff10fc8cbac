// Makes PyTorch's CUDA allocator take the memory that is offered to it (donation.h).
#pragma once

namespace ms_ext {

// From the first call on.
void accept_offers();

}  // namespace ms_ext
